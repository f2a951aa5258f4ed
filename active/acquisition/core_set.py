"""Core sets: few items that are close to all others, for diverse batches.

    minimize over batches S of size `wanted`:   max_n min_{s in chosen + S} |x_n - x_s|

Greedy k-center (Sener & Savarese 2018, algorithm 1; Gonzalez 1985) repeatedly takes the item farthest from all items
taken so far. The resulting maximum distance is at most twice the smallest possible one. O(N D) per step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats


def core_set(features: Floats, chosen: npt.NDArray[np.integer], wanted: int) -> npt.NDArray[np.int64]:
    """Return up to `wanted` rows of `features` (N, D) to add to the rows `chosen`, in the order they are taken.

    Ties go to the first row, so row 0 comes first if nothing is chosen. Items without features (rows of NaN) are close
    to no other item, and are taken before the others.
    """
    x_nd = np.asarray(features, dtype=np.float64)
    squared_n = np.full(len(x_nd), np.inf)

    def take(row: int) -> None:
        # fmin ignores NaN, the distance to or from an item without features
        np.fmin(squared_n, ((x_nd - x_nd[row]) ** 2).sum(axis=1), out=squared_n)

    for row in chosen:
        take(int(row))
    squared_n[np.asarray(chosen, dtype=np.int64)] = -1.0
    taken = np.empty(max(min(wanted, len(x_nd) - len(np.unique(chosen))), 0), dtype=np.int64)
    for step in range(len(taken)):
        taken[step] = squared_n.argmax()
        take(int(taken[step]))
        squared_n[taken[step]] = -1.0
    return taken
