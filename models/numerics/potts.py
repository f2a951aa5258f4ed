"""Messages between neighbors in a Potts model on a graph, by three approximations.

    mean field            q_n  <-  (q_n + p_n) / 2     p_n ∝ share exp( message_n + strength sum_m w_nm q_m )
    iterated modes        z_n  <-  argmax_j  message_n[j] + ln share[j] + strength[j] sum_m w_nm [z_m = j]
    belief propagation    c_mn ∝ q_m / b_nm            b_mn[j] = 1 + (exp(strength[j] w_mn) - 1) c_mn[j]

(Zhang 1992; Besag 1986 and Traganitis & Giannakis 2019, eq. 33; Pearl 1988.) All items move at once, so their order
does not matter. Beliefs move only halfway, so that neighbors do not swap forever. A mode moves unless a neighbor would
gain more. Neighbors that gain equally both move, but never back to the previous class. Apart from such ties, each sweep
raises the log joint of all classes. A fixed point of mean field is a stationary point of

    sum_n q_n (message_n + ln share)  +  1/2 sum_nm w_nm sum_j strength[j] q_n[j] q_m[j]  -  sum_n q_n ln q_n.

Belief propagation is exact on trees: c_mn is the belief of m without n, and sum_m ln b_mn is what all other items say
about n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hitl.annotations import Floats
from hitl.models.numerics import kernels

ENOUGH, ENOUGH_OF_PROPAGATION = 1e-5, 1e-9
"""Change of a belief below which sweeps of mean field, and of belief propagation, end."""

SURE = 300.0
"""Largest strength of an edge. A larger one would make no difference, except that the exponential would overflow."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Neighbors of N items: a symmetric (N, N) matrix of weights > 0 of the 2 E directed edges, sorted by row."""

    weight_nn: sparse.csr_array

    @classmethod
    def of(cls, adjacency: Any) -> Graph:
        """Build from a symmetric sparse (N, N) matrix; its diagonal is ignored."""
        matrix = sparse.csr_array(adjacency, dtype=np.float64, copy=True)
        matrix.setdiag(0)
        matrix.eliminate_zeros()
        matrix.sum_duplicates()
        return cls(matrix)

    @cached_property
    def degree(self) -> float:
        """Mean total edge weight of items that have edges; 0 without edges."""
        linked = int((np.diff(self.weight_nn.indptr) > 0).sum())
        return float(self.weight_nn.sum()) / linked if linked else 0.0

    @cached_property
    def reverse_e(self) -> npt.NDArray[np.intp]:
        """(2 E,) index of the same edge in the other direction."""
        edges = self.weight_nn.tocoo()
        return np.asarray(np.lexsort((edges.row, edges.col)))

    @cached_property
    def edges_ne(self) -> sparse.csr_array:
        """(N, 2 E) ones at the edges of each item."""
        count = self.weight_nn.nnz
        return sparse.csr_array((np.ones(count), np.arange(count), self.weight_nn.indptr), shape=(len(self), count))

    def __len__(self) -> int:
        return int(self.weight_nn.shape[0])

    def sums(self, value_nj: Floats) -> Floats:
        """Return (N, J) weighted sums over the neighbors of each item."""
        return np.asarray(self.weight_nn @ value_nj)

    def largest(self, value_n: Floats) -> Floats:
        """Return (N,) largest value among the neighbors of each item; 0 without neighbors."""
        start_n = self.weight_nn.indptr
        linked_n = np.diff(start_n) > 0
        largest_n = np.zeros(len(self))
        if linked_n.any():
            largest_n[linked_n] = np.maximum.reduceat(value_n[self.weight_nn.indices], start_n[:-1][linked_n])
        return largest_n


class Heard(NamedTuple):
    """Messages from the neighbors of each item.

    Attributes:
        field_nj: (N, J) amount that they add to the item's log beliefs, in nats.
        slope_nj: (N, J) derivative of `field_nj` in the strength of the class.
        begun: state from which sweeps continue, in the form that the approximation uses.
    """

    field_nj: Floats
    slope_nj: Floats
    begun: Any


Begin = Callable[[Graph, Floats], Any]
"""Graph and beliefs (N, J) -> the state from which sweeps start."""

