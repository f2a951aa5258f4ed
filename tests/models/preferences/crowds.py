"""Simulated tournaments: items with known strengths, compared by annotators of known reliability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Floats, Ints
from hitl.models.preferences.comparisons import Comparisons


@dataclass(frozen=True, eq=False)
class Tournament:
    """N items of these strengths, K annotators who guess with chance 1 - reliability; tie: log weight of a tie."""

    strengths: Floats
    reliability: Floats
    tie: float
    rng: np.random.Generator

    @classmethod
    def drawn(
        cls, seed: int, items: int, reliability: Floats | list[float], tie: float = -1.0, scale: float = 1.5
    ) -> Tournament:
        rng = np.random.default_rng(seed)
        strengths = rng.normal(0, scale, items)
        return cls(strengths - strengths.mean(), np.array(reliability), tie, rng)

    def random_pairs(self, count: int) -> tuple[Ints, Ints, Ints]:
        """Left, right and annotator of pairs drawn evenly."""
        n = len(self.strengths)
        left = self.rng.integers(0, n, count)
        right = (left + self.rng.integers(1, n, count)) % n
        return left, right, self.rng.integers(0, len(self.reliability), count)

    def outcomes(self, left: Ints, right: Ints, annotator: Ints) -> Ints:
        """Answers 1, -1 or 0. By Davidson's formula as it is printed, not by the code of the model."""
        one, other = np.exp(self.strengths[left]), np.exp(self.strengths[right])
        even = np.exp(self.tie) * np.sqrt(one * other)
        p = np.array([one, other, even]) / (one + other + even)
        follows = self.rng.random(len(left)) < self.reliability[annotator]
        guess = np.array([0.4, 0.4, 0.2]) if self.tie > -np.inf else np.array([0.5, 0.5, 0.0])
        p = np.where(follows, p, guess[:, None])
        return np.array([1, -1, 0])[(self.rng.random(len(left)) > p.cumsum(axis=0)).sum(axis=0).clip(max=2)]

    def comparisons(self, left: Ints, right: Ints, annotator: Ints, outcome: Ints) -> Comparisons:
        items, people = (tuple(str(n) for n in range(len(of))) for of in (self.strengths, self.reliability))
        return Comparisons(items, left, right, outcome, people, annotator, np.ones(len(left)))

    def compared(self, count: int) -> Comparisons:
        """Answers to `count` pairs drawn evenly."""
        pairs = self.random_pairs(count)
        return self.comparisons(*pairs, self.outcomes(*pairs))
