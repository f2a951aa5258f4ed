"""Evidence and consensus of a question about images, from tables as a store has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.kinds.kind import StoredAnswers, kind_of
from hitl.models import DefaultCombiner
from hitl.models.combiner import Combiner
from hitl.platform import Question


def evidence_of(
    question: Question, items: pa.Table, answers: pa.Table, gold: pa.Table, names: Mapping[str, str]
) -> Evidence:
    nothing: Any = None
    stored = StoredAnswers(question, names, lambda: items, lambda: answers, lambda: gold, nothing, nothing)
    return kind_of(question).evidence(stored)[question.name]


def combined(evidence: Evidence, method: Combiner | None = None) -> Consensus:
    return kind_of(evidence).consensus(evidence, method or DefaultCombiner())
