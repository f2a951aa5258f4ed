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
            off (and one more with the same chance, and so on); invented: spans that are none, for each right one. Each
            annotator has from half of it to one and a half.
    """

    words: float = 2.0
    gap: int = 12
    length: int = 60
    kinds: int = 3
    annotators: int = 4
    answers: int = 4
    missed: float = 0.15
    invented: float = 0.1
    mixed_up: float = 0.1
    shifted: float = 0.15
    texts: int = 150

    def draw(self, seed: int) -> tuple[SpanLabels, Right]:
        """What the crowd marked, and the right spans of each text, in characters: every word is one letter long."""
        rng = np.random.default_rng(seed)
        error_k = rng.uniform(0.5, 1.5, self.annotators)
        right: dict[str, list[Span]] = {}
        answers = []
        for number in range(self.texts):
            name, spans = f"t{number}", self._text(rng)
            right[name] = spans
            for k in rng.permutation(self.annotators)[: self.answers].tolist():
                marked = self._answer(rng, spans, float(error_k[k]))
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

    def _answer(self, rng: np.random.Generator, spans: list[Span], error: float) -> list[Span]:
        found = []
        for start, end, kind in spans:
            if rng.random() >= self.missed * error:
                kind = str(rng.choice(self._names)) if rng.random() < self.mixed_up * error else kind
                found.append((self._moved(rng, start, error), self._moved(rng, end, error), kind))
        for _ in range(rng.poisson(self.invented * error * max(len(spans), 1))):
            start = int(rng.integers(self.length))
            found.append((start, start + 1 + int(rng.poisson(self.words - 1)), str(rng.choice(self._names))))
        kept: list[Span] = []
        for start, end, kind in sorted((max(start, 0), min(end, self.length), kind) for start, end, kind in found):
            if start < end and (not kept or kept[-1][1] <= start):
                kept.append((start, end, kind))
        return kept

    def _moved(self, rng: np.random.Generator, place: int, error: float) -> int:
        while rng.random() < self.shifted * error:
            place += int(rng.choice([-1, 1]))
        return place


CROWDS: Mapping[str, SpanCrowd] = {
    "names": SpanCrowd(words=1.6),
    "names, two of twenty": SpanCrowd(words=1.6, annotators=20, answers=2),
    "phrases of 5": SpanCrowd(words=5, gap=15, shifted=0.3),
    "phrases of 15": SpanCrowd(words=15, gap=15, shifted=0.4),
    "phrases of 15, noisy": SpanCrowd(words=15, gap=15, shifted=0.5, missed=0.3, invented=0.3, mixed_up=0.2),
    "passages of 25": SpanCrowd(words=25, gap=10, shifted=0.5, length=100, annotators=5, answers=5),
    "one kind, six of forty": SpanCrowd(8, 30, 100, 1, 40, 6, missed=0.4, invented=0.2, mixed_up=0, shifted=0.4),
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
