"""An undirected graph of items in compressed rows, and sums over the neighbours of each item.

Edges are stored once in each direction, neighbours in the order of their rows: those of item n lie from start[n] to
start[n + 1]. Sums are memory-bound, N J and 2 E numbers; threads take runs of items with about as many edges each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, prange
from scipy import sparse

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, threaded

Indices = npt.NDArray[np.int64]

SERIAL_BELOW = 50_000
"""Edges below which the calling thread does the work alone."""


class Heard(NamedTuple):
    """What the neighbours of each item say.

    told_nj: (N, J) what they add to its log beliefs, in units of unit_j (J,).
    slope_nj: (N, J) how much more they would add for each class if the strength of that class grew, in its units.
    begun: where sweeps go on; the approximation alone reads it.
    """

    told_nj: Floats
    unit_j: Floats
    slope_nj: Floats
    begun: Any

    @property
    def field_nj(self) -> Floats:
        """(N, J) what they add to its log beliefs, in nats."""
        return self.unit_j * self.told_nj


@dataclass(frozen=True, eq=False)
class Graph:
    """Neighbours of N items.

    Attributes:
        start_n: (N + 1,) where the neighbours of each item begin.
        neighbour_e: (2 E,) the neighbour.
        weight_e: (2 E,) the weight of the edge, > 0, the same in both directions.
    """

    start_n: Indices
    neighbour_e: Indices
    weight_e: Floats

    @classmethod
    def of(cls, adjacency: Any) -> Graph:
        """From a symmetric sparse (N, N) matrix. What an item has with itself is no edge."""
        matrix = sparse.csr_array(adjacency, dtype=np.float64, copy=True)
        matrix.setdiag(0)
        matrix.eliminate_zeros()
        matrix.sum_duplicates()
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)

    @property
    def n_items(self) -> int:
        """N."""
        return len(self.start_n) - 1

    @cached_property
    def degree(self) -> float:
        """Mean weight of all edges of an item that has any; 0 without edges."""
        linked = int((np.diff(self.start_n) > 0).sum())
        return float(self.weight_e.sum()) / linked if linked else 0.0

    @cached_property
    def reverse_e(self) -> Indices:
        """(2 E,) the place of the same edge in the other direction."""
        item_e = np.repeat(np.arange(self.n_items), np.diff(self.start_n))
        order: Indices = np.lexsort((item_e, self.neighbour_e))
        return order

    @cached_property
    def weights(self) -> tuple[Floats, Indices]:
        """(U,) the different weights, and (2 E,) which of them each edge has."""
        value_u, code_e = np.unique(self.weight_e, return_inverse=True)
        return value_u, code_e.astype(np.int64)

    @cached_property
    def runs(self) -> Indices:
        """(threads + 1,) runs of items for threads, with about as many edges each."""
        threads = 1 if len(self.neighbour_e) < SERIAL_BELOW else int(get_num_threads())
        edges = np.arange(1, threads) * len(self.neighbour_e) / threads
        return np.concatenate(([0], np.searchsorted(self.start_n[:-1], edges), [self.n_items]))

    def largest(self, value_n: Floats) -> Floats:
        """(N,) the largest value, of at least 0, among the neighbours of each item; 0 for an item without any."""
        linked_n = np.diff(self.start_n) > 0
        largest_n = np.zeros(self.n_items)
        if linked_n.any():
            largest_n[linked_n] = np.maximum.reduceat(value_n[self.neighbour_e], self.start_n[:-1][linked_n])
        return largest_n

    def sums(self, value_nj: Floats, out: Floats | None = None) -> Floats:
        """(N, J) weighted sums over the neighbours of each item, into `out` where it is given."""
        sum_nj = np.empty_like(value_nj) if out is None else out
        add = _sums if len(self.runs) == 2 else _sums_threaded
        add(self.runs, self.start_n, self.neighbour_e, self.weight_e, value_nj, sum_nj)
        return sum_nj


@compiled
def _sum(first: int, last: int, start: Any, neighbour: Any, weight: Any, value: Any, out: Any) -> None:
    for n in range(first, last):
        own = out[n]
        own[:] = 0.0
        for e in range(start[n], start[n + 1]):
            other, w = value[neighbour[e]], weight[e]
            for j in range(own.shape[0]):
                own[j] += w * other[j]


@compiled
def _sums(runs: Any, start: Any, neighbour: Any, weight: Any, value: Any, out: Any) -> None:
    _sum(0, out.shape[0], start, neighbour, weight, value, out)


@threaded
def _sums_threaded(runs: Any, start: Any, neighbour: Any, weight: Any, value: Any, out: Any) -> None:
    for run in prange(len(runs) - 1):
        _sum(runs[run], runs[run + 1], start, neighbour, weight, value, out)
