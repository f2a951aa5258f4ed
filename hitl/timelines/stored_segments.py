"""A project's question about stretches of recordings: stored answers -> evidence about the recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hitl.errors import BadInput
from hitl.parts import spans_in
from hitl.tables.encoding import ANONYMOUS
from hitl.texts.marked_labels import number_of
from hitl.texts.text_items import of_texts
from hitl.timelines.timeline_labels import Answer, Segment, TimelineLabels

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.evidence import Evidence
    from hitl.platform import Question


def evidence_of(
    question: Question, items: pa.Table, answers: pa.Table, gold: pa.Table, names: Mapping[str, str]
) -> dict[str, Evidence]:
    """Evidence about the recordings, one for each layer of kinds (`hitl.texts.text_items`).

    Tables are those of the store: items (item, data), its answers and its known truth. `names`: key of an annotator ->
    shown name; answers without an annotator are those of one. Raises BadInput where an answer has no stretches.
    """
    given = [
        Answer(
            row["item"],
            names.get(row["annotator"], row["annotator"]) or ANONYMOUS,
            _segments(row),
            *(float("nan") if row[name] is None else row[name] for name in ("time", "duration")),
        )
        for row in answers.to_pylist()
    ]
    known = {row["item"]: _segments(row) for row in gold.to_pylist()}
    labels = TimelineLabels.from_answers(items.column("item").to_pylist(), given, known, question.classes)
    return of_texts(labels, question)


def _segments(row: Mapping[str, str]) -> list[Segment]:
    try:
        found: list[Segment] = [*spans_in(row["label"])]
        for start, end, _ in found:
            number_of(start), number_of(end)
    except (TypeError, ValueError):
        raise BadInput(
            f"item {row['item']}: a stored answer is {row['label']!r}, which is no list of stretches of time; was "
            "another control of this name there before? `hitl pull --full` reads all answers anew"
        ) from None
    return found
