"""Nearest neighbours: against plain loops over all pairs, by the tree and by products of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.annotations import Floats
from hitl.errors import BadSettings
from hitl.models.graphs.neighbours import TREE_UP_TO, nearest_neighbours

FEW, MANY = 3, TREE_UP_TO + 4


def brute_force(x_nd: Floats, k: int) -> Floats:
    """(N, N) by the definition: each with its k nearest, by standardised features, in either direction."""
    there = [n for n in range(len(x_nd)) if not np.isnan(x_nd[n]).any()]
    mean, deviation = x_nd[there].mean(axis=0), x_nd[there].std(axis=0)
    z_nd = (x_nd - mean) / np.where(deviation > 1e-9, deviation, np.inf)
    linked = np.zeros((len(x_nd), len(x_nd)))
    for n in there:
        others = sorted((m for m in there if m != n), key=lambda m: float(((z_nd[m] - z_nd[n]) ** 2).sum()))
        for m in others[:k]:
            linked[n, m] = linked[m, n] = 1
    return linked


@pytest.mark.parametrize("n_features", [1, FEW, TREE_UP_TO, TREE_UP_TO + 1, MANY])
@pytest.mark.parametrize("k", [1, 4])
def test_neighbours_are_those_of_plain_loops(n_features: int, k: int) -> None:
    rng = np.random.default_rng(n_features)
    x_nd = rng.normal(3, 1, size=(60, n_features)) * rng.uniform(0.01, 100, size=n_features)
    x_nd[[0, 17, 59]] = np.nan
    found = nearest_neighbours(x_nd, k)
    assert found.format == "csr"
    np.testing.assert_array_equal(found.toarray(), brute_force(x_nd, k))


def test_items_without_features_have_no_edges() -> None:
    x_nd = np.random.default_rng(0).normal(size=(6, FEW))
    x_nd[2] = np.nan
    found = nearest_neighbours(x_nd, 10).toarray()
    assert found[2].sum() == found[:, 2].sum() == 0
    assert found.sum() == 5 * 4
    assert nearest_neighbours(np.full((3, 2), np.nan), 2).nnz == 0
    assert nearest_neighbours(np.empty((3, 0)), 1).nnz == 0


@pytest.mark.parametrize("n_features", [FEW, MANY])
def test_items_at_one_place_are_linked_to_others_than_themselves(n_features: int) -> None:
    """Ten items at each of three places: nine others are at distance 0, any four of them will do."""
    x_nd = np.repeat(np.random.default_rng(0).normal(size=(3, n_features)), 10, axis=0)
    found = nearest_neighbours(x_nd, 4).toarray()
    assert np.diagonal(found).sum() == 0
    assert found.sum(axis=1).min() >= 4
    place = np.repeat(np.arange(3), 10)
    assert (found[place[:, None] != place] == 0).all()


@pytest.mark.parametrize("n_features", [FEW, MANY])
def test_units_do_not_matter_nor_does_a_feature_that_is_the_same_for_all(n_features: int) -> None:
    x_nd = np.random.default_rng(0).normal(size=(40, n_features))
    units = np.geomspace(1e-6, 1e6, n_features)
    expected = nearest_neighbours(x_nd, 3).toarray()
    np.testing.assert_array_equal(nearest_neighbours(x_nd * units + 5 * units, 3).toarray(), expected)
    same = np.insert(x_nd, 1, 0.1, axis=1)  # its mean is not 0.1 to the last bit
    np.testing.assert_array_equal(nearest_neighbours(same, 3).toarray(), expected)


@pytest.mark.parametrize(
    ("features", "k", "message"),
    [
        ([[1.0], [2.0]], 0, "neighbours is 0; expected a whole number of at least 1"),
        ([[1.0], [2.0]], -3, "neighbours is -3"),
        ([[1.0], [2.0]], 1.5, "neighbours is 1.5"),
        ([[1.0], [2.0]], "2", "neighbours is '2'"),
        ([["a"], ["b"]], 1, "features are no table of numbers"),
        ([[1.0], [2.0, 3.0]], 1, "features are no table of numbers"),
        ([1.0, 2.0], 1, r"features have shape \(2,\); expected numbers \(N, D\)"),
    ],
)
def test_what_cannot_be_linked_says_why(features: Any, k: int, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        nearest_neighbours(features, k)
