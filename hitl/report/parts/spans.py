"""Texts and recordings with marked parts: the consensus spans and those of every annotator.

A line of a text is the text cut into segments. Spans of one layer do not overlap, so every line of a layer is one row
of segments. A line of a recording is a row of bars over a time axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from hitl.annotations import Name, Names
from hitl.kinds.span_labels import SpanLabels
from hitl.kinds.spans import SpanParts
from hitl.parts import Place, number_of
from hitl.report.contents import PartsSection, QuestionPage
from hitl.report.plots import ticks

TEXTS = 20
"""Texts shown, least certain first."""

LONGEST = 2_000
"""Characters shown of a text."""

SHORTEST = 1e-300
"""Shortest axis, because dividing by a shorter one gives infinity."""

Marked = tuple[Place, Place, int, str]
"""A span: start, end, index of its label among the question's classes, and a note."""


@dataclass(frozen=True)
class Segment:
    """A piece of a text. If it is marked, it has `kind` (index of its label), `label`, and a note."""

    text: str
    kind: int | None = None
    label: str = ""
    note: str = ""


@dataclass(frozen=True)
class MarkedText:
    """A text with its consensus, one line per annotator, and its confidence, in [0, 1]."""

    item: Name
    confidence: float
    consensus: tuple[Segment, ...]
    annotators: tuple[tuple[Name, tuple[Segment, ...]], ...]
    cut: bool


def _answered(page: QuestionPage) -> tuple[SpanParts, list[int]]:
    """Return the parts, and the documents that have answers, least certain first."""
    parts = page.evidence.parts
    assert isinstance(parts, SpanParts)
    answered = np.flatnonzero(parts.labels.answers_n > 0)
    first = answered[np.argsort(page.consensus.confidence[answered], kind="stable")][:TEXTS]
    return parts, first.tolist()


def _answers(labels: SpanLabels) -> dict[int, list[int]]:
    """Return document -> its answers."""
    answers_d: dict[int, list[int]] = {}
    for answer, (document, _) in enumerate(labels.answer_a2.tolist()):
        answers_d.setdefault(document, []).append(answer)
    return answers_d


def _consensus(page: QuestionPage, classes: Names, note: str) -> dict[Name, list[Marked]]:
    """Return item -> the spans of the consensus."""
    spans: dict[Name, list[Marked]] = {}
    for one in page.consensus.parts:
        if one.found:
            words = f"{one.probability:.0%} sure; {one.marked} of {one.answers} marked {note}"
            span = one.place["start"], one.place["end"], classes.index(one.label), words
            spans.setdefault(one.item, []).append(span)
    return spans


def marked_texts(page: QuestionPage) -> PartsSection:
    """Draw the texts that annotators answered."""
    parts, first = _answered(page)
    labels, items, classes = parts.labels, page.evidence.annotations.items, parts.matched.classes
    assert labels.texts is not None
    consensus, spans_a = _consensus(page, classes, "exactly this"), _by_answer(labels, classes)
    answers_d, drawn = _answers(labels), []
    for d in first:
        text, item = labels.texts[d], items[d]
        lines = [
            (labels.annotators[labels.answer_a2[a, 1]], _segments(text, spans_a.get(a, ()), classes))
            for a in answers_d[d]
        ]
        line = _segments(text, consensus.get(item, ()), classes)
        drawn.append(MarkedText(item, float(page.consensus.confidence[d]), line, tuple(lines), len(text) > LONGEST))
    return PartsSection("parts/texts.html.j2", drawn)


def _by_answer(labels: SpanLabels, classes: Names) -> dict[int, list[Marked]]:
    """Return answer -> its spans of these classes, as offsets."""
    kinds = {labels.classes.index(kind): number for number, kind in enumerate(classes)}
    spans_a: dict[int, list[Marked]] = {}
    for answer, start, end, kind in labels.span_s4.tolist():
        if kind in kinds:
            spans_a.setdefault(answer, []).append((start, end, kinds[kind], ""))
    return spans_a


