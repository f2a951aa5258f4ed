"""Graph of nearest neighbours: items with like features are linked.

    z_nd = (x_nd - mean_d) / deviation_d          d(n, m)² = |z_n|² + |z_m|² - 2 z_n · z_m
    n ~ m   if m is one of the k items nearest to n, or n is one of the k nearest to m          w_nm = 1

The search is exact. With few features a k-d tree finds the neighbours. With many, a tree looks at nearly all items;
then products of blocks of items give the distances, and a loop keeps the k smallest of each item: O(N² D) time, O(N k)
memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange
from scipy import sparse
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from hitl.annotations import Floats
from hitl.errors import BadSettings
from hitl.models.numerics.compiled import compiled, threaded

Indices = npt.NDArray[np.int64]

TREE_UP_TO = 10
"""Features up to which the tree is quicker."""

ROUNDING = 1e-12
"""A feature that varies by less than this share of its size is the same for all."""

ROWS, COLUMNS = 128, 1024
"""Items of a block of distances: small enough for the cache of a processor."""


def nearest_neighbours(features: npt.ArrayLike, k: int) -> sparse.csr_array:
    """Each item linked to the k items with the nearest features; a symmetric sparse (N, N) matrix of ones.

    `features` (N, D) are standardised here, over the items that have any: no unit counts more than another. An item
    whose row has a NaN has no edge. With k other items or fewer, all are linked. Of items that are equally near, any
    may be chosen. The more labels an item has, the less its neighbours count: the methods see to that, not the weights.

    Raises BadSettings for k < 1, and for features that are no table of numbers.

    Example:
        >>> from hitl.models.graphs.neighbours import nearest_neighbours
        >>> nearest_neighbours([[0.0], [1.0], [7.0], [9.0], [float("nan")]], 1).toarray().astype(int).tolist()
        [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise BadSettings(f"neighbours is {k!r}; expected a whole number of at least 1")
    try:
        x_nd = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadSettings(f"features are no table of numbers ({error}); expected (N, D)") from None
    if x_nd.ndim != 2:
        raise BadSettings(f"features have shape {x_nd.shape}; expected numbers (N, D)")
    there = np.flatnonzero(np.isfinite(x_nd).all(axis=1))
    k = min(k, len(there) - 1)
    if k < 1 or not x_nd.shape[1]:
        return sparse.csr_array((len(x_nd), len(x_nd)))
    nearest_mk = _nearest(_standardised(x_nd[there]), k)
    ends = there[np.repeat(np.arange(len(there)), k)], there[nearest_mk.ravel()]
    chosen = sparse.csr_array((np.ones(nearest_mk.size), ends), shape=(len(x_nd), len(x_nd)))
    return sparse.csr_array(chosen.maximum(chosen.T))


def _standardised(x_nd: Floats) -> Floats:
    """Mean 0 and deviation 1 for each feature; 0 for one that is the same for all."""
    centred, deviation = x_nd - x_nd.mean(axis=0), x_nd.std(axis=0)
    varies = deviation > ROUNDING * np.abs(x_nd).max(axis=0)
    return np.ascontiguousarray(np.where(varies, centred, 0.0) / np.where(varies, deviation, 1.0))


def _nearest(z_nd: Floats, k: int) -> Indices:
    """(N, k) the other items nearest to each, k < N."""
    return _by_tree(z_nd, k) if z_nd.shape[1] <= TREE_UP_TO else _by_products(z_nd, k)


def _by_tree(z_nd: Floats, k: int) -> Indices:
    # a balanced tree takes long to build where many items are alike
    found = cKDTree(z_nd, balanced_tree=False).query(z_nd, k + 1, workers=-1)[1]
    own = found == np.arange(len(z_nd))[:, None]
    own[~own.any(axis=1), -1] = True  # k others at the same place were found before the item itself
    return np.asarray(found[~own].reshape(len(z_nd), k), dtype=np.int64)


def _by_products(z_nd: Floats, k: int) -> Indices:
    n_items, width = z_nd.shape
    blocks = -(-n_items // COLUMNS)
    filled = np.concatenate([z_nd, np.zeros((blocks * COLUMNS - n_items, width))])
    block_bdc = np.ascontiguousarray(filled.reshape(blocks, COLUMNS, width).transpose(0, 2, 1))
    nearest_nk = np.empty((n_items, k), dtype=np.int64)
    with threadpool_limits(1, user_api="blas"):  # the threads are those of the search
        _search(z_nd, block_bdc, (z_nd**2).sum(axis=1), ROWS, nearest_nk)
    return nearest_nk


@threaded
def _search(z: Any, blocks: Any, square: Any, height: int, nearest: Any) -> None:
    """Runs of items in turn, each beside all blocks of items."""
    n_items, k, width = len(z), nearest.shape[1], blocks.shape[2]
    for run in prange((n_items + height - 1) // height):
        first = run * height
        rows = z[first : first + height]
        kept = np.full((len(rows), k), np.inf)
        product = np.empty((len(rows), width))
        for b in range(len(blocks)):
            np.dot(rows, blocks[b], product)
            others = square[b * width : (b + 1) * width]  # of the last block less than its width
            for n in range(len(rows)):
                _keep_smallest(first + n, b * width, product[n], others, kept[n], nearest[first + n])


@compiled
def _keep_smallest(own: int, first: int, product: Any, square: Any, kept: Any, item: Any) -> None:
    """Insert items from the first on among the k nearest so far, which are in order.

    |z_n|², which all distances of an item have in common, is left out of them.
    """
    last = len(kept) - 1
    for m in range(len(square)):
        distance = square[m] - 2 * product[m]
        if distance >= kept[last] or first + m == own:
            continue
        at = last
        while at > 0 and kept[at - 1] > distance:
            kept[at], item[at] = kept[at - 1], item[at - 1]
            at -= 1
        kept[at], item[at] = distance, first + m
