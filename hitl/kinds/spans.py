"""Spans of a text, and of time: an answer is all that one annotator marked in one item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from hitl.errors import BadTable
from hitl.formatting import listed
from hitl.kinds.kind import Marked, PartsKind, Place, StoredAnswers
from hitl.models.sequences.span_consensus import of_texts
from hitl.parts import spans_as_label, spans_in
from hitl.tables.columns import require_columns
from hitl.texts import stored_answers
from hitl.texts.marked_labels import number_of
from hitl.texts.span_tables import answer_table
from hitl.texts.text_items import TextParts
from hitl.timelines import stored_segments
from hitl.timelines.segment_rows import segment_in

if TYPE_CHECKING:
    from hitl.annotations import Name
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.models.combiner import Combiner
    from hitl.parts import Part
    from hitl.platform import Question


class _Spans(PartsKind):
    noun: ClassVar[str] = "spans"
    item_column: ClassVar[str] = "document"
    columns: ClassVar[Mapping[str, pa.DataType | None]] = dict.fromkeys(
        ("start", "end", "label", "confidence", "marked", "answers")
    )

    def read(self, answer: str) -> list[Marked]:
        return [{"label": label, "start": start, "end": end} for start, end, label in spans_in(answer)]

    def write(self, parts: Iterable[Marked]) -> str:
        return spans_as_label([(part["start"], part["end"], str(part["label"])) for part in parts])

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        return of_texts(evidence, method)

    def ordered(self, parts: list[Part]) -> list[Part]:
        return sorted(parts, key=lambda part: (number_of(part.place["start"]), number_of(part.place["end"])))

    def answers(self, evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
        """Return one row per span of each answer, as `hitl combine` reads them."""
        assert isinstance(evidence.parts, TextParts)
        table = answer_table(evidence.parts.labels)
        own = [names.get(str(key), str(key)) for key in table.column("document").to_pylist()]
        return table.set_column(0, "document", pa.array(own, pa.string()))

    def truth(self, table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
        """Read the columns item, start, end and label; a row without a span says that there is none."""
        require_columns(table, ["start", "end"], where, f"{question.name!r} asks about {self.marked}")
        spans: dict[str, list[Any]] = {}
        columns = (table.column(name).to_pylist() for name in ("item", "start", "end", "label"))
        for row, (item, *cells) in enumerate(zip(*columns, strict=True)):
            try:
                span = self.span_in(*(None if cell == "" else cell for cell in cells))
            except ValueError as error:
                raise BadTable(f"{place_of(row)}: {error}") from None
            if span is not None and span[2] not in question.classes:
                raise BadTable(f"{place_of(row)}: label {span[2]!r} is not one of {listed(question.classes)}")
            spans.setdefault(item, []).extend([] if span is None else [span])
        return {item: spans_as_label(own) for item, own in spans.items()}

    marked: ClassVar[str]

    def span_in(self, start: Any, end: Any, label: Any) -> tuple[Any, Any, Any] | None:
        raise NotImplementedError

    def _first_marked(self, evidence: Evidence, parts: Sequence[Part]) -> set[Name]:
        """Return the items that are marked and had no candidate when they were judged."""
        assert isinstance(evidence.parts, TextParts)
        labels = evidence.parts.labels
        items = evidence.annotations.items
        marked = {items[d] for d in labels.answer_a2[labels.span_s4[:, 0], 0].tolist()}
        return marked - {part.item for part in parts}


class TextSpans(_Spans):
    """Spans of a text, in characters."""

    columns: ClassVar[Mapping[str, pa.DataType | None]] = {**_Spans.columns, "text": pa.string()}
    marked: ClassVar[str] = "parts of texts"

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        tables = stored.items(), stored.answers(), stored.gold()
        return stored_answers.evidence_of(stored.question, *tables, stored.names)

    def left_out(self, answer: str, data: object) -> list[str]:
        return [
            f"{label!r} from {start} to {end} reaches beyond the text, which has {len(data)} characters; this span is "
            "left out"
            for start, end, label in spans_in(answer)
            if isinstance(data, str) and end > len(data)
        ]

    def span_in(self, start: Any, end: Any, label: Any) -> tuple[int, int, str] | None:
        if start is None and end is None and label is None:
            return None
        if not (str(start).isdecimal() and str(end).isdecimal() and int(start) < int(end)):
            raise ValueError(f"{start!r} to {end!r} is no part of a text; expected 0 <= start < end")
        return int(start), int(end), label

    def changed(self, evidence: Evidence, results: Sequence[Consensus]) -> set[Name]:
        """Return items whose annotators mark another part than was judged, or the first; more marks are no change."""
        assert isinstance(evidence.parts, TextParts)
        parts = [part for result in results for part in result.parts]
        labels, items = evidence.parts.labels, evidence.annotations.items
        document_s = labels.answer_a2[labels.span_s4[:, 0], 0].tolist()
        rows = zip(document_s, labels.span_s4.tolist(), strict=True)
        marked = {(items[d], start, end, labels.kinds[kind]) for d, (_, start, end, kind) in rows}
        judged = {(part.item, part.place["start"], part.place["end"], part.label) for part in parts if part.marked}
        return self._first_marked(evidence, parts) | {item for item, *_ in judged - marked}


class TimeSpans(_Spans):
    """Spans of time in a recording: numbers (seconds, frames, ...), or times in ISO 8601."""

    marked: ClassVar[str] = "stretches of time"

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        tables = stored.items(), stored.answers(), stored.gold()
        return stored_segments.evidence_of(stored.question, *tables, stored.names)

    def left_out(self, answer: str, data: object) -> list[str]:
        return [
            f"{label!r} from {start} to {end} is no stretch of time; it is left out"
            for start, end, label in spans_in(answer)
            if number_of(start) >= number_of(end)
        ]

    def span_in(self, start: Any, end: Any, label: Any) -> tuple[Any, Any, Any] | None:
        return segment_in(start, end, label)

    def changed(self, evidence: Evidence, results: Sequence[Consensus]) -> set[Name]:
        """Return items that are first marked; stretches found are between those of annotators."""
        return self._first_marked(evidence, [part for result in results for part in result.parts])
