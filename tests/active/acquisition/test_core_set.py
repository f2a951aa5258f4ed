"""Core sets against the best cover there is, by enumeration."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hitl.active.acquisition.core_set import core_set
from hitl.annotations import Floats


def radius(x: Floats, centres: list[int]) -> float:
    """How far the item is that is furthest from all centres."""
    return float(np.linalg.norm(x[:, None] - x[centres][None], axis=2).min(axis=1).max())


@given(st.integers(0, 100_000), st.integers(1, 4), st.integers(0, 2), st.integers(1, 3))
def test_the_cover_is_within_twice_the_best(seed: int, wanted: int, given_before: int, dimensions: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((9, dimensions)) * 10.0 ** rng.uniform(-2, 2, (9, 1))
    chosen = rng.choice(9, given_before, replace=False)
    found = core_set(x, chosen, wanted).tolist()
    best = min(radius(x, [*chosen, *some]) for some in itertools.combinations(range(9), wanted))
    assert len(set(found) | set(chosen.tolist())) == wanted + given_before
    assert radius(x, [*chosen, *found]) <= 2 * best + 1e-9


@given(st.integers(0, 100_000))
def test_each_step_takes_the_furthest(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((30, 4))
    found = core_set(x, np.array([7, 3]), 10).tolist()
    taken = [7, 3]
    for row in found:
        far = np.linalg.norm(x[:, None] - x[taken][None], axis=2).min(axis=1)
        assert row == int(far.argmax())
        taken.append(row)


def test_equal_items_are_taken_in_order_and_once() -> None:
    x = np.zeros((5, 2))
    assert core_set(x, np.array([], dtype=int), 3).tolist() == [0, 1, 2]
    assert core_set(x, np.array([1]), 9).tolist() == [0, 2, 3, 4]
    assert core_set(x, np.arange(5), 2).tolist() == []
    assert core_set(x, np.array([], dtype=int), 0).tolist() == []


def test_an_item_without_features_is_near_to_nothing() -> None:
    x = np.array([[0.0], [np.nan], [1.0], [np.nan], [0.1]])
    assert core_set(x, np.array([0]), 4).tolist() == [1, 3, 2, 4]
    assert core_set(x, np.array([1]), 4).tolist() == [0, 3, 2, 4]
