"""Acquisition scores against plain enumeration."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hitl.active.scores import chance_right, crew_confusion, entropy, expected_information_gain
from hitl.annotations import Floats


def simplex(rng: np.random.Generator, *shape: int) -> Floats:
    raw = rng.gamma(0.5, size=shape) + 1e-12
    return raw / raw.sum(axis=-1, keepdims=True)


def information_by_enumeration(q_j: Floats, pi_jl: Floats) -> float:
    """H(z) - sum_l p(l) H(z | l): the other way to write the same mutual information."""
    before = -sum(q * np.log(q) for q in q_j if q > 0)
    after = 0.0
    for answer in range(pi_jl.shape[1]):
        joint = [q_j[j] * pi_jl[j, answer] for j in range(len(q_j))]
        total = sum(joint)
        if total > 0:
            after += -sum(p * np.log(p / total) for p in joint if p > 0)
    return before - after


@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(0, 2))
def test_information_gain_is_the_fall_in_entropy_of_the_truth(seed: int, classes: int, extra: int) -> None:
    rng = np.random.default_rng(seed)
    q, pi = simplex(rng, 4, classes), simplex(rng, classes, classes + extra)
    gain = expected_information_gain(q, pi)
    assert np.allclose(gain, [information_by_enumeration(row, pi) for row in q], atol=1e-10)
    assert (gain >= 0).all()
    assert (gain <= entropy(q) + 1e-12).all()


def test_nothing_is_learned_from_a_coin_or_about_a_certainty() -> None:
    even = np.full((1, 3), 1 / 3)
    assert expected_information_gain(even, np.full((3, 3), 1 / 3))[0] == 0
    assert expected_information_gain(np.array([[0.0, 1.0, 0.0]]), np.eye(3))[0] == 0
    assert np.isclose(expected_information_gain(even, np.eye(3))[0], np.log(3))


def test_entropy_of_one_hot_rows_is_exactly_zero() -> None:
    assert (entropy(np.eye(4)) == 0).all()
    assert np.isclose(entropy(np.full((1, 4), 0.25))[0], np.log(4))


def test_chance_right_is_the_sum_over_true_classes() -> None:
    rng = np.random.default_rng(3)
    q, pi = simplex(rng, 6, 3), simplex(rng, 5, 3, 4)
    right = chance_right(q, pi)
    for n in range(6):
        for k in range(5):
            assert np.isclose(right[n, k], sum(q[n, j] * pi[k, j, j] for j in range(3)))


def test_somebody_of_the_crew_is_the_weighted_mean() -> None:
    rng = np.random.default_rng(4)
    pi = simplex(rng, 3, 2, 2)
    assert np.allclose(crew_confusion(pi, np.array([1.0, 0.0, 3.0])), 0.25 * pi[0] + 0.75 * pi[2])
