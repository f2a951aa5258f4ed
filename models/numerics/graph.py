"""Undirected graph of items in compressed rows, and sums over the neighbors of each item.

Each edge is stored once per direction, sorted by row: neighbors of item n lie between start[n] and
start[n + 1]. Sums are memory-bound, N J and 2 E numbers. Threads take runs of items with about as many edges each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import get_num_threads
from scipy import sparse

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, in_runs

Indices = npt.NDArray[np.int64]

SERIAL_BELOW = 50_000
"""Number of edges below which one thread does the work."""


class Heard(NamedTuple):
    """Messages from the neighbors of each item.

    Attributes:
        told_nj: (N, J) addition to its log beliefs, in units of unit_j (J,).
        slope_nj: (N, J) derivative of that addition by the strength of each class.
        begun: state from which sweeps continue; only the approximation reads it.
    """

    told_nj: Floats
    unit_j: Floats
    slope_nj: Floats
    begun: Any

    @property
    def field_nj(self) -> Floats:
        """(N, J) addition to log beliefs, in nats."""
        return self.unit_j * self.told_nj


@dataclass(frozen=True, eq=False)
class Graph:
    """Neighbors of N items.

    Attributes:
        start_n: (N + 1,) index of each item's first neighbor.
        neighbour_e: (2 E,) neighbors.
        weight_e: (2 E,) weights of the edges, > 0, the same in both directions.
    """

    start_n: Indices
    neighbour_e: Indices
    weight_e: Floats

    @classmethod
    def of(cls, adjacency: Any) -> Graph:
        """Build from a symmetric sparse (N, N) matrix; its diagonal is ignored."""
        matrix = sparse.csr_array(adjacency, dtype=np.float64, copy=True)
        matrix.setdiag(0)
        matrix.eliminate_zeros()
        matrix.sum_duplicates()
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)

    @property
    def n_items(self) -> int:
        """Number of items, N."""
        return len(self.start_n) - 1

    @cached_property
    def degree(self) -> float:
        """Mean total edge weight of items that have edges; 0 without edges."""
        linked = int((np.diff(self.start_n) > 0).sum())
        return float(self.weight_e.sum()) / linked if linked else 0.0

    @cached_property
    def reverse_e(self) -> Indices:
        """(2 E,) index of the same edge in the other direction."""
        item_e = np.repeat(np.arange(self.n_items), np.diff(self.start_n))
        return np.asarray(np.lexsort((item_e, self.neighbour_e)))

    @cached_property
    def weights(self) -> tuple[Floats, Indices]:
        """(U,) distinct weights, and (2 E,) the index of each edge's weight."""
        value_u, code_e = np.unique(self.weight_e, return_inverse=True)
        return value_u, code_e.astype(np.int64)

    @cached_property
    def runs(self) -> Indices:
        """(threads + 1,) bounds of runs of items with about as many edges each."""
        threads = 1 if len(self.neighbour_e) < SERIAL_BELOW else int(get_num_threads())
        edges = np.arange(1, threads) * len(self.neighbour_e) / threads
        return np.concatenate(([0], np.searchsorted(self.start_n[:-1], edges), [self.n_items]))

    def largest(self, value_n: Floats) -> Floats:
        """Return (N,) largest value, at least 0, among the neighbors of each item; 0 without neighbors."""
        linked_n = np.diff(self.start_n) > 0
        largest_n = np.zeros(self.n_items)
        if linked_n.any():
            largest_n[linked_n] = np.maximum.reduceat(value_n[self.neighbour_e], self.start_n[:-1][linked_n])
        return largest_n

    def sums(self, value_nj: Floats, out: Floats | None = None) -> Floats:
        """Return (N, J) weighted sums over the neighbors of each item, written to `out` if given."""
        sum_nj = np.empty_like(value_nj) if out is None else out
        in_runs(_sum, self.runs, self.start_n, self.neighbour_e, self.weight_e, value_nj, sum_nj)
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
