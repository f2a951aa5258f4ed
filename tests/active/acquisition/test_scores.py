"""Acquisition scores against plain enumeration."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from hitl.active.acquisition import scores
from hitl.active.acquisition.scores import chance_right, entropy, expected_information_gain
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


def test_chance_right_is_the_sum_over_true_classes() -> None:
    rng = np.random.default_rng(3)
    q, pi = simplex(rng, 6, 3), simplex(rng, 5, 3, 4)
    right = chance_right(q, pi)
    for n in range(6):
        for k in range(5):
            assert np.isclose(right[n, k], sum(q[n, j] * pi[k, j, j] for j in range(3)))


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_uncertainty_of_rows_one_by_one(seed: int, classes: int) -> None:
    q = simplex(np.random.default_rng(seed), 20, classes)
    for row, gap, least in zip(q.tolist(), scores.margin(q), scores.least_confidence(q), strict=True):
        best, second = sorted(row, reverse=True)[:2]
        assert np.isclose(gap, second - best)
        assert np.isclose(least, sum(row) - best)


def test_latent_uncertainty_is_the_probability_of_the_class_in_standard_deviations() -> None:
    """Phi of |mu| / sqrt(1 + sigma^2) is the chance of the likelier class under a probit link, by quadrature."""
    mean, variance = np.array([0.0, 0.5, -0.5, 2.0, 2.0]), np.array([3.0, 0.1, 0.1, 0.2, 9.0])
    score = scores.latent_uncertainty(mean, variance)
    x, weight = np.polynomial.hermite_e.hermegauss(200)
    chance = [
        (ndtr(m + np.sqrt(v) * x) * weight).sum() / np.sqrt(2 * np.pi) for m, v in zip(mean, variance, strict=True)
    ]
    assert np.allclose(ndtr(-score), [max(p, 1 - p) for p in chance], atol=1e-10)
    assert np.argsort(-score, kind="stable").tolist() == [0, 1, 2, 4, 3]  # the boundary first, then where less is known


def accuracy_by_enumeration(q_j: Floats, pi_jl: Floats, answers: int) -> float:
    """Sum over all sequences of answers of the chance that the label chosen then is right, less the chance now."""
    after = 0.0
    for sequence in itertools.product(range(pi_jl.shape[1]), repeat=answers):
        after += max(q * np.prod([pi_jl[j, a] for a in sequence]) for j, q in enumerate(q_j))
    return float(after - max(q_j))


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(0, 1), st.integers(1, 3))
def test_accuracy_gain_is_the_rise_of_the_chance_of_a_right_label(
    seed: int, classes: int, extra: int, answers: int
) -> None:
    rng = np.random.default_rng(seed)
    q, pi = simplex(rng, 3, classes), simplex(rng, classes, classes + extra)
    gain = scores.expected_accuracy_gain(q, pi, answers)
    assert np.allclose(gain, [accuracy_by_enumeration(row, pi, answers) for row in q], atol=1e-12)
    assert (gain >= 0).all()
