"""The utility of each pair of item and annotator, as a policy sees it.

    v_nk  =  b_k sum over open questions of ( A_nk + information I_nk )       b_k = 1 + explore / sqrt(1 + labels of k)

A and I of `expected_gain`, at beliefs that take every answer at its word; where annotators cost differently, v_nk /
cost_k is what a unit of cost buys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.active.acquisition.expected_gain import (
    Measure,
    accuracy_bound,
    accuracy_gain,
    information_bound,
    information_gain,
)
from hitl.active.stopping.pool_state import PoolState, Rows
from hitl.active.stopping.rules import OPEN
from hitl.annotations import Floats
from hitl.crew import Crew
from hitl.models.dependence.design_effect import beliefs_for_gain


@dataclass(frozen=True, eq=False)
class Question:
    """One question about N items: beliefs (N, J), confusion matrices of the crew (K', J, L), where it is still open."""

    q_nj: Floats
    confusion_kjl: Floats
    open_n: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class Utility:
    """What answers to all open questions about an item bring: their gains add up, times a factor of each annotator.

    Attributes:
        measure: the gain of one answer to one question.
        questions: the questions about the same N items, to the same K' annotators.
        factor_k: (K',) how much more each counts, or 1.
    """

    measure: Measure
    questions: Sequence[Question]
    factor_k: Floats | float = 1.0

    @classmethod
    def of(cls, pool: PoolState, matrices: Sequence[Floats], information: float) -> Utility:
        """By these confusion matrices (K', J, L) of the crew, one a question; what is not open brings nothing."""
        parts = [
            Question(beliefs_for_gain(evidence, consensus), pi_kjl, state == OPEN)
            for (evidence, consensus), state, pi_kjl in zip(pool, pool.states, matrices, strict=True)
        ]
        return cls(measure(information), parts)

    def times(self, factor_k: Floats) -> Utility:
        """The same where each annotator (K',) counts so much more."""
        return replace(self, factor_k=self.factor_k * factor_k)

    def per_cost(self, cost_k: Floats) -> Utility:
        """What the average price buys."""
        return self.times(cost_k.mean() / cost_k)

    def values(self, rows: Rows) -> Floats:
        """(R, K') what each of the crew would bring about these items."""
        return self._sum(rows, self.measure.gain) * self.factor_k

    def bound(self, rows: Rows) -> Floats:
        """(R,) a bound: what no annotator of the crew would bring more than."""
        return self._sum(rows, self.measure.bound) * np.max(self.factor_k, initial=0.0)

    def alike(self, rows: Rows) -> Rows:
        """(R,) codes: items of one code have the same beliefs (to nine digits), so every annotator brings the same."""
        key = np.zeros(len(rows))
        weight = np.random.default_rng(0)
        for question in self.questions:
            mixed = np.round(question.q_nj[rows], 9) @ weight.random(question.q_nj.shape[1])
            here = True if question.open_n is None else question.open_n[rows]
            key += np.where(here, mixed, weight.random() + 2)
        return np.unique(key, return_inverse=True)[1]

    def _sum(self, rows: Rows, of: Callable[[Floats, Floats], Floats]) -> Floats:
        """What each question adds where it is open, over all of them."""
        parts = []
        for question in self.questions:
            parts.append(of(question.q_nj[rows], question.confusion_kjl))
            if question.open_n is not None:
                parts[-1][~question.open_n[rows]] = 0.0
        return functools.reduce(np.add, parts)


def measure(information: float) -> Measure:
    """Gain in right labels and `information` a nat."""
    return Measure(
        lambda q, pi: accuracy_gain(q, pi) + information * information_gain(q, pi),
        lambda q, pi: accuracy_bound(q, pi) + information * information_bound(q, pi),
    )


def exploration(pool: PoolState, crew: Crew, explore: float) -> Floats:
    """(K',) b_k: how much more each counts for what is not known of them; their labels averaged over the questions."""
    labels = np.zeros(len(crew.names))
    for _, consensus in pool:
        given = dict(zip(consensus.annotators.names, consensus.annotators.labels.tolist(), strict=True))
        labels += [given.get(name, 0) for name in crew.names]
    b_k: Floats = 1 + explore / np.sqrt(1 + labels / len(pool))
    return b_k
