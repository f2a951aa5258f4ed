"""Draw spans in texts and recordings: those of the consensus, and those of each annotator, on a line each.

A line of a text is the text, cut into segments. One line is enough, because the spans of a layer do not overlap. A line
of a recording is a row of bars over a time axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from hitl.annotations import Name, Names
from hitl.formatting import percent
from hitl.kinds.spans import SpanParts
from hitl.parts import Place, number_of
from hitl.report.contents import PartsSection, QuestionPage
from hitl.report.parts.pictures import least_certain
from hitl.report.plots import ticks

TEXTS = 20
"""Maximum number of texts or recordings shown, least certain first."""

LONGEST = 2_000
"""Maximum characters shown of a text."""

SHORTEST = 1e-300
"""Minimum length of an axis, because dividing by a shorter one gives infinity."""

Marked = tuple[Place, Place, int, str]
"""A span: start, end, index of its label among the classes of the layer, and a note."""


@dataclass(frozen=True)
class MarkedItem:
    """An answered item: its number (`row`), confidence in [0, 1], and spans of the consensus and each annotator."""

    row: int
    item: Name
    confidence: float
    consensus: list[Marked]
    annotators: list[tuple[Name, list[Marked]]]


def _marked_items(page: QuestionPage, parts: SpanParts, as_written: bool, note: str) -> list[MarkedItem]:
    """Return the TEXTS least certain answered items.

    `as_written`: True for recordings, whose times are shown as annotators wrote them. `note`: word for a consensus span
    in its note, "2 of 3 marked <note>".
    """
    labels, classes, items = parts.labels, parts.matched.classes, page.evidence.annotations.items
    codes = {labels.classes.index(kind): number for number, kind in enumerate(classes)}
    first = least_certain(page, np.flatnonzero(labels.answers_n > 0), TEXTS)
    consensus: dict[Name, list[Marked]] = {}
    for one in page.consensus.parts:
        if one.found:
            words = f"{percent(one.probability, 0)} sure; {one.marked} of {one.answers} marked {note}"
            span = one.place["start"], one.place["end"], classes.index(one.label), words
            consensus.setdefault(one.item, []).append(span)
    answers = np.flatnonzero(np.isin(labels.answer_a2[:, 0], first))
    own = labels.span_s4[np.isin(labels.span_s4[:, 0], answers) & np.isin(labels.span_s4[:, 3], list(codes))]
    starts, ends = (
        (labels.written(own[:, 1]), labels.written(own[:, 2])) if as_written else own[:, 1:3].astype(int).T.tolist()
    )
    spans_a: dict[int, list[Marked]] = {answer: [] for answer in answers.tolist()}
    for (answer, _, _, kind), start, end in zip(own.tolist(), starts, ends, strict=True):
        spans_a[int(answer)].append((start, end, codes[int(kind)], ""))
    people: dict[int, list[tuple[Name, list[Marked]]]] = {row: [] for row in first}
    for answer, (row, who) in zip(answers.tolist(), labels.answer_a2[answers].tolist(), strict=True):
        people[row].append((labels.annotators[who], spans_a[answer]))
    return [
        MarkedItem(row, items[row], float(page.consensus.confidence[row]), consensus.get(items[row], []), people[row])
        for row in first
    ]


@dataclass(frozen=True)
class Segment:
    """Segment of a text. If it is marked, it has `kind` (index of its label), `label` and perhaps a note."""

    text: str
    kind: int | None = None
    label: str = ""
    note: str = ""


@dataclass(frozen=True)
class MarkedText:
    """A text: confidence in [0, 1], lines of the consensus and each annotator. `cut`: True if its end is not shown."""

    item: Name
    confidence: float
    consensus: tuple[Segment, ...]
    annotators: tuple[tuple[Name, tuple[Segment, ...]], ...]
    cut: bool


def marked_texts(page: QuestionPage) -> PartsSection:
    """Draw the texts that annotators answered."""
    parts = page.evidence.parts
    assert isinstance(parts, SpanParts)
    assert parts.labels.texts is not None
    classes, drawn = parts.matched.classes, []
    for one in _marked_items(page, parts, as_written=False, note="exactly this"):
        text = parts.labels.texts[one.row]
        lines = tuple((who, _segments(text, spans, classes)) for who, spans in one.annotators)
        line = _segments(text, one.consensus, classes)
        drawn.append(MarkedText(one.item, one.confidence, line, lines, len(text) > LONGEST))
    return PartsSection("parts/texts.html.j2", drawn)


def _segments(text: str, spans: Iterable[Marked], classes: Names) -> tuple[Segment, ...]:
    """Cut the first LONGEST characters of a text into segments, at the borders of its spans."""
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


@dataclass(frozen=True)
class Bar:
    """A span of time: start and length in percent of the axis, index of its label, and a note."""

    start: float
    length: float
    kind: int
    note: str


@dataclass(frozen=True)
class MarkedRecording:
    """A recording: confidence in [0, 1], bars of the consensus and each annotator, and axis ticks (percent, text)."""

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
    parts = page.evidence.parts
    assert isinstance(parts, SpanParts)
    classes = parts.matched.classes
    drawn = [_recording(one, classes) for one in _marked_items(page, parts, as_written=True, note="it")]
    return PartsSection("parts/recordings.html.j2", drawn, [(str(kind), "") for kind in classes])


def _recording(one: MarkedItem, classes: Names) -> MarkedRecording:
    # All lines of a recording share one axis.
    spans = [*one.consensus, *(span for _, own in one.annotators for span in own)]
    sides = [side for span in spans for side in span[:2]]
    numbers = [number_of(side) for side in sides]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    low = 0.0 if 0 <= low < high / 2 else low  # start the axis at 0 if the first border is near
    high = high if high - low > SHORTEST else low + 1
    form = "%Y-%m-%d" if high - low > 3 * 86_400 else "%H:%M" if high - low > 600 else "%H:%M:%S"
    are_times = any(isinstance(side, str) for side in sides)

    def bars(own: Sequence[Marked]) -> tuple[Bar, ...]:
        scale, drawn = 100 / (high - low), []
        for start, end, kind, note in sorted(own, key=lambda span: number_of(span[0])):
            begin, length = (number_of(start) - low) * scale, (number_of(end) - number_of(start)) * scale
            drawn.append(Bar(begin, length, kind, f"{classes[kind]}, {start} to {end}{f'; {note}' if note else ''}"))
        return tuple(drawn)

    def word(tick: float) -> str:
        return datetime.fromtimestamp(tick, UTC).strftime(form) if are_times else f"{tick:,.6g}"

    axis = tuple((100 * (tick - low) / (high - low), word(tick)) for tick in ticks(low, high).tolist())
    people = tuple((who, bars(own)) for who, own in one.annotators)
    return MarkedRecording(one.item, one.confidence, bars(one.consensus), people, axis)
