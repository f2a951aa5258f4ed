"""Graph of nearest neighbors: items with similar features are linked.

    z_nd = (x_nd - mean_d) / deviation_d          d(n, m)² = |z_n|² + |z_m|² - 2 z_n · z_m
    n ~ m   if m is one of the k items nearest to n, or n is one of the k nearest to m          w_nm = 1

The search is exact. With few features a k-d tree finds the neighbors. With many, where a tree would visit nearly all
items, products of blocks of items give the distances: O(N² D) time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.spatial import cKDTree

from hitl.annotations import Floats
from hitl.errors import BadSettings

Indices = npt.NDArray[np.int64]

TREE_UP_TO = 10
"""Number of features up to which the tree is faster."""

ROUNDING = 1e-12
"""A feature is constant if its standard deviation is at most this share of its largest absolute value."""

BLOCK = 2**22
"""Maximum number of distances computed at a time."""


def nearest_neighbours(features: npt.ArrayLike, k: int) -> sparse.csr_array:
    """Link each item to the k items with the nearest features, in a symmetric sparse (N, N) matrix of ones.

    `features` (N, D) are standardized over the items that have any. An item with a NaN in its row has no edge. With at
    most k other items, all are linked. Ties are broken arbitrarily. Raise BadSettings for k < 1, and for features
    that are no table of numbers.

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
    """Scale each feature to mean 0 and standard deviation 1, constant features to 0."""
    centred, deviation = x_nd - x_nd.mean(axis=0), x_nd.std(axis=0)
    varies = deviation > ROUNDING * np.abs(x_nd).max(axis=0)
    return np.ascontiguousarray(np.where(varies, centred, 0.0) / np.where(varies, deviation, 1.0))


def _nearest(z_nd: Floats, k: int) -> Indices:
    """Return (N, k) the k other items nearest to each item, k < N."""
    return _by_tree(z_nd, k) if z_nd.shape[1] <= TREE_UP_TO else _by_products(z_nd, k)


def _by_tree(z_nd: Floats, k: int) -> Indices:
    # a balanced tree is slow to build if many items are alike
    nearest = cKDTree(z_nd, balanced_tree=False).query(z_nd, k + 1, workers=-1)[1]
    own = nearest == np.arange(len(z_nd))[:, None]
    own[~own.any(axis=1), -1] = True  # k others at the same place came before the item itself
    return np.asarray(nearest[~own].reshape(len(z_nd), k), dtype=np.int64)


def _by_products(z_nd: Floats, k: int) -> Indices:
    n_items = len(z_nd)
    square_n = (z_nd**2).sum(axis=1)
    nearest_nk = np.empty((n_items, k), dtype=np.int64)
    height = max(1, BLOCK // n_items)
    for first in range(0, n_items, height):
        rows = np.arange(first, min(first + height, n_items))
        distance = square_n - 2 * (z_nd[rows] @ z_nd.T)  # without |z_n|², which all distances of an item have in common
        distance[np.arange(rows.size), rows] = np.inf
        nearest_nk[rows] = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return nearest_nk
