"""A project's question about parts of texts: stored answers -> evidence about the texts and their tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hitl.errors import BadInput
from hitl.parts import spans_in
from hitl.tables.encoding import ANONYMOUS
from hitl.texts.span_labels import Answer, SpanLabels
from hitl.texts.text_items import of_texts

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.evidence import Evidence
    from hitl.platform import Question


def evidence_of(
    question: Question, items: pa.Table, answers: pa.Table, gold: pa.Table, names: Mapping[str, str]
) -> dict[str, Evidence]:
    """Evidence about the texts, one for each layer of kinds (`text_items`).

    Tables are those of the store: items (item, data), its answers and its known truth. `names`: key of an annotator ->
    shown name; answers without an annotator are those of one. Raises BadInput where an item has no text, or an answer
    no spans.
    """
    keys, data = items.column("item").to_pylist(), items.column("data").to_pylist()
    texts = {key: _text(key, json.loads(one), question) for key, one in zip(keys, data, strict=True)}
    rows = answers.to_pylist()
    given = [
        Answer(
            row["item"],
            names.get(row["annotator"], row["annotator"]) or ANONYMOUS,
            _spans(row),
            *(float("nan") if row[name] is None else row[name] for name in ("time", "duration")),
        )
        for row in rows
    ]
    known = {row["item"]: _spans(row) for row in gold.to_pylist()}
    return of_texts(SpanLabels.from_answers(texts, given, known, question.classes), question)


def _spans(row: Mapping[str, str]) -> list[tuple[int, int, str]]:
    try:
        return spans_in(row["label"])
    except (TypeError, ValueError):
        raise BadInput(
            f"item {row['item']}: a stored answer is {row['label']!r}, which is no list of spans; was another control "
            "of this name there before? `hitl pull --full` reads all answers anew"
        ) from None


def _text(key: str, data: Mapping[str, object], question: Question) -> str:
    text = data.get(question.field)
    if not isinstance(text, str):
        raise BadInput(
            f"item {key}: the field {question.field!r} holds no text, of which {question.name!r} asks; mend its data "
            "on the platform, then `hitl pull`"
        )
    return text
