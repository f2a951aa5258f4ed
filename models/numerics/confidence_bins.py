"""One pass over all items that finds the least sure ones and selects their labels.

    u_n = 1 - max_j q_nj         bin = number of times u halves from 1, in quarter halvings: 0 is the least sure

Bins count labels; their counts add up over shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.numerics.compiled import compiled, threaded
from hitl.models.numerics.kernels import BLOCK, equal_runs, gather, scatter, softmax, threads_counting

BINS = 256
"""Number of bins: four per halving, down to the smallest difference from 1 and below."""

_ONE = int(np.float64(1.0).view(np.int64)) >> 50


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Labels of a subset of items, with the part of `Annotations` that the loops of `kernels` read."""

    item_start: npt.NDArray[np.int64]
    cell: npt.NDArray[Any]
    n_annotators: int
    n_options: int
    n_classes: int

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_start) - 1

    def __len__(self) -> int:
        return len(self.cell)


@dataclass(frozen=True, eq=False, slots=True)
class Judged:
    """Result of one pass over all items.

    Attributes:
        q_nj: (N, J) beliefs.
        bin_n: (N,) bin of each item; the last one if the truth is known or the item does not count.
        labels_b: (BINS,) labels of the other items by bin.
        counts_klj, total_j: expected counts (K, L, J) and numbers of items (J,) over the sure items that count.
        log_evidence: sum of the log normalizers of all items that count.
    """

    q_nj: Floats
    bin_n: npt.NDArray[np.uint8]
    labels_b: npt.NDArray[np.int64]
    counts_klj: Floats
    total_j: Floats
    log_evidence: float


def judged(
    evidence: Evidence,
    log_pi_klj: Floats,
    log_prior_j: Floats,
    counted_n: npt.NDArray[np.bool_],
    bins: int,
    out: Floats | None = None,
) -> Judged:
    """Compute messages, beliefs, bins and the counts of sure items, block by block in the fastest cache.

    Items in the first `bins` bins are unsure. All items have the same prior. Beliefs are written to `out` (N, J).
    """
    labels = evidence.annotations
    table = np.ascontiguousarray(log_pi_klj).reshape(-1, labels.n_classes)
    truth_n = np.full(labels.n_items, -1) if evidence.truth is None else evidence.truth
    q_nj = np.empty((labels.n_items, labels.n_classes)) if out is None else out
    bin_n = np.empty(labels.n_items, dtype=np.uint8)
    counts_klj = np.zeros(log_pi_klj.shape)
    runs = equal_runs(labels, threads_counting(len(labels), counts_klj.nbytes))
    others = np.zeros((len(runs) - 2, *table.shape))
    labels_rb = np.zeros((len(runs) - 1, BINS), dtype=np.int64)
    sums = np.zeros((len(runs) - 1, labels.n_classes + 1))
    loop = _judged if len(runs) == 2 else _judged_threaded
    items = labels.item_start, labels.cell, truth_n, counted_n
    loop(
        runs,
        *items,
        table,
        log_prior_j[None],
        bins,
        q_nj,
        bin_n,
        counts_klj.reshape(table.shape),
        others,
        labels_rb,
        sums,
    )
    total: Floats = sums.sum(axis=0)
    return Judged(q_nj, bin_n, labels_rb.sum(axis=0), counts_klj, total[:-1], float(total[-1]))


def first_bins(labels_b: npt.NDArray[np.int64], share: float, most: int) -> int:
    """Return how many of the first bins hold this share of all uncertainty, within at most `most` labels."""
    unsure_b = labels_b * 0.5 ** (np.arange(BINS) / 4)
    enough = int(np.searchsorted(np.cumsum(unsure_b), share * unsure_b.sum())) + 1
    return min(enough, int(np.searchsorted(np.cumsum(labels_b), most, side="right")))


def rows_of(annotations: Annotations, items: npt.NDArray[np.intp]) -> Rows:
    """Select the labels of these items, in their order."""
    start = annotations.item_start
    own_start = np.zeros(items.size + 1, dtype=np.int64)
    np.cumsum(start[items + 1] - start[items], out=own_start[1:])
    cell = np.empty(own_start[-1], dtype=annotations.cell.dtype)
    _copied(items, start, annotations.cell, own_start, cell)
    return Rows(own_start, cell, annotations.n_annotators, annotations.n_options, annotations.n_classes)


@compiled
def _of_run(
    first: Any,
    last: Any,
    start: Any,
    cell: Any,
    truth: Any,
    counted: Any,
    table: Any,
    log_prior: Any,
    bins: Any,
    q: Any,
    bin_n: Any,
    counts: Any,
    labels: Any,
    sums: Any,
) -> None:
    classes = table.shape[1]
    log_z, sure = np.empty(BLOCK), np.empty(BLOCK, dtype=np.bool_)
    own = np.zeros(classes + 1)  # on a cache line that no other thread writes to
    for begin in range(first, last, BLOCK):
        size = min(begin + BLOCK, last) - begin
        block = q[begin : begin + size]
        gather(0, size, start[begin:], cell, table, block)
        for i in range(size):
            if truth[begin + i] >= 0:
                for j in range(classes):
                    if j != truth[begin + i]:
                        block[i, j] = -np.inf
        softmax(0, size, block, log_prior, block, log_z)
        for i in range(size):
            n = begin + i
            b = BINS - 1
            if counted[n]:
                own[classes] += log_z[i]
                if truth[n] < 0:
                    b = _bin(block[i])
                    labels[b] += start[n + 1] - start[n]
            bin_n[n] = b
            sure[i] = counted[n] and b >= bins
            if sure[i]:
                for j in range(classes):
                    own[j] += block[i, j]
        scatter(0, size, start[begin:], cell, block, sure, counts)
    sums[:] = own


@compiled
def _bin(row: Any) -> Any:
    top = 0.0
    for j in range(row.shape[0]):
        top = max(top, row[j])
    halved = _ONE - (np.float64(1.0 - top).view(np.int64) >> 50)
    return min(max(halved, 0), BINS - 1) if top < 1.0 else BINS - 1


@compiled
def _judged(
    runs: Any,
    start: Any,
    cell: Any,
    truth: Any,
    counted: Any,
    table: Any,
    log_prior: Any,
    bins: Any,
    q: Any,
    bin_n: Any,
    counts: Any,
    others: Any,
    labels: Any,
    sums: Any,
) -> None:
    _of_run(runs[0], runs[1], start, cell, truth, counted, table, log_prior, bins, q, bin_n, counts, labels[0], sums[0])


@threaded
def _judged_threaded(
    runs: Any,
    start: Any,
    cell: Any,
    truth: Any,
    counted: Any,
    table: Any,
    log_prior: Any,
    bins: Any,
    q: Any,
    bin_n: Any,
    counts: Any,
    others: Any,
    labels: Any,
    sums: Any,
) -> None:
    for run in prange(len(runs) - 1):
        mine = others[np.int64(run) - 1] if run else counts
        _of_run(
            runs[run],
            runs[run + 1],
            start,
            cell,
            truth,
            counted,
            table,
            log_prior,
            bins,
            q,
            bin_n,
            mine,
            labels[run],
            sums[run],
        )
    for c in prange(counts.shape[0]):
        for other in range(others.shape[0]):
            for j in range(counts.shape[1]):
                counts[c, j] += others[other, c, j]


@compiled
def _copied(items: Any, start: Any, cell: Any, own_start: Any, out: Any) -> None:
    for i in range(items.shape[0]):
        first = start[items[i]]
        for m in range(own_start[i], own_start[i + 1]):
            out[m] = cell[first + m - own_start[i]]