def _segments(text: str, spans: Iterable[Marked], classes: Names) -> tuple[Segment, ...]:
    """Cut the text (only its beginning if it is long) at its spans."""
    text, place, pieces = text[:LONGEST], 0, []
    for start, end, kind, note in sorted((int(start), int(end), kind, note) for start, end, kind, note in spans):
        if start >= len(text):
            break
        pieces += [Segment(text[place:start])] if place < start else []
        pieces.append(Segment(text[start:end], kind, str(classes[kind]), note))
        place = end
    if place < len(text):
        pieces.append(Segment(text[place:]))
    return tuple(pieces)


# -- recordings --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A time span: start and length in percent of the axis, index of its label, and a note."""

    start: float
    length: float
    kind: int
    note: str


@dataclass(frozen=True)
class MarkedRecording:
    """A recording: bars of the consensus and of each annotator, axis ticks (percent, text), and its confidence."""

    item: Name
    confidence: float
    consensus: tuple[Bar, ...]
    annotators: tuple[tuple[Name, tuple[Bar, ...]], ...]
    ticks: tuple[tuple[float, str], ...]

    @property
    def is_marked(self) -> bool:
        """True if there is any bar."""
        return bool(self.consensus) or any(bars for _, bars in self.annotators)


def marked_recordings(page: QuestionPage) -> PartsSection:
    """Draw the recordings that annotators answered."""
    parts, first = _answered(page)
    consensus, answers_d = _consensus(page, parts.matched.classes, "it"), _answers(parts.labels)
    drawn = [_recording(page, parts, d, answers_d[d], consensus) for d in first]
    return PartsSection("parts/recordings.html.j2", drawn, [(str(kind), "") for kind in parts.matched.classes])


def _recording(
    page: QuestionPage, parts: SpanParts, d: int, answers: Sequence[int], consensus: dict[Name, list[Marked]]
) -> MarkedRecording:
    labels, item, classes = parts.labels, page.evidence.annotations.items[d], parts.matched.classes
    spans = consensus.get(item, [])
    marked: dict[int, list[Marked]] = {answer: [] for answer in answers}
    own = labels.span_s4[np.isin(labels.span_s4[:, 0], answers)]
    starts, ends = labels.written(own[:, 1]), labels.written(own[:, 2])
    for (answer, _, _, kind), start, end in zip(own.tolist(), starts, ends, strict=True):
        if labels.classes[kind] in classes:
            marked[answer].append((start, end, classes.index(labels.classes[kind]), ""))
    # All layers of a recording share one axis.
    sides = [*starts, *ends, *(side for span in spans for side in span[:2])]
    numbers = [number_of(side) for side in sides]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    low = 0.0 if 0 <= low < high / 2 else low  # starts at 0 if the first place is close to it
    high = high if high - low > SHORTEST else low + 1
    return MarkedRecording(
        item,
        float(page.consensus.confidence[d]),
        _bars(spans, low, high, classes),
        tuple((labels.annotators[labels.answer_a2[a, 1]], _bars(marked[a], low, high, classes)) for a in answers),
        _ticks(low, high, any(isinstance(side, str) for side in sides)),
    )


def _bars(spans: Iterable[Marked], low: float, high: float, classes: Names) -> tuple[Bar, ...]:
    """Return bars for spans, in order of their start."""
    scale, bars = 100 / (high - low), []
    for start, end, kind, note in sorted(spans, key=lambda span: number_of(span[0])):
        begin, length = (number_of(start) - low) * scale, (number_of(end) - number_of(start)) * scale
        bars.append(Bar(begin, length, kind, f"{classes[kind]}, {start} to {end}" + (f"; {note}" if note else "")))
    return tuple(bars)


def _ticks(low: float, high: float, are_times: bool) -> tuple[tuple[float, str], ...]:
    form = "%Y-%m-%d" if high - low > 3 * 86_400 else "%H:%M" if high - low > 600 else "%H:%M:%S"

    def word(tick: float) -> str:
        return datetime.fromtimestamp(tick, UTC).strftime(form) if are_times else f"{tick:,.6g}"

    return tuple((100 * (tick - low) / (high - low), word(tick)) for tick in ticks(low, high).tolist())
