"""Core sets: items that together are near to all others, for diverse batches.

    maximize over batches S of size `wanted`:   - max_n min_{s in chosen + S} |x_n - x_s|

Greedy k-center (Sener & Savarese 2018, algorithm 1; Gonzalez 1985): repeatedly take the item furthest from everything
taken so far. Its cover radius is at most twice the best one. O(N D) per step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import prange

from hitl.annotations import Floats
from hitl.models.numerics.compiled import threaded


def core_set(features: Floats, chosen: npt.NDArray[np.integer], wanted: int) -> npt.NDArray[np.int64]:
    """Return (min(wanted, N - chosen),) rows of `features` (N, D) to take in addition to the rows `chosen`, in order.

    Ties go to the first item, and row 0 comes first if nothing is chosen. A row of NaN, an item without features, is
    near to nothing: such rows are taken before any other.
    """
    x_nd = np.ascontiguousarray(features, dtype=np.float64)
    squared_n = np.full(len(x_nd), np.inf)
    for row in chosen:
        _nearer(x_nd, int(row), squared_n)
    squared_n[np.asarray(chosen, dtype=np.int64)] = -1.0
    taken = np.empty(max(min(wanted, len(x_nd) - len(np.unique(chosen))), 0), dtype=np.int64)
    for step in range(len(taken)):
        taken[step] = squared_n.argmax()
        _nearer(x_nd, int(taken[step]), squared_n)
        squared_n[taken[step]] = -1.0
    return taken


@threaded
def _nearer(x_nd: Floats, row: int, squared_n: Floats) -> None:
    """Lower the squared distance of each item to the taken set by its distance to `row`."""
    for n in prange(len(x_nd)):
        total = 0.0
        for d in range(x_nd.shape[1]):
            total += (x_nd[n, d] - x_nd[row, d]) ** 2
        if total < squared_n[n]:  # never true if either has no features
            squared_n[n] = total
