"""Vector, matrix, Dirichlet scaling: against plain objectives, finite differences, scikit-learn, and their limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from hitl.models.calibration import (
    DirichletCalibration,
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from tests.miscalibrated import bent, honest


def data(seed: int, n: int = 60, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """(N, J) bent probabilities and (N, J) soft labels."""
    rng = np.random.default_rng(seed)
    p, truth = honest(rng, n, classes)
    q = 0.7 * np.eye(classes)[truth] + 0.3 * rng.dirichlet(np.ones(classes), size=n)
    return bent(p, np.linspace(0.5, 2.5, classes), np.linspace(1, -1, classes)), q


def plain(p: np.ndarray, q: np.ndarray, w: np.ndarray, b: np.ndarray) -> float:
    """Sum of the log likelihoods, item by item."""
    total = 0.0
    for p_j, q_j in zip(p, q, strict=True):
        logit = [sum(w[i, j] * np.log(p_j[j]) for j in range(len(b))) + b[i] for i in range(len(b))]
        total += float(q_j @ (np.array(logit) - np.log(np.exp(logit).sum())))
    return total


def vector(p: np.ndarray, q: np.ndarray, x: np.ndarray, s: VectorScaling | MatrixScaling) -> float:
    """Minus the log posterior of u, d (J), b (J) and, with a matrix, what lies off its diagonal."""
    classes = p.shape[1]
    u, d, b, rest = x[0], x[1 : 1 + classes], x[1 + classes : 1 + 2 * classes], x[1 + 2 * classes :]
    w = np.diag(np.exp(-u - d))
    penalty = ((u - s.prior.mean) / s.prior.sd) ** 2 + (d**2).sum() / s.spread**2 + (b**2).sum() / s.shift**2
    if isinstance(s, MatrixScaling):
        w[~np.eye(classes, dtype=bool)] = rest
        penalty += (rest**2).sum() / s.off**2
    return 0.5 * penalty - plain(p, q, w, b)


def dirichlet(p: np.ndarray, q: np.ndarray, x: np.ndarray, s: DirichletCalibration) -> float:
    classes = p.shape[1]
    w, b = x[: classes**2].reshape(classes, classes), x[classes**2 :]
    off = [w[i, j] ** 2 for i in range(classes) for j in range(classes) if i != j]
    return -plain(p, q, w, b) / len(p) + s.off * np.mean(off) + s.intercept * np.mean(b**2)


def mapped(p: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(log_softmax(np.log(p) @ w.T + b, axis=1))


@pytest.mark.parametrize("seed", range(2))
def test_vector_scaling_is_what_a_general_optimiser_finds(seed: int) -> None:
    p, q = data(seed, n=40)
    scaling = VectorScaling(spread=0.4, shift=0.8)
    found = minimize(lambda x: vector(p, q, x, scaling), np.r_[0.5, np.zeros(6)], method="BFGS").x
    expected = mapped(p, np.diag(np.exp(-found[0] - found[1:4])), found[4:])
    np.testing.assert_allclose(scaling.fit(p, q).apply(p), expected, atol=1e-4)


def test_matrix_scaling_is_what_a_general_optimiser_finds() -> None:
    p, q = data(2, n=30)
    scaling = MatrixScaling(spread=0.4, shift=0.8, off=0.2)
    found = minimize(lambda x: vector(p, q, x, scaling), np.r_[0.5, np.zeros(12)], method="BFGS").x
    w = np.diag(np.exp(-found[0] - found[1:4]))
    w[~np.eye(3, dtype=bool)] = found[7:]
    np.testing.assert_allclose(scaling.fit(p, q).apply(p), mapped(p, w, found[4:7]), atol=1e-4)


def test_dirichlet_calibration_is_what_a_general_optimiser_finds() -> None:
    p, q = data(3, n=30)
    scaling = DirichletCalibration(0.05, 0.02)
    found = minimize(lambda x: dirichlet(p, q, x, scaling), np.r_[np.eye(3).ravel(), np.zeros(3)], method="BFGS").x
    np.testing.assert_allclose(scaling.fit(p, q).apply(p), mapped(p, found[:9].reshape(3, 3), found[9:]), atol=1e-4)


def test_each_scaling_holds_the_one_before_it() -> None:
    p, truth = honest(np.random.default_rng(6), 200, 4)
    p = bent(p, 2.0, np.array([1, 0, 0, -1]))
    one = TemperatureScaling().fit(p, truth).apply(p)
    np.testing.assert_allclose(VectorScaling(spread=1e-5, shift=1e-5).fit(p, truth).apply(p), one, atol=1e-4)
    several = VectorScaling().fit(p, truth).apply(p)
    np.testing.assert_allclose(MatrixScaling(off=1e-6).fit(p, truth).apply(p), several, atol=1e-4)
    assert np.abs(several - one).max() > 0.05
