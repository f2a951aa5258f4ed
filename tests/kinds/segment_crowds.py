"""Crowds that mark stretches of recordings, and how good a consensus of theirs is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hitl.kinds.span_labels import Answer, SpanLabels

Stretch = tuple[float, float, str]
Right = Mapping[str, Sequence[Stretch]]

LENGTH = 1000
"""Units of a recording."""


@dataclass(frozen=True)
class SegmentCrowd:
    """How recordings are made and marked.

    Attributes:
        gap: mean units between stretches; kinds: how many; annotators: how many, all of whom answer.
        jitter: standard deviation of borders; missed, mixed_up: chance that a stretch is overlooked, or has another
            kind; invented: stretches that are none, for each right one. Each annotator has from half of it all to one
            and a half.
    """

    gap: float = 40
    kinds: int = 3
    annotators: int = 3
    jitter: float = 5
    missed: float = 0.15
    invented: float = 0.1
    mixed_up: float = 0.1
    recordings: int = 40

    def draw(self, seed: int) -> tuple[SpanLabels, Right]:
        """What the crowd marked, and the right stretches of each recording."""
        rng = np.random.default_rng(seed)
        error_k = rng.uniform(0.5, 1.5, self.annotators)
        right = {f"r{number}": self._recording(rng) for number in range(self.recordings)}
        answers = [
            Answer(name, f"ann-{k}", self._answer(rng, own, float(error_k[k])))
            for name, own in right.items()
            for k in range(self.annotators)
        ]
        return SpanLabels.from_recordings(right, answers, classes=self._names), right

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(f"kind-{number}" for number in range(self.kinds))

    def _recording(self, rng: np.random.Generator) -> list[Stretch]:
        found: list[Stretch] = []
        place = rng.exponential(self.gap)
        while (end := place + rng.gamma(6, 10)) < LENGTH:
            found.append((round(place, 1), round(end, 1), str(rng.choice(self._names))))
            place = end + rng.exponential(self.gap) + 0.1
        return found

    def _answer(self, rng: np.random.Generator, right: Sequence[Stretch], error: float) -> list[Stretch]:
        found = []
        for start, end, kind in right:
            if rng.random() >= self.missed * error:
                kind = str(rng.choice(self._names)) if rng.random() < self.mixed_up * error else kind
                found.append((*(place + self.jitter * error * rng.normal() for place in (start, end)), kind))
        for _ in range(rng.poisson(self.invented * error * len(right))):
            start = rng.uniform(0, LENGTH)
            found.append((start, start + rng.gamma(6, 10), str(rng.choice(self._names))))
        kept: list[Stretch] = []
        for start, end, kind in sorted((max(start, 0), min(end, LENGTH), kind) for start, end, kind in found):
            start = max(start, kept[-1][1]) if kept else start
            if end - start > 5:
                kept.append((round(start, 1), round(end, 1), kind))
        return kept


CROWDS: Mapping[str, SegmentCrowd] = {
    "apart": SegmentCrowd(),
    "disputed borders": SegmentCrowd(jitter=10),
    "one after another": SegmentCrowd(gap=1, jitter=8, kinds=4),
    "noisy": SegmentCrowd(jitter=8, missed=0.3, invented=0.3, mixed_up=0.3),
    "five, disputed borders": SegmentCrowd(annotators=5, jitter=10, missed=0.2),
    "five, noisy": SegmentCrowd(annotators=5, jitter=8, missed=0.3, invented=0.3, mixed_up=0.3),
    "five, one after another": SegmentCrowd(annotators=5, gap=1, jitter=8, kinds=4, missed=0.2),
}


def majority_of_units(labels: SpanLabels) -> dict[str, list[Stretch]]:
    """The kind that most annotators gave to each unit of time, or nothing; of equals nothing, then the first."""
    votes: Any = np.zeros((len(labels.items), 1 + len(labels.classes), LENGTH), np.int64)
    votes[:, 0] = labels.answers_n[:, None]
    for answer, start, end, kind in labels.span_s4.tolist():
        own = votes[labels.answer_a2[answer, 0]]
        first, last = (round(one) for one in labels.border_v[[start, end]])
        own[1 + kind, first:last] += 1
        own[0, first:last] -= 1
    return {
        str(name): _stretches(votes[d].argmax(axis=0), [str(kind) for kind in labels.classes])
        for d, name in enumerate(labels.items)
    }


def _stretches(code_t: Any, kinds: Sequence[str]) -> list[Stretch]:
    edges = [0, *(1 + np.flatnonzero(np.diff(code_t))).tolist(), len(code_t)]
    return [(first, last, kinds[code_t[first] - 1]) for first, last in pairwise(edges) if code_t[first]]


def f1_of_stretches(found: Mapping[str, Iterable[Stretch]], right: Right) -> float:
    """F1, where one of the same kind and with an intersection over union of half or more is right."""
    hit = n_found = n_right = 0
    for name, own in right.items():
        left, given = list(own), list(found.get(name, ()))
        n_found, n_right = n_found + len(given), n_right + len(own)
        for one in given:
            same = next((other for other in left if one[2] == other[2] and _overlap(one, other) >= 0.5), None)
            if same is not None:
                left.remove(same)
                hit += 1
    return 2 * hit / (n_found + n_right)


def f1_of_time(found: Mapping[str, Iterable[Stretch]], right: Right) -> float:
    """F1 of the units of time that have their kind."""
    shared = sum(
        max(0.0, min(one[1], other[1]) - max(one[0], other[0]))
        for name, own in right.items()
        for one in found.get(name, ())
        for other in own
        if one[2] == other[2]
    )
    lengths = [end - start for of in (found, right) for own in of.values() for start, end, _ in own]
    return float(2 * shared / sum(lengths))


def _overlap(one: Stretch, other: Stretch) -> float:
    shared = max(0.0, min(one[1], other[1]) - max(one[0], other[0]))
    return shared / (one[1] - one[0] + other[1] - other[0] - shared)
