"""Texts and recordings with marked parts: the consensus spans and those of every annotator.

A line of a text is the text cut into segments: (text, label or None, note). Spans of one layer do not overlap, so every
line of a layer is one row of segments. A line of a recording is a row of bars over a time axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from hitl.annotations import Name
from hitl.kinds.span_labels import SpanLabels
from hitl.kinds.spans import SpanParts
from hitl.parts import Place, number_of
from hitl.report.contents import PartsSection, QuestionPage
from hitl.report.svg import ticks

TEXTS = 20
"""Texts shown, least certain first."""

LONGEST = 2_000
"""Characters shown of a text."""


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


def marked_texts(page: QuestionPage) -> PartsSection:
    """Draw the texts that annotators answered."""
    parts = page.evidence.parts
    assert isinstance(parts, SpanParts)
    assert parts.labels.texts is not None
    labels, items, texts = parts.labels, page.evidence.annotations.items, parts.labels.texts
    kinds = {labels.classes.index(kind): number for number, kind in enumerate(parts.matched.classes)}
    answered = np.flatnonzero(labels.answers_n > 0)
    first = answered[np.argsort(page.consensus.confidence[answered], kind="stable")][:TEXTS]
    found: dict[Name, list[tuple[int, int, int, str]]] = {}
    for span in page.consensus.parts:
        if span.found:
            note = f"{span.probability:.0%} sure; {span.marked} of {span.answers} marked exactly this"
            place = span.place["start"], span.place["end"]
            found.setdefault(span.item, []).append((*place, kinds[labels.classes.index(span.label)], note))
    spans_a: dict[int, list[tuple[int, int, int, str]]] = {}
    for answer, start, end, kind in labels.span_s4.tolist():
        if kind in kinds:
            spans_a.setdefault(answer, []).append((start, end, kinds[kind], ""))
    answers_d = _answers(labels)
    names = [str(kind) for kind in parts.matched.classes]
    drawn = [
        MarkedText(
            items[d],
            float(page.consensus.confidence[d]),
            _segments(texts[d], found.get(items[d], ()), names),
            tuple(
                (labels.annotators[labels.answer_a2[a, 1]], _segments(texts[d], spans_a.get(a, ()), names))
                for a in answers_d[d]
            ),
            len(texts[d]) > LONGEST,
        )
        for d in first.tolist()
    ]
    return PartsSection("parts/texts.html.j2", drawn)


def _answers(labels: SpanLabels) -> dict[int, list[int]]:
    """Return document -> its answers."""
    answers_d: dict[int, list[int]] = {}
    for answer, (document, _) in enumerate(labels.answer_a2.tolist()):
        answers_d.setdefault(document, []).append(answer)
    return answers_d


def _segments(text: str, spans: Iterable[tuple[int, int, int, str]], kinds: Sequence[str]) -> tuple[Segment, ...]:
    """Cut the text (only its beginning if it is long) at its spans: start, end, label index, note."""
    text, place, pieces = text[:LONGEST], 0, []
    for start, end, kind, note in sorted(spans):
        if start >= len(text):
            break
        pieces += [Segment(text[place:start])] if place < start else []
        pieces.append(Segment(text[start:end], kind, kinds[kind], note))
        place = end
    if place < len(text):
        pieces.append(Segment(text[place:]))
    return tuple(pieces)


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
    parts = page.evidence.parts
    assert isinstance(parts, SpanParts)
    answered = np.flatnonzero(parts.labels.answers_n > 0)
    first = answered[np.argsort(page.consensus.confidence[answered], kind="stable")][:TEXTS]
    answers_d = _answers(parts.labels)
    drawn = [_recording(page, parts, d, answers_d[d]) for d in first.tolist()]
    return PartsSection("parts/recordings.html.j2", drawn, [(str(kind), "") for kind in parts.matched.classes])


def _recording(page: QuestionPage, parts: SpanParts, d: int, answers: Sequence[int]) -> MarkedRecording:
    labels, item = parts.labels, page.evidence.annotations.items[d]
    kinds = {kind: number for number, kind in enumerate(parts.matched.classes)}
    found = [
        (
            one.place["start"],
            one.place["end"],
            kinds[one.label],
            f"{one.probability:.0%} sure; {one.marked} of {one.answers} marked it",
        )
        for one in page.consensus.parts
        if one.found and one.item == item
    ]
    marked: dict[int, list[tuple[Place, Place, int, str]]] = {answer: [] for answer in answers}
    own = labels.span_s4[np.isin(labels.span_s4[:, 0], answers)]
    rows = zip(own.tolist(), labels.written(own[:, 1]), labels.written(own[:, 2]), strict=True)
    for (answer, _, _, kind), start, end in rows:
        if labels.classes[kind] in kinds:
            marked[answer].append((start, end, kinds[labels.classes[kind]], ""))
    # All layers of a recording share one axis.
    sides = [*labels.written(own[:, 1]), *labels.written(own[:, 2]), *(side for one in found for side in one[:2])]
    low, high = _ends([number_of(side) for side in sides])
    names = [str(kind) for kind in parts.matched.classes]
    return MarkedRecording(
        item,
        float(page.consensus.confidence[d]),
        _bars(found, low, high, names),
        tuple((labels.annotators[labels.answer_a2[a, 1]], _bars(marked[a], low, high, names)) for a in answers),
        _ticks(low, high, any(isinstance(side, str) for side in sides)),
    )


SHORTEST = 1e-300
"""Shortest axis, because dividing by a shorter one gives infinity."""


def _ends(places: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis. It starts at 0 if the first place is close to it."""
    low, high = min(places, default=0.0), max(places, default=1.0)
    low = 0.0 if 0 <= low < high / 2 else low
    return low, high if high - low > SHORTEST else low + 1


def _bars(
    spans: Iterable[tuple[Place, Place, int, str]], low: float, high: float, kinds: Sequence[str]
) -> tuple[Bar, ...]:
    """Return bars for spans of start, end, label index and note, in order of their start."""
    scale, bars = 100 / (high - low), []
    for start, end, kind, note in sorted(spans, key=lambda one: number_of(one[0])):
        begin, length = (number_of(start) - low) * scale, (number_of(end) - number_of(start)) * scale
        bars.append(Bar(begin, length, kind, f"{kinds[kind]}, {start} to {end}" + (f"; {note}" if note else "")))
    return tuple(bars)


def _ticks(low: float, high: float, are_times: bool) -> tuple[tuple[float, str], ...]:
    form = "%Y-%m-%d" if high - low > 3 * 86_400 else "%H:%M" if high - low > 600 else "%H:%M:%S"

    def word(tick: float) -> str:
        return datetime.fromtimestamp(tick, UTC).strftime(form) if are_times else f"{tick:,.6g}"

    return tuple((100 * (tick - low) / (high - low), word(tick)) for tick in ticks(low, high).tolist())
