"""Texts whose parts are marked: the spans of the consensus in each, and what every annotator marked, contested first.

A line is a text cut into segments: (text, kind or None, words about it). Spans of one layer do not overlap, so that
every line of a layer is one row of segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hitl.annotations import Name
from hitl.report.contents import QuestionPage
from hitl.texts.text_items import TextParts

TEXTS = 20
"""Texts shown, the least sure first."""

LONGEST = 2_000
"""Characters of a text that are shown."""


@dataclass(frozen=True)
class Segment:
    """A piece of a text; `kind` (its place among the kinds) and `label` where it is marked, and words about it."""

    text: str
    kind: int | None = None
    label: str = ""
    note: str = ""


@dataclass(frozen=True)
class MarkedText:
    """A text with its consensus, the line of each annotator, and how sure it is, in [0, 1]."""

    item: Name
    confidence: float
    consensus: tuple[Segment, ...]
    annotators: tuple[tuple[Name, tuple[Segment, ...]], ...]
    cut: bool


def marked_texts(page: QuestionPage) -> list[MarkedText]:
    """The texts that annotators answered, the least sure first; none where items are judged as wholes."""
    parts = page.evidence.parts
    if not isinstance(parts, TextParts):
        return []
    labels, items = parts.labels, page.evidence.annotations.items
    kinds = {labels.kinds.index(kind): number for number, kind in enumerate(parts.matched.kinds)}
    answered = np.flatnonzero(labels.answers_d > 0)
    first = answered[np.argsort(page.consensus.confidence[answered], kind="stable")][:TEXTS]
    found: dict[Name, list[tuple[int, int, int, str]]] = {}
    for span in page.consensus.spans or ():
        if span.found:
            note = f"{span.probability:.0%} sure; {span.marked} of {span.answers} marked exactly this"
            found.setdefault(span.document, []).append(
                (span.start, span.end, kinds[labels.kinds.index(span.kind)], note)
            )
    spans_a: dict[int, list[tuple[int, int, int, str]]] = {}
    for answer, start, end, kind in labels.span_s4.tolist():
        if kind in kinds:
            spans_a.setdefault(answer, []).append((start, end, kinds[kind], ""))
    answers_d: dict[int, list[int]] = {}
    for answer, (document, _) in enumerate(labels.answer_a2.tolist()):
        answers_d.setdefault(document, []).append(answer)
    names = [str(kind) for kind in parts.matched.kinds]
    return [
        MarkedText(
            items[d],
            float(page.consensus.confidence[d]),
            _segments(labels.texts[d], found.get(items[d], ()), names),
            tuple(
                (labels.annotators[labels.answer_a2[a, 1]], _segments(labels.texts[d], spans_a.get(a, ()), names))
                for a in answers_d[d]
            ),
            len(labels.texts[d]) > LONGEST,
        )
        for d in first.tolist()
    ]


def _segments(text: str, spans: Iterable[tuple[int, int, int, str]], kinds: Sequence[str]) -> tuple[Segment, ...]:
    """The text (its beginning, where it is long) cut at its spans: start, end, kind, words."""
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
