"""What each of the crew is worth asking about each item, as a policy sees it.

    v_nk  =  b_k sum over open questions of ( A_nk + information I_nk )       b_k = 1 + explore / sqrt(1 + labels of k)

A and I of `pairs`, at beliefs that take every answer at its word; where people cost differently, v_nk / cost_k is what
a unit of cost buys. Thompson sampling (Thompson 1933) draws the confusion matrices from their posteriors instead of
adding a bonus: who may be good is tried as often as they may be best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.active.acquisition.expected_gain import (
    Gains,
    Measure,
    Question,
    accuracy_bound,
    accuracy_gain,
    information_bound,
    information_gain,
)
from hitl.active.stopping.rules import OPEN, Judged
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import Crew
from hitl.models.dependence.design_effect import beliefs_for_gain

Rows = npt.NDArray[np.int64]

TINY = 1e-300

NEWCOMER = 4.0
"""Labels of each class that the average is worth as a prior of somebody nobody has met, when matrices are drawn."""


@dataclass(frozen=True, eq=False)
class CrewValue:
    """Gains (N, K') of the crew's answers in right labels, times a factor (K',) for each annotator."""

    gains: Gains
    factor_k: Floats

    @classmethod
    def of(
        cls,
        questions: Sequence[Judged],
        states: npt.NDArray[np.int8],
        matrices: Sequence[Floats],
        information: float,
    ) -> CrewValue:
        """By these confusion matrices (K', J, L) of the crew, one a question; `states` (Q, N) say what is open."""
        parts = [
            Question(beliefs_for_gain(evidence, consensus), pi_kjl, state == OPEN)
            for (evidence, consensus), state, pi_kjl in zip(questions, states, matrices, strict=True)
        ]
        return cls(Gains(measure(information), parts), np.ones(len(matrices[0])))

    def times(self, factor_k: Floats) -> CrewValue:
        """The same where each annotator (K',) counts so much more."""
        return replace(self, factor_k=self.factor_k * factor_k)

    def per_cost(self, cost_k: Floats) -> CrewValue:
        """What the average price buys."""
        return self.times(cost_k.mean() / cost_k)

    def by(self, matrices: Sequence[Floats]) -> CrewValue:
        """The same by other confusion matrices."""
        parts = [replace(old, confusion_kjl=new) for old, new in zip(self.gains.questions, matrices, strict=True)]
        return replace(self, gains=replace(self.gains, questions=parts))

    def values(self, rows: Rows) -> Floats:
        """(R, K') what each of the crew would bring about these items."""
        value: Floats = self.gains.values(rows) * self.factor_k
        return value

    def bound(self, rows: Rows) -> Floats:
        """(R,) what nobody of the crew would bring more than."""
        bound: Floats = self.gains.bound(rows) * self.factor_k.max(initial=0.0)
        return bound

    def alike(self, rows: Rows) -> Rows:
        """(R,) codes: about items of one code everybody brings the same."""
        return self.gains.alike(rows)


def measure(information: float) -> Measure:
    """Gain in right labels and `information` a nat."""
    return Measure(
        lambda q, pi: accuracy_gain(q, pi) + information * information_gain(q, pi),
        lambda q, pi: accuracy_bound(q, pi) + information * information_bound(q, pi),
    )


def bonus(questions: Sequence[Judged], crew: Crew, explore: float) -> Floats:
    """(K',) b_k: how much more each counts for what is not known of them."""
    return 1 + explore / np.sqrt(1 + _labels(questions, crew))


def drawn_confusion(
    consensus: Consensus, crew: Crew, mean_kjl: Floats, spread: float, rng: np.random.Generator
) -> Floats:
    """(K', J, L) confusion matrices with these means, drawn as wide as their posteriors; `spread` 0: the means.

    A row with mean m and Dirichlet parameters that sum to a has variances m (1 - m) / (a / spread + 1).
    """
    if spread == 0:
        return mean_kjl
    learned = consensus.annotators
    place = {name: k for k, name in enumerate(learned.names)}
    unknown = np.full(mean_kjl.shape[1], NEWCOMER)
    known_kj = learned.concentration.sum(axis=2)
    strength_kj = np.stack([known_kj[place[name]] if name in place else unknown for name in crew.names])
    gamma = rng.gamma(mean_kjl * strength_kj[:, :, None] / spread) + 1e-12
    drawn: Floats = gamma / gamma.sum(axis=2, keepdims=True)
    return drawn


def _labels(questions: Sequence[Judged], crew: Crew) -> Floats:
    """(K',) labels that each of the crew has given, averaged over the questions."""
    total = np.zeros(len(crew.names))
    for _, consensus in questions:
        given = dict(zip(consensus.annotators.names, consensus.annotators.labels.tolist(), strict=True))
        total += [given.get(name, 0) for name in crew.names]
    return total / len(questions)
