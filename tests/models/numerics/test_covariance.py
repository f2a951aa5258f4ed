"""The covariance by its formula, and its gradient by differences."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.annotations import Floats
from hitl.models.numerics.covariance import SquaredExponential

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3))
MISSING = np.where(np.arange(6)[:, None] >= 4, np.nan, X)


def kernel(ard: bool) -> SquaredExponential:
    expected = SquaredExponential.expected(3, ard)
    return expected.at(expected.theta + np.linspace(-0.4, 0.6, expected.theta.size))


@pytest.mark.parametrize("ard", [False, True])
def test_it_is_the_formula(ard: bool) -> None:
    k = kernel(ard)
    square, length = np.exp(2 * k.log_scale), np.broadcast_to(np.exp(k.log_length), 3)
    for n in range(6):
        for m in range(6):
            expected = square * np.exp(-0.5 * np.sum(((X[n] - X[m]) / length) ** 2)) + 1 + square
            assert np.isclose(k.over(X)[n, m], expected, rtol=1e-12)
    assert k.over(X)[2, 2] == k.variance


def test_items_without_features_share_the_constant_alone() -> None:
    k = kernel(True)
    covariance, constant = k.over(MISSING), 1 + np.exp(2 * k.log_scale)
    np.testing.assert_array_equal(covariance[4, :4], constant)
    assert covariance[4, 5] == constant
    assert covariance[4, 4] == covariance[0, 0] == k.variance
    np.testing.assert_array_equal(covariance[:4, :4], k.over(X[:4]))


@pytest.mark.parametrize("x_nd", [X, MISSING])
@pytest.mark.parametrize("ard", [False, True])
def test_the_gradient_is_that_of_differences(ard: bool, x_nd: Floats) -> None:
    k = kernel(ard)
    weight = RNG.normal(size=(6, 6))
    weight += weight.T
    found = k.gradient(x_nd, k.over(x_nd), weight)
    for p, step in enumerate(1e-6 * np.eye(k.theta.size)):
        above, below = (np.sum(weight * k.at(k.theta + sign * step).over(x_nd)) for sign in (1, -1))
        assert np.isclose(found[p], (above - below) / 2e-6, rtol=1e-6, atol=1e-7)
        up, down = (k.at(k.theta + sign * step).log_density() for sign in (1, -1))
        assert np.isclose(k.log_density_gradient()[p], (up - down) / 2e-6, atol=1e-6)


def test_any_share_of_the_class_is_equally_likely_beforehand() -> None:
    """Phi(c / sqrt(1 + s^2)) of the constant c is uniform."""
    from scipy.stats import kstest, norm

    k = kernel(False)
    square = np.exp(2 * k.log_scale)
    share = norm.cdf(np.random.default_rng(1).normal(scale=np.sqrt(1 + square), size=4000) / np.sqrt(1 + square))
    assert kstest(share, "uniform").pvalue > 0.01
