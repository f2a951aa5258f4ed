"""What each of the crew is worth asking about each item, as a policy sees it.

    v_nk = sum over open questions of ( A_nk + information I_nk ) x (1 + explore / sqrt(1 + labels of k)) / cost_k

A and I of `pairs`, at beliefs that take every answer at its word. Cost counts where annotators differ in it and no
limit on cost is set elsewhere: what is bought is gain for money. Thompson sampling (Thompson 1933) draws the confusion
matrices from their posteriors instead of adding a bonus: who may be good is tried as often as they may be best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from hitl.active import scores
from hitl.active.pairs import (
    Gains,
    Measure,
    Question,
    accuracy_bound,
    accuracy_gain,
    information_bound,
    information_gain,
)
from hitl.active.stopping import OPEN, Judged
from hitl.active.worth import average_confusion, crew_confusion
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import Crew
from hitl.evidence import Evidence
from hitl.models.calibration import shared_errors

Rows = npt.NDArray[np.int64]
Exploration = Literal["bonus", "thompson"]

NEWCOMER = 4.0
"""Labels that the average is worth as a prior of somebody nobody has met, when matrices are drawn."""


@dataclass(frozen=True, eq=False)
class CrewValue:
    """Gains (N, K') of the crew's answers, times a factor for each annotator."""

    gains: Gains
    factor_k: Floats

    @classmethod
    def of(
        cls,
        questions: Sequence[Judged],
        states: npt.NDArray[np.int8],
        crew: Crew,
        information: float,
        explore: float,
        exploration: Exploration,
        seed: int,
    ) -> CrewValue:
        """Values by these beliefs; `states` (Q, N) say where a question is open."""
        thompson = exploration == "thompson"
        drawn = np.random.default_rng([seed, len(questions[0][0].annotations)])
        parts = []
        for (evidence, consensus), state in zip(questions, states, strict=True):
            pi_kjl = drawn_confusion(consensus, crew, explore, drawn) if thompson else crew_confusion(consensus, crew)
            parts.append(Question(beliefs_for_gain(evidence, consensus), pi_kjl, state == OPEN))
        bonus_k = np.ones(len(crew.names)) if thompson else 1 + explore / np.sqrt(1 + _labels(questions[0][1], crew))
        cost_k = np.array([crew.cost_of(name) for name in crew.names])
        return cls(Gains(measure(information), parts), bonus_k / cost_k * cost_k.mean())

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


def beliefs_for_gain(evidence: Evidence, consensus: Consensus) -> Floats:
    """(N, J) beliefs that take each answer as worth what a confusion matrix says, as the gain takes the next one.

    Beside models confidence is corrected for errors in common, the more the more labels an item has: by these beliefs
    the same few items would be asked about again and again (CIFAR-10H: 99 % not reached with 11,000 labels, with the
    others from 7,400).
    """
    if consensus.correction is None or not consensus.temperatures:
        return consensus.probabilities
    caution = shared_errors.caution_of(consensus)
    return shared_errors.independent(evidence, consensus.probabilities, consensus.correction.strength, caution)


def drawn_confusion(consensus: Consensus, crew: Crew, spread: float, rng: np.random.Generator) -> Floats:
    """(K', J, L) confusion matrices drawn from their posteriors, of `spread` times its variance; 0: the means."""
    mean_kjl = crew_confusion(consensus, crew)
    if spread == 0:
        return mean_kjl
    learned = consensus.annotators
    place = {name: k for k, name in enumerate(learned.names)}
    strength = np.stack(
        [
            learned.concentration[place[name]].sum(axis=1) if name in place else np.full(mean_kjl.shape[1], NEWCOMER)
            for name in crew.names
        ]
    )
    gamma = rng.gamma(mean_kjl * strength[:, :, None] / spread) + 1e-12
    drawn: Floats = gamma / gamma.sum(axis=2, keepdims=True)
    return drawn


def typical_confusion(consensus: Consensus, crew: Crew, labels: int) -> Floats:
    """(J, L) confusion matrix of whoever answers next: the crew's average, or that of all who have answered.

    Everybody counts with what they can take of the plan's `labels`.
    """
    capacity = np.array([min(crew.capacity_of(name), labels) for name in crew.names], dtype=np.float64)
    if not capacity.any():
        return average_confusion(consensus)
    return scores.crew_confusion(crew_confusion(consensus, crew), capacity)


def _labels(consensus: Consensus, crew: Crew) -> Floats:
    """(K',) labels that each of the crew has given."""
    given = dict(zip(consensus.annotators.names, consensus.annotators.labels.tolist(), strict=True))
    return np.array([given.get(name, 0) for name in crew.names], dtype=np.float64)
