"""The bound on E log-sum-exp: above the truth and near it, at its minimum, with the derivatives that are stated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from hitl.annotations import Floats
from hitl.models.numerics.softmax_bound import tilted


def bound(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    found, a_nj = tilted(torch.from_numpy(mean), torch.from_numpy(variance))
    return found.numpy(), a_nj.numpy()


def at(a: Floats, mean: Floats, variance: Floats) -> float:
    return float(0.5 * (a * a * variance).sum() + logsumexp(mean + (0.5 - a) * variance))


def exact(mean: Floats, variance: Floats, nodes: int = 40) -> float:
    """E log sum exp by Gauss-Hermite quadrature in every dimension."""
    x, weight = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[x] * len(mean), indexing="ij"), axis=-1).reshape(-1, len(mean))
    weights = np.stack(np.meshgrid(*[weight] * len(mean), indexing="ij"), axis=-1).reshape(-1, len(mean)).prod(axis=1)
    return float(weights @ logsumexp(mean + np.sqrt(variance) * grid, axis=1) / weights.sum())


@pytest.mark.parametrize("classes", [2, 3])
def test_above_the_expectation_and_near_it(classes: int) -> None:
    rng = np.random.default_rng(0)
    for scale, near in ((0.1, 1e-3), (1.0, 0.05), (4.0, 0.35)):
        for _ in range(10):
            mean, variance = rng.normal(size=classes), scale * rng.uniform(size=classes)
            gap = bound(mean[None], variance[None])[0][0] - exact(mean, variance)
            assert -1e-9 <= gap < near


@given(seed=st.integers(0, 10_000), classes=st.integers(2, 12), scale=st.floats(0.0, 40.0))
def test_its_minimum_is_found(seed: int, classes: int, scale: float) -> None:
    """The tilts are a distribution, the fixed point, and no tilt nearby is better."""
    rng = np.random.default_rng(seed)
    mean, variance = 3 * rng.normal(size=(1, classes)), scale * rng.uniform(size=(1, classes))
    found, a_nj = bound(mean, variance)
    logits = mean + (0.5 - a_nj) * variance
    np.testing.assert_allclose(a_nj, np.exp(logits - logsumexp(logits)), atol=1e-9)
    np.testing.assert_allclose(a_nj.sum(), 1, atol=1e-9)
    for _ in range(10):
        assert at(a_nj[0] + 0.01 * rng.normal(size=classes), mean[0], variance[0]) >= found[0] - 1e-9


def test_derivatives_are_closed() -> None:
    rng = np.random.default_rng(1)
    mean, variance = rng.normal(size=(1, 4)), rng.uniform(0.1, 5, size=(1, 4))
    _, a_nj = bound(mean, variance)
    for j in range(4):
        step = 1e-5 * np.eye(4)[j]
        in_mean = (bound(mean + step, variance)[0] - bound(mean - step, variance)[0]) / 2e-5
        in_variance = (bound(mean, variance + step)[0] - bound(mean, variance - step)[0]) / 2e-5
        np.testing.assert_allclose(in_mean, a_nj[0, j], atol=1e-8)
        np.testing.assert_allclose(in_variance, a_nj[0, j] * (1 - a_nj[0, j]) / 2, atol=1e-8)


def test_without_variance_it_is_exact() -> None:
    mean = np.random.default_rng(2).normal(size=(5, 3))
    found, a_nj = bound(mean, np.zeros((5, 3)))
    np.testing.assert_allclose(found, logsumexp(mean, axis=1), atol=1e-12)
    np.testing.assert_allclose(a_nj, np.exp(mean - found[:, None]), atol=1e-12)