Settle = Callable[[Floats, Floats, Graph, Floats, Any, int], Heard]
"""Messages (N, J), log shares (J,), graph, strengths (J,), state, maximum sweeps -> messages from neighbors."""


def _begin_mean_field(graph: Graph, q_nj: Floats) -> tuple[Floats, Floats]:
    """Return the beliefs, and the sums of the neighbors' beliefs."""
    return q_nj, graph.sums(q_nj)


def _mean_field(
    message_nj: Floats, log_share_j: Floats, graph: Graph, strength_j: Floats, begun: tuple[Floats, Floats], sweeps: int
) -> Heard:
    q_nj, around_nj = begun
    for _ in range(sweeps):
        step_nj, _ = kernels.beliefs(message_nj + strength_j * around_nj, log_share_j)
        step_nj -= q_nj
        step_nj *= 0.5
        q_nj = q_nj + step_nj
        around_nj = graph.sums(q_nj)
        if np.abs(step_nj).max(initial=0.0) < ENOUGH:
            break
    return Heard(strength_j * around_nj, around_nj, (q_nj, around_nj))


def _begin_modes(graph: Graph, q_nj: Floats) -> Floats:
    """Return (N, J) one-hot most likely classes; ties go to the first class."""
    return np.asarray(np.eye(q_nj.shape[1])[q_nj.argmax(axis=1)])


def _iterated_modes(
    message_nj: Floats, log_share_j: Floats, graph: Graph, strength_j: Floats, z_nj: Floats, sweeps: int
) -> Heard:
    own_nj = message_nj + log_share_j
    before_n = now_n = z_nj.argmax(axis=1)
    every_n = np.arange(len(now_n))
    around_nj = graph.sums(z_nj)
    for _ in range(sweeps):
        score_nj = own_nj + strength_j * around_nj
        best_n = score_nj.argmax(axis=1)
        gain_n = score_nj[every_n, best_n] - np.maximum(score_nj[every_n, now_n], -np.finfo(float).max)
        rival_n = graph.largest(gain_n)
        moves_n = (gain_n > rival_n) | (gain_n == rival_n) & (gain_n > 0) & (best_n != before_n)
        if not moves_n.any():
            break
        before_n, now_n = np.where(moves_n, now_n, before_n), np.where(moves_n, best_n, now_n)
        z_nj = np.eye(z_nj.shape[1])[now_n]
        around_nj = graph.sums(z_nj)
    return Heard(strength_j * around_nj, around_nj, z_nj)


def _begin_propagation(graph: Graph, q_nj: Floats) -> Floats:
    """Return (2 E, J) initial c of each edge: the beliefs of its sender. Edges are ordered by receiver."""
    return np.asarray(q_nj[graph.weight_nn.indices])


def _belief_propagation(
    message_nj: Floats, log_share_j: Floats, graph: Graph, strength_j: Floats, c_ej: Floats, sweeps: int
) -> Heard:
    weight_e1 = graph.weight_nn.data[:, None]
    grown_ej = np.expm1(np.minimum(weight_e1 * strength_j, SURE))
    field_nj = graph.edges_ne @ np.log1p(grown_ej * c_ej)
    for _ in range(sweeps):
        belief_nj, _ = kernels.beliefs(message_nj + field_nj, log_share_j)
        without_ej = belief_nj[graph.weight_nn.indices] / (1 + grown_ej * c_ej[graph.reverse_e])
        without_ej /= without_ej.sum(axis=1, keepdims=True)
        step_ej = (without_ej - c_ej) / 2
        c_ej = c_ej + step_ej
        field_nj = graph.edges_ne @ np.log1p(grown_ej * c_ej)
        if np.abs(step_ej).max(initial=0.0) < ENOUGH_OF_PROPAGATION:
            break
    slope_ej = weight_e1 * (c_ej + grown_ej * c_ej) / (1 + grown_ej * c_ej)
    return Heard(field_nj, graph.edges_ne @ slope_ej, c_ej)


APPROXIMATIONS: dict[str, tuple[Begin, Settle]] = {
    "mean-field": (_begin_mean_field, _mean_field),
    "icm": (_begin_modes, _iterated_modes),
    "belief-propagation": (_begin_propagation, _belief_propagation),
}
