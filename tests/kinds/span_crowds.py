"""Crowds that mark spans of texts, of many kinds: few words or many, sharp borders or disputed ones, thin or noisy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hitl.kinds.span_labels import Answer, SpanLabels
from hitl.kinds.spans import combine_spans
from hitl.models.combiner import Combiner
from hitl.parts import Part, number_of

Span = tuple[int, int, str]
Right = Mapping[str, set[Span]]


@dataclass(frozen=True)
class SpanCrowd:
    """How texts are made and marked.

    Attributes:
        words: mean words of a span; gap: mean words between spans; length: words of a text; kinds: how many.
        annotators: how many; answers: how many of them answer each text.
        missed, mixed_up, shifted: chance that a span is overlooked, has another kind, and that a border is one word
            off (and one more with the same chance, and so on); invented: spans that are none, for each right one.
        spread: least and largest factor by which an annotator makes each of these errors; every error has its own.
        hard: chance that a span of the first kind is overlooked, if it is more than `missed`.
        outward: borders are only moved outward. expert: the first annotator makes a tenth of all errors.
    """

    words: float = 2.0
    gap: float = 12
    length: int = 60
    kinds: int = 3
    annotators: int = 12
    answers: int = 4
    missed: float = 0.15
    invented: float = 0.1
    mixed_up: float = 0.1
    shifted: float = 0.15
    spread: tuple[float, float] = (0.2, 1.8)
    hard: float = 0.0
    outward: bool = False
    expert: bool = False
    texts: int = 300

    def draw(self, seed: int) -> tuple[SpanLabels, Right]:
        """What the crowd marked, and the right spans of each text, in characters: every word is one letter long."""
        rng = np.random.default_rng(seed)
        usual = np.array([self.missed, self.invented, self.mixed_up, self.shifted])
        error_k4 = usual * rng.uniform(*self.spread, (self.annotators, 4))
        if self.expert:
            error_k4[0] = usual / 10
        right: dict[str, list[Span]] = {}
        answers = []
        for number in range(self.texts):
            name, spans = f"t{number}", self._text(rng)
            right[name] = spans
            for k in rng.permutation(self.annotators)[: self.answers].tolist():
                marked = self._answer(rng, spans, *error_k4[k].tolist())
                answers.append(Answer(name, f"ann-{k}", [in_characters(span) for span in marked]))
        texts = dict.fromkeys(right, " ".join(["w"] * self.length))
        labels = SpanLabels.from_texts(texts, answers, classes=self._names)
        return labels, {name: {in_characters(span) for span in spans} for name, spans in right.items()}

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(f"kind-{number}" for number in range(self.kinds))

    def _text(self, rng: np.random.Generator) -> list[Span]:
        spans: list[Span] = []
        place = int(rng.exponential(self.gap))
        while (end := place + 1 + int(rng.poisson(self.words - 1))) < self.length:
            spans.append((place, end, str(rng.choice(self._names))))
            place = end + int(rng.exponential(self.gap))
        return spans

    def _answer(
        self, rng: np.random.Generator, spans: list[Span], missed: float, invented: float, mixed_up: float, off: float
    ) -> list[Span]:
        found = []
        for start, end, kind in spans:
            if rng.random() >= (max(missed, self.hard) if kind == self._names[0] else missed):
                kind = str(rng.choice(self._names)) if rng.random() < mixed_up else kind
                found.append((self._moved(rng, start, off, -1), self._moved(rng, end, off, 1), kind))
        for _ in range(rng.poisson(invented * max(len(spans), 1))):
            start = int(rng.integers(self.length))
            found.append((start, start + 1 + int(rng.poisson(self.words - 1)), str(rng.choice(self._names))))
        kept: list[Span] = []
        for start, end, kind in sorted((max(start, 0), min(end, self.length), kind) for start, end, kind in found):
            if start < end and (not kept or kept[-1][1] <= start):
                kept.append((start, end, kind))
        return kept

    def _moved(self, rng: np.random.Generator, place: int, off: float, outward: int) -> int:
        while rng.random() < off:
            place += outward if self.outward else int(rng.choice([-1, 1]))
        return place


CROWDS: Mapping[str, SpanCrowd] = {
    "misses, eight of twenty": SpanCrowd(annotators=20, answers=8, missed=0.5),
    "inventions": SpanCrowd(invented=1.0),
    "borders moved outward": SpanCrowd(words=3, answers=3, shifted=0.4, outward=True),
    "long, disputed borders": SpanCrowd(words=15, gap=15, shifted=0.45),
    "six classes mixed up": SpanCrowd(kinds=6, mixed_up=0.4),
    "one class hard to see": SpanCrowd(hard=0.4, missed=0.05, invented=0.02, mixed_up=0.02, shifted=0.05),
    "side by side, one class": SpanCrowd(words=3, gap=0.6, kinds=1, mixed_up=0.0),
    "one expert, two of ten": SpanCrowd(
        annotators=10, answers=2, missed=0.35, invented=0.3, mixed_up=0.25, shifted=0.3, expert=True
    ),
}


def found_spans(labels: SpanLabels, method: Combiner | None = None) -> list[Part]:
    """The spans of the consensus, by document and place."""
    place = {name: number for number, name in enumerate(labels.items)}
    parts = [part for result in combine_spans(labels, method).values() for part in result.parts if part.found]
    return sorted(parts, key=lambda part: (place[part.item], *map(number_of, part.at("start", "end")), str(part.label)))


def in_characters(span: Span) -> Span:
    """Of words of one letter, a blank between them."""
    start, end, kind = span
    return 2 * start, 2 * end - 1, kind
