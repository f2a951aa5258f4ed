"""Potts field of true classes on a graph (Traganitis & Giannakis 2019, section 5): neighbors tend to be of one class.

    p(z) ∝ prod_n share[z_n]  exp( sum_{n ~ m} w_nm strength[z_n] [z_n = z_m] )                        (eqs. 28-31)

Beliefs come from one of three approximations (`numerics.potts`). Each computes f_n[j], which the neighbors of item n
add to its log beliefs. Given f the items are independent, with the prior p_n[j] ∝ share[j] exp f_n[j]:

    q_n[j] ∝ p_n[j] exp message_n[j]                     log evidence = sum_n ln sum_j p_n[j] exp message_n[j]

The log evidence is a pseudo-likelihood (Besag 1975): how well each item's neighbors predict its labels. With belief
propagation on a tree, the term of an item is the exact log probability of its labels given all other labels.

Shares and strengths are learned by steps up sum_n q_n ln p_n, with the neighbors' messages held fixed, as in the EM of
Celeux, Forbes & Peyrard (2003). Shares use iterative scaling, share *= (expected items by q) / (expected items by p).
Each strength takes half a Newton step. Because beliefs change with the strengths, such a step covers only a small part
of the distance. It is multiplied by a factor, which is larger the less the last step shortened the next one (Barzilai &
Borwein 1988). The paper has one strength for all classes, set by hand. Here each class has its own, because classes
differ in how much they cluster, and the strengths on an uninformative graph go to 0.

At zero strength the shares are learned as `Shares` are, and the model is Dawid-Skene.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics import kernels
from hitl.models.numerics.potts import APPROXIMATIONS, Graph
from hitl.models.priors import Mask, Posterior

FIRST = 0.5
"""Initial strength, as the log odds that the neighbors of an average item add if all are of one class."""

MOST = 1.0
"""Maximum change of these log odds in one step."""

QUICKEST = 4.0
"""Maximum multiple of half a Newton step. It allows two full Newton steps at once."""

SWEEPS = 2
"""Maximum sweeps over the graph per posterior while parameters are learned. Each continues where the last one ended."""

SWEEPS_ALONE = 200
"""Maximum sweeps of a posterior whose parameters are no longer learned."""


@dataclass(frozen=True, eq=False, slots=True)
class FieldCounts:
    """Statistics that a field learns from, and the state from which sweeps continue.

    Statistics add up over two parts of a graph without an edge between them. The sum has no state: sweeps start afresh.

    Attributes:
        believed_j, expected_j: (J,) expected items of each class by the beliefs q, and by p.
        gradient_j, curvature_j: (J,) first derivatives, and minus the second, of sum_n q_n ln p_n in the strengths.
        begun: state of the approximation; None: start afresh.
    """

    believed_j: Floats
    expected_j: Floats
    gradient_j: Floats
    curvature_j: Floats
    begun: Any = None

    def __add__(self, other: FieldCounts) -> FieldCounts:
        return FieldCounts(
            self.believed_j + other.believed_j,
            self.expected_j + other.expected_j,
            self.gradient_j + other.gradient_j,
            self.curvature_j + other.curvature_j,
        )


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """Last step of the strengths: the strengths before it, and half the Newton step from there, each (J,)."""

    from_j: Floats
    half_j: Floats

    def times(self, strength_j: Floats, half_j: Floats, most: float = QUICKEST) -> float:
        """Return the multiple of half a Newton step to take, in [1, most]: larger, the less the last step shortened it.

        `strength_j` are the present strengths, `half_j` half the Newton step from there.
        """
        moved_j = strength_j - self.from_j
        moved = float(moved_j @ moved_j)
        less = float(moved_j @ (self.half_j - half_j)) / moved if moved else 1.0
        return 1 / float(np.clip(less, 1 / most, 1.0))


@dataclass(frozen=True, eq=False)
class GraphField:
    """Field with its class shares.

    Attributes:
        graph: neighbors of each item.
        strength_j: (J,) log odds of class j that an item of class j adds to a neighbor by an edge of weight 1, >= 0.
        share_j: (J,) class shares, which sum to 1.
        smoothing: number of pseudo-items of each class, > 0.
        learns_strength: True if the strengths are learned, False if they are fixed.
        approximation: a name in `APPROXIMATIONS`.
        sweeps: maximum sweeps of one posterior.
        begun: state from which sweeps start; None: beliefs without neighbors.
        last: the last step of the strengths; None before the first.
        quickest: maximum multiple of half a Newton step, >= 1.
    """

    graph: Graph
    strength_j: Floats
    share_j: Floats
    smoothing: float = 0.01
    learns_strength: bool = True
    approximation: str = "mean-field"
    sweeps: int = SWEEPS
    begun: Any = None
    last: Step | None = None
    quickest: float = QUICKEST

    @classmethod
    def even(
        cls,
        graph: Graph,
        n_classes: int,
        strength: float | None,
        smoothing: float = 0.01,
        approximation: str = "mean-field",
    ) -> Self:
        """Build a field with uniform shares and equal strengths. If `strength` is None, start small and learn them."""
        first = FIRST / graph.degree if graph.degree else 0.0
        strength_j = np.full(n_classes, first if strength is None else strength)
        return cls(graph, strength_j, np.full(n_classes, 1 / n_classes), smoothing, strength is None, approximation)

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        heard_nj = message_nj if counted_n.all() else np.where(counted_n[:, None], message_nj, 0.0)
        log_share_j, settle = np.log(self.share_j), APPROXIMATIONS[self.approximation][1]
        begun = self._begin(kernels.beliefs(heard_nj, log_share_j)[0]) if self.begun is None else self.begun
        heard = settle(heard_nj, log_share_j, self.graph, self.strength_j, begun, self.sweeps)
        p_nj, log_p_n = kernels.beliefs(heard.field_nj, log_share_j)
        q_nj, log_q_n = kernels.beliefs(message_nj + heard.field_nj, log_share_j)
        believed_j, expected_j = (kernels.totals(x_nj, counted_n) for x_nj in (q_nj, p_nj))
        gradient_j = kernels.totals(heard.slope_nj * (q_nj - p_nj), counted_n)
        curvature_j = kernels.totals(heard.slope_nj**2 * p_nj * (1 - p_nj), counted_n)
        counts = FieldCounts(believed_j, expected_j, gradient_j, curvature_j, heard.begun)
        return Posterior(q_nj, float(np.sum(log_q_n - log_p_n, where=counted_n)), counts)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> FieldCounts:
        believed_j = kernels.totals(q_nj, counted_n)
        none_j = np.zeros_like(believed_j)
        return FieldCounts(believed_j, self.share_j * counted_n.sum(), none_j, none_j, self._begin(q_nj))

    def learn(self, statistics: FieldCounts) -> Self:
        pseudo = self.smoothing * len(self.share_j) * self.share_j
        share_j = self.share_j * (statistics.believed_j + self.smoothing) / (statistics.expected_j + pseudo)
        learned = replace(self, share_j=share_j / share_j.sum(), begun=statistics.begun)
        if not self.learns_strength or not (statistics.curvature_j > 0).any():
            return learned
        half_j = _half_newton(statistics)
        step_j = half_j if self.last is None else self.last.times(self.strength_j, half_j, self.quickest) * half_j
        most = MOST / self.graph.degree
        strength_j = np.maximum(self.strength_j + np.clip(step_j, -most, most), 0.0)
        return replace(learned, strength_j=strength_j, last=Step(self.strength_j, half_j))

    def log_density(self) -> float:
        return float(self.smoothing * np.log(self.share_j).sum())

    def _begin(self, q_nj: Floats) -> Any:
        return APPROXIMATIONS[self.approximation][0](self.graph, q_nj)


def _half_newton(statistics: FieldCounts) -> Floats:
    """Return (J,) half the Newton step of the strengths. A full step would overshoot, because shares move too."""
    curvature_j = statistics.curvature_j
    return np.asarray(0.5 * statistics.gradient_j / np.where(curvature_j > 0, curvature_j, np.inf))
