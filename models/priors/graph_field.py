"""A Potts field of true classes on a graph (Traganitis & Giannakis 2019, section 5): neighbours tend to be alike.

    p(z) ∝ prod_n share[z_n]  exp( sum_{n ~ m} w_nm strength[z_n] [z_n = z_m] )                        (eqs. 28-31)

Beliefs come from one of three approximations, each of which says what the neighbours of an item add to its log
beliefs, f_n[j]. Given f the items are independent, with the prior p_n[j] ∝ share[j] exp f_n[j]:

    q_n[j] ∝ p_n[j] exp message_n[j]                     log evidence = sum_n ln sum_j p_n[j] exp message_n[j]

The log evidence is a pseudo-likelihood (Besag 1975): how well what the neighbours of each item say foretells its
labels. On a tree belief propagation makes it the exact log probability of the labels of each item given all others.
Shares and strengths are learned by steps up sum_n q_n ln p_n with what the neighbours say held still, as in the EM of
Celeux, Forbes & Peyrard (2003): the shares by iterative scaling, share *= expected items by q / by p, each strength by
half a Newton step. The paper has one strength for all classes and sets it by hand; classes differ in how much they
keep to themselves, and a graph that says nothing is given no strength.

Without strength the step of the shares is that of class shares, and everything is Dawid-Skene.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics import belief_propagation, iterated_modes, kernels, mean_field
from hitl.models.numerics.field_passes import judged
from hitl.models.numerics.graph import Graph, Heard
from hitl.models.priors import Mask, Posterior

FIRST = 0.5
"""Log odds that all neighbours of an average item add, where they are of one class, before a strength is learned."""

MOST = 1.0
"""Most by which these log odds change in one step."""

SWEEPS = 2
"""Most sweeps over the graph of one posterior while parameters are learned: each goes on where the last one ended."""

SWEEPS_ALONE = 200
"""Most sweeps of a posterior that nothing follows."""


class Approximation(Protocol):
    """What neighbours say to each other, and for how long."""

    def begin(self, graph: Graph, q_nj: Floats, /) -> Floats:
        """Where sweeps begin with beliefs (N, J)."""
        ...

    def settle(
        self, message_nj: Floats, log_share_j: Floats, graph: Graph, strength_j: Floats, begun: Floats, sweeps: int, /
    ) -> Heard:
        """What the neighbours say, after at most `sweeps` from `begun`."""
        ...


APPROXIMATIONS: dict[str, Approximation] = {
    "mean-field": mean_field,
    "icm": iterated_modes,
    "belief-propagation": belief_propagation,
}


@dataclass(frozen=True, eq=False, slots=True)
class FieldCounts:
    """What a field learns from, each (J,), and where sweeps go on.

    Of two parts of a graph with no edge between them all add up; sweeps over both begin anew.

    Attributes:
        believed_j, expected_j: expected items by the beliefs, and by what the neighbours say.
        gradient_j, curvature_j: of sum_n q_n ln p_n in the strengths; the curvature with its sign turned.
    """

    believed_j: Floats
    expected_j: Floats
    gradient_j: Floats
    curvature_j: Floats
    begun: Floats | None = None

    def __add__(self, other: FieldCounts) -> FieldCounts:
        return FieldCounts(
            self.believed_j + other.believed_j,
            self.expected_j + other.expected_j,
            self.gradient_j + other.gradient_j,
            self.curvature_j + other.curvature_j,
        )


@dataclass(frozen=True, eq=False)
class GraphField:
    """A field with its class shares.

    Attributes:
        graph: who is a neighbour of whom.
        strength_j: (J,) log odds that an edge of weight 1 adds for both its items to be of class j, >= 0.
        share_j: (J,) sum to 1.
        smoothing: pseudo-items of each class, > 0.
        learns_strength: whether the strengths are learned; else they stay.
        approximation: a name in `APPROXIMATIONS`.
        sweeps: most sweeps of one posterior.
        begun: where they begin; None: at items that know nothing of each other.
    """

    graph: Graph
    strength_j: Floats
    share_j: Floats
    smoothing: float = 0.01
    learns_strength: bool = True
    approximation: str = "mean-field"
    sweeps: int = SWEEPS
    begun: Floats | None = None

    @classmethod
    def even(
        cls,
        graph: Graph,
        n_classes: int,
        strength: float | None,
        smoothing: float = 0.01,
        approximation: str = "mean-field",
    ) -> Self:
        """Every class equally common, and of one strength; of a small one, which is learned, where none is given."""
        first = FIRST / graph.degree if graph.degree else 0.0
        strength_j = np.full(n_classes, first if strength is None else strength)
        return cls(graph, strength_j, np.full(n_classes, 1 / n_classes), smoothing, strength is None, approximation)

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Beliefs given the messages of all items, as far as the sweeps carry them."""
        heard_nj = message_nj if counted_n.all() else np.where(counted_n[:, None], message_nj, 0.0)
        log_share_j = np.log(self.share_j)
        begun = self._begin(kernels.beliefs(heard_nj, log_share_j)[0]) if self.begun is None else self.begun
        heard = self._approximation.settle(heard_nj, log_share_j, self.graph, self.strength_j, begun, self.sweeps)
        found = judged(message_nj, log_share_j, heard.field_nj, heard.slope_nj, counted_n)
        return Posterior(found.q_nj, found.log_evidence, FieldCounts(*found[2:], heard.begun))

    def statistics(self, q_nj: Floats, counted_n: Mask) -> FieldCounts:
        """Of beliefs that have not heard of each other."""
        believed_j = kernels.totals(q_nj, counted_n)
        none_j = np.zeros_like(believed_j)
        return FieldCounts(believed_j, self.share_j * counted_n.sum(), none_j, none_j, self._begin(q_nj))

    def learn(self, statistics: FieldCounts) -> Self:
        """A step of shares and strengths; sweeps go on where they ended."""
        pseudo = self.smoothing * len(self.share_j) * self.share_j
        share_j = self.share_j * (statistics.believed_j + self.smoothing) / (statistics.expected_j + pseudo)
        return replace(
            self, strength_j=self._stepped(statistics), share_j=share_j / share_j.sum(), begun=statistics.begun
        )

    def log_density(self) -> float:
        """Log Dirichlet density of the shares, up to a constant."""
        return float(self.smoothing * np.log(self.share_j).sum())

    def _stepped(self, statistics: FieldCounts) -> Floats:
        """Half a Newton step; shares move at the same time, and both together would go too far."""
        learned_j = statistics.curvature_j > 0
        if not self.learns_strength or not learned_j.any():
            return self.strength_j
        step_j = 0.5 * statistics.gradient_j / np.where(learned_j, statistics.curvature_j, np.inf)
        most = MOST / self.graph.degree
        stepped: Floats = np.maximum(self.strength_j + np.clip(step_j, -most, most), 0.0)
        return stepped

    @property
    def _approximation(self) -> Approximation:
        return APPROXIMATIONS[self.approximation]

    def _begin(self, q_nj: Floats) -> Floats:
        return self._approximation.begin(self.graph, q_nj)
