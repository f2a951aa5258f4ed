"""Which items are least sure, and their labels alone.

    u_n = 1 - max_j q_nj         bin = how often u halves from 1, in quarters of a halving: 0 is the least sure

Bins are counted in labels; their counts add up over shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange

from hitl.annotations import Annotations, Floats
from hitl.models.numerics.compiled import compiled, threaded
from hitl.models.numerics.kernels import equal_runs, threads_for

BINS = 256
"""Four for each halving, down to the smallest difference from 1 and below."""

_ONE = int(np.float64(1.0).view(np.int64)) >> 50


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Labels of some items: what the loops of `kernels` read of `Annotations`."""

    item_start: npt.NDArray[np.int64]
    cell: npt.NDArray[Any]
    n_annotators: int
    n_options: int
    n_classes: int

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.item_start) - 1

    def __len__(self) -> int:
        return len(self.cell)


def binned(
    annotations: Annotations, q_nj: Floats, among_n: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """(N,) bin of each item, the last one outside `among_n`; and (BINS,) labels of each bin among them."""
    bin_n = np.empty(len(q_nj), dtype=np.uint8)
    runs = equal_runs(annotations, threads_for(len(annotations)))
    labels = np.zeros((len(runs) - 1, BINS), dtype=np.int64)
    loop = _binned if len(runs) == 2 else _binned_threaded
    loop(runs, annotations.item_start, np.ascontiguousarray(q_nj), among_n, bin_n, labels)
    return bin_n, labels.sum(axis=0)


def first_bins(labels_b: npt.NDArray[np.int64], share: float, most: int) -> int:
    """How many of the first bins hold such a share of all that is unsure, in at most so many labels."""
    unsure_b = labels_b * 0.5 ** (np.arange(BINS) / 4)
    enough = int(np.searchsorted(np.cumsum(unsure_b), share * unsure_b.sum())) + 1
    return min(enough, int(np.searchsorted(np.cumsum(labels_b), most, side="right")))


def rows_of(annotations: Annotations, items: npt.NDArray[np.intp]) -> Rows:
    """The labels of these items, in their order."""
    start = annotations.item_start
    own_start = np.zeros(items.size + 1, dtype=np.int64)
    np.cumsum(start[items + 1] - start[items], out=own_start[1:])
    cell = np.empty(own_start[-1], dtype=annotations.cell.dtype)
    _copied(items, start, annotations.cell, own_start, cell)
    return Rows(own_start, cell, annotations.n_annotators, annotations.n_options, annotations.n_classes)


@compiled
def _of_run(first: int, last: int, start: Any, q: Any, among: Any, bins: Any, labels: Any) -> None:
    for n in range(first, last):
        bins[n] = BINS - 1
        if among[n]:
            top = 0.0
            for j in range(q.shape[1]):
                top = max(top, q[n, j])
            halved = _ONE - (np.float64(1.0 - top).view(np.int64) >> 50)
            b = min(max(halved, 0), BINS - 1) if top < 1.0 else BINS - 1
            bins[n] = b
            labels[b] += start[n + 1] - start[n]


@compiled
def _binned(runs: Any, start: Any, q: Any, among: Any, bins: Any, labels: Any) -> None:
    _of_run(runs[0], runs[1], start, q, among, bins, labels[0])


@threaded
def _binned_threaded(runs: Any, start: Any, q: Any, among: Any, bins: Any, labels: Any) -> None:
    for run in prange(len(runs) - 1):
        _of_run(runs[run], runs[run + 1], start, q, among, bins, labels[run])


@compiled
def _copied(items: Any, start: Any, cell: Any, own_start: Any, out: Any) -> None:
    for i in range(items.shape[0]):
        first = start[items[i]]
        for m in range(own_start[i], own_start[i + 1]):
            out[m] = cell[first + m - own_start[i]]
