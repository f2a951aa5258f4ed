"""Spans of texts and of time: an answer is all spans that one annotator marked in one document.

By default, spans are matched across annotators, and each annotator has their own rates of misses, inventions, confused
classes and misplaced borders. This is as accurate as the best chain of tokens for names in newspapers, and far more
accurate if spans are long or their borders are disputed (docs/benchmarks/spans.txt). The reason is that an annotator
who overlooks a span is wrong about all of its tokens at once. A chain counts these as several independent errors.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from hitl.annotations import Name
from hitl.consensus import Consensus
from hitl.errors import BadTable
from hitl.evidence import Evidence
from hitl.formatting import listed, short
from hitl.kinds.kind import Marked, PartsKind, Place, StoredAnswers, kind_of
from hitl.kinds.matching import Matched, judge_items, without_clusters
from hitl.kinds.span_fit import fit_layer
from hitl.kinds.span_labels import Answer, Span, SpanLabels, trimmed
from hitl.kinds.span_tables import answer_table, time_span
from hitl.models.combiner import Combiner
from hitl.models.registry import combiner
from hitl.parts import Part, number_of, spans_as_label, spans_in
from hitl.platform import Question
from hitl.tables.columns import require_columns


@dataclass(frozen=True, eq=False)
class SpanParts:
    """Spans of one layer of classes, with documents as items. `layer` is the number of the layer."""

    question: Question
    labels: SpanLabels
    layer: int

    @property
    def matched(self) -> Matched:
        """Matched spans of this layer."""
        return self.labels.matched[self.layer]


def layer_evidence(labels: SpanLabels, question: Question) -> dict[str, Evidence]:
    """Build the evidence about documents: layer -> evidence. The first layer has the name of the question."""
    evidence: dict[str, Evidence] = {}
    for number, matched in enumerate(labels.matched):
        name = f"{question.name} ({listed(matched.classes)})" if evidence else question.name
        evidence[name] = matched.evidence(SpanParts(question, labels, number))
    return evidence


class _Spans(PartsKind):
    noun: ClassVar[str] = "spans"
    item_column: ClassVar[str] = "document"
    columns: ClassVar[Mapping[str, pa.DataType | None]] = dict.fromkeys(
        ("start", "end", "label", "confidence", "marked", "answers")
    )
    asks_about: ClassVar[str]

    def read(self, answer: str) -> list[Marked]:
        marks: list[Marked] = [{"label": label, "start": start, "end": end} for start, end, label in spans_in(answer)]
        for mark in marks:
            number_of(mark["start"]), number_of(mark["end"])
        return marks

    def write(self, parts: Iterable[Marked]) -> str:
        return spans_as_label([(part["start"], part["end"], str(part["label"])) for part in parts])

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        def spans(item: Name, answer: str) -> list[Span]:
            return [(mark["start"], mark["end"], mark["label"]) for mark in self.read_stored(item, answer)]

        answers = [Answer(item, who, spans(item, label), *times) for item, who, label, *times in stored.by_annotator()]
        truth = {item: spans(item, label) for item, label in stored.known().items()}
        return layer_evidence(self._labels(stored, answers, truth), stored.question)

    @abstractmethod
    def _labels(self, stored: StoredAnswers, answers: list[Answer], truth: dict[Name, list[Span]]) -> SpanLabels: ...

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        """Fit the layer. The probabilities of a document are those of the cluster that represents it."""
        parts = evidence.parts
        assert isinstance(parts, SpanParts)
        fit = fit_layer(parts.labels, parts.layer, method)
        empty_nj = without_clusters(fit.nothing_n, fit.annotators)
        judged = judge_items(evidence, parts.matched, fit.consensus, fit.annotators, fit.q_cj, empty_nj)
        return replace(judged, parts=fit.parts)

    def ordered(self, parts: list[Part]) -> list[Part]:
        return sorted(parts, key=lambda part: list(map(number_of, part.at("start", "end"))))

    def answers(self, evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
        assert isinstance(evidence.parts, SpanParts)
        table = answer_table(evidence.parts.labels)
        own = [names.get(str(key), str(key)) for key in table.column("document").to_pylist()]
        return table.set_column(0, "document", pa.array(own, pa.string()))

    def truth(self, table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
        """Read the columns item, start, end and label. An item whose rows are empty has no span."""
        require_columns(table, ["start", "end"], where, f"{question.name!r} asks about {self.asks_about}")
        spans: dict[str, list[Any]] = {}
        columns = (table.column(name).to_pylist() for name in ("item", "start", "end", "label"))
        for row, (item, *cells) in enumerate(zip(*columns, strict=True)):
            try:
                span = self._known_span(*(None if cell == "" else cell for cell in cells))
            except ValueError as error:
                raise BadTable(f"{place_of(row)}: {error}") from None
            if span is not None and span[2] not in question.classes:
                raise BadTable(f"{place_of(row)}: label {span[2]!r} is not one of {listed(question.classes)}")
            spans.setdefault(item, []).extend([] if span is None else [span])
        return {item: spans_as_label(own) for item, own in spans.items()}

    @abstractmethod
    def _known_span(self, start: Any, end: Any, label: Any) -> Span | None: ...

    def changed(self, evidence: Evidence, results: Sequence[Consensus]) -> set[Name]:
        """Return documents that have marks now and had no part at the fit."""
        assert isinstance(evidence.parts, SpanParts)
        labels = evidence.parts.labels
        return {labels.items[n] for n in labels.item_s.tolist()} - {
            one.item for result in results for one in result.parts
        }


class TextSpans(_Spans):
    """Spans of a text, in characters."""

    columns: ClassVar[Mapping[str, pa.DataType | None]] = {**_Spans.columns, "text": pa.string()}
    asks_about: ClassVar[str] = "parts of texts"

    def _labels(self, stored: StoredAnswers, answers: list[Answer], truth: dict[Name, list[Span]]) -> SpanLabels:
        items, field, texts = stored.items(), stored.question.field, {}
        for key, data in zip(items.column("item").to_pylist(), items.column("data").to_pylist(), strict=True):
            text = json.loads(data).get(field)
            texts[key] = text if isinstance(text, str) else ""  # its answers are skips (`why_unusable`)
        return SpanLabels.from_texts(texts, answers, truth, stored.question.classes)

    def why_unusable(self, answer: str, data: object) -> str | None:
        if not isinstance(data, str):
            return f"the task has no text: {short(data)}"
        for start, end, label in spans_in(answer):
            if end > len(data):
                return f"{label!r} from {start} to {end} reaches beyond the text, which has {len(data)} characters"
            if trimmed(data, start, end) is None:
                return f"{label!r} from {start} to {end} marks nothing but white space"
        return None

    def _known_span(self, start: Any, end: Any, label: Any) -> Span | None:
        if start is None and end is None and label is None:
            return None
        if not (str(start).isdecimal() and str(end).isdecimal() and int(start) < int(end)):
            raise ValueError(f"{start!r} to {end!r} is no part of a text; expected 0 <= start < end")
        return int(start), int(end), label

    def changed(self, evidence: Evidence, results: Sequence[Consensus]) -> set[Name]:
        """Add documents in which a part that was marked at the fit is no longer marked. New marks are no change."""
        assert isinstance(evidence.parts, SpanParts)
        labels = evidence.parts.labels
        rows = zip(labels.item_s.tolist(), labels.span_s4.tolist(), strict=True)
        marked = {(labels.items[n], start, end, labels.classes[code]) for n, (_, start, end, code) in rows}
        parts = [part for result in results for part in result.parts if part.marked]
        judged = {(part.item, *part.at("start", "end"), part.label) for part in parts}
        return super().changed(evidence, results) | {item for item, *_ in judged - marked}


class TimeSpans(_Spans):
    """Spans of time in a recording: numbers (seconds, frames, ...), or times in ISO 8601."""

    noun: ClassVar[str] = "stretches of time"
    asks_about: ClassVar[str] = noun

    def _labels(self, stored: StoredAnswers, answers: list[Answer], truth: dict[Name, list[Span]]) -> SpanLabels:
        items = stored.items().column("item").to_pylist()
        return SpanLabels.from_recordings(items, answers, truth, stored.question.classes)

    def why_unusable(self, answer: str, data: object) -> str | None:
        for start, end, label in spans_in(answer):
            if not number_of(start) < number_of(end):
                return f"{label!r} from {start} to {end} is no stretch of time"
        return None

    def _known_span(self, start: Any, end: Any, label: Any) -> Span | None:
        return time_span(start, end, label)


# -- spans of files ----------------------------------------------------------------------------------------


def combine_spans(labels: SpanLabels, method: Combiner | None = None) -> dict[str, Consensus]:
    """Return layer -> consensus, with a method for items or sequences; by default the default combiner.

    `Consensus.parts` are the spans found, and all others that an annotator marked. Raise BadEvidence as
    `SpanLabels.layers` does.
    """
    kind = "time_spans" if labels.texts is None else "spans"
    question = Question("spans", labels.classes, labels.classes, kind)
    layers = layer_evidence(labels, question)
    chosen = combiner("default") if method is None else method
    return {name: kind_of(question).consensus(evidence, chosen) for name, evidence in layers.items()}


def span_table(labels: SpanLabels, results: Iterable[Consensus]) -> pa.Table:
    """Return document, start, end, label, confidence, marked, answers and, in texts, text of each span found."""
    kind = TimeSpans() if labels.texts is None else TextSpans()
    spans: dict[Name, list[Part]] = {document: [] for document in labels.items}
    for part in (part for result in results for part in result.parts if part.found):
        spans[part.item].append(part)
    rows = ((document, kind.ordered(own)) for document, own in spans.items() if own)
    return kind.part_table(rows, pa.array(labels.items).type)
