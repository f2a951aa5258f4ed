"""Evidence and consensus of a question about images, from tables as a store has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.kinds.kind import StoredAnswers, kind_of
from hitl.models import DefaultCombiner
from hitl.models.combiner import Combiner
from hitl.platform import Question


def evidence_of(
    question: Question,
    items: Iterable[str],
    rows: Sequence[tuple[str, str | None, str]],
    gold: Mapping[str, str] | None = None,
) -> Evidence:
    """Evidence of answers (item, annotator, label) and known labels; annotator "1" is called ann."""
    names = list(items)
    text, missing, gold = pa.string(), pa.array([None] * len(rows), pa.float64()), gold or {}
    columns = {name: pa.array([row[i] for row in rows], text) for i, name in enumerate(("item", "annotator", "label"))}
    listed = pa.table({"item": pa.array(names, text), "data": pa.array(["{}"] * len(names), text)})
    answers = pa.table({**columns, "time": missing, "duration": missing})
    known = pa.table({"item": pa.array([*gold], text), "label": pa.array([*gold.values()], text)})
    nothing: Any = None
    stored = StoredAnswers(question, {"1": "ann"}, lambda: listed, lambda: answers, lambda: known, nothing, nothing)
    return kind_of(question).evidence(stored)[question.name]


def combined(evidence: Evidence, method: Combiner | None = None) -> Consensus:
    return kind_of(evidence).consensus(evidence, method or DefaultCombiner())
