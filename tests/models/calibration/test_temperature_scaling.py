"""One temperature: against dense search, scikit-learn, quadrature on a fine grid; ensemble weights against a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from hitl.models.calibration import BayesianTemperature, EnsembleTemperature, LogTemperature, TemperatureScaling
from tests.miscalibrated import bent, honest

GRID = np.linspace(np.log(0.02), np.log(100), 8001)


def likelihood(p: np.ndarray, q: np.ndarray, log_t: np.ndarray) -> np.ndarray:
    """Sum of the log likelihoods at each log temperature."""
    return np.array([(q * log_softmax(np.log(p) / np.exp(u), axis=1)).sum() for u in log_t])


class AsItIs(ClassifierMixin, BaseEstimator):
    """The features are the model's log probabilities."""

    classes_ = np.arange(4)

    def fit(self, x: np.ndarray, y: np.ndarray) -> AsItIs:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, x: np.ndarray) -> np.ndarray:
        return x

    def predict(self, x: np.ndarray) -> np.ndarray:
        return x.argmax(axis=1)


# -- maximum likelihood and a posteriori -----------------------------------------------------------------------


@pytest.mark.parametrize("prior", [None, LogTemperature(-0.5, 0.1)])
@pytest.mark.parametrize("n", [5, 300])
@pytest.mark.parametrize("slope", [0.3, 6.0])
@pytest.mark.parametrize("soft", [False, True])
def test_no_temperature_of_a_dense_grid_is_better(
    prior: LogTemperature | None, n: int, slope: float, soft: bool
) -> None:
    rng = np.random.default_rng(n)
    p, truth = honest(rng, n, 4)
    p = bent(p, slope)
    q = rng.dirichlet(np.ones(4), size=n) if soft else np.eye(4)[truth]
    found = TemperatureScaling(prior).fit(p, q if soft else truth).temperature
    density = 0.0 if prior is None else -0.5 * ((GRID - prior.mean) / prior.sd) ** 2
    value = likelihood(p, q, GRID[::8]) + (density if prior is None else density[::8])
    at = likelihood(p, q, np.log([found]))[0]
    at += 0.0 if prior is None else -0.5 * ((np.log(found) - prior.mean) / prior.sd) ** 2
    assert at >= value.max() - 1e-4


def test_maximum_likelihood_is_scikit_learns() -> None:
    p, truth = honest(np.random.default_rng(1), 800, 4)
    p = bent(p, 2.7)
    theirs = CalibratedClassifierCV(FrozenEstimator(AsItIs()), method="temperature").fit(np.log(p), truth)
    ours = TemperatureScaling(None).fit(p, truth).apply(p)
    np.testing.assert_allclose(ours, theirs.predict_proba(np.log(p)), atol=1e-5)


# -- the posterior ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [LogTemperature(0.0, 2.0), LogTemperature(1.0, 0.05)])
@pytest.mark.parametrize("n", [1, 3000])
@pytest.mark.parametrize("slope", [0.3, 3.0])
def test_quadrature_agrees_with_a_grid_fifty_times_finer(prior: LogTemperature, n: int, slope: float) -> None:
    p, truth = honest(np.random.default_rng(n), n, 3)
    p = bent(p, slope)
    posterior = BayesianTemperature(prior).fit(p, truth)
    u = np.linspace(prior.mean - 9 * prior.sd, prior.mean + 9 * prior.sd, 2001)
    mean = posterior.weight_g @ np.log(posterior.temperature_g)
    sd = np.sqrt(posterior.weight_g @ (np.log(posterior.temperature_g) - mean) ** 2)
    if n > 100:  # far narrower than its prior
        u = np.linspace(mean - 12 * sd, mean + 12 * sd, 401)
    log_v = likelihood(p, np.eye(3)[truth], u) - 0.5 * ((u - prior.mean) / prior.sd) ** 2
    v = np.exp(log_v - logsumexp(log_v))
    assert (mean, sd) == (pytest.approx(v @ u, abs=1e-6), pytest.approx(np.sqrt(v @ (u - v @ u) ** 2), abs=1e-6))
    new = bent(honest(np.random.default_rng(0), 20, 3)[0], slope)
    expected = sum(w * softmax(np.log(new) / np.exp(t), axis=1) for w, t in zip(v, u, strict=True))
    np.testing.assert_allclose(posterior.apply(new), expected, atol=1e-6)


# -- the ensemble ------------------------------------------------------------------------------------------------


def parts(p: np.ndarray, temperature: float) -> np.ndarray:
    return np.stack([softmax(np.log(p) / temperature, axis=1), p, np.full_like(p, 1 / p.shape[1])], axis=2)


def simplex(steps: int) -> np.ndarray:
    return np.array([(a, b, steps - a - b) for a in range(steps + 1) for b in range(steps + 1 - a)]) / steps


@pytest.mark.parametrize(("seed", "soft"), [(0, True), (1, False), (3, False)])
def test_no_weights_on_the_simplex_are_better(seed: int, soft: bool) -> None:
    rng = np.random.default_rng(seed)
    p, truth = honest(rng, 200, 3)
    p = bent(p, 3.0)
    truth = np.where(rng.random(200) < 0.1 * seed, rng.integers(3, size=200), truth)
    q = rng.dirichlet(np.ones(3), size=200) if soft else np.eye(3)[truth]
    fitted = EnsembleTemperature(None).fit(p, q if soft else truth)
    three = parts(p, fitted.temperature)
    values = [(q * np.log(np.maximum(three @ w, 1e-300))).sum() for w in simplex(60)]
    w = np.array(fitted.weights)
    assert w.sum() == pytest.approx(1)
    assert w.min() >= 0
    assert (q * np.log(three @ w)).sum() >= max(values) - 1e-6
    # Kuhn-Tucker: no part is worth more than the mixture, those with weight as much.
    worth = np.einsum("nj,njc->c", q / (three @ w), three) / q.sum()
    assert worth.max() < 1 + 1e-3
    np.testing.assert_allclose(worth[w > 1e-3], 1, atol=1e-3)


@pytest.mark.parametrize("mean", [-20.0, 10.0])
def test_a_prior_far_outside_of_what_is_searched_is_no_error(mean: float) -> None:
    """As of somebody who gives a temperature in place of its logarithm."""
    rng = np.random.default_rng(0)
    p_nj = rng.dirichlet(np.ones(3), size=50)
    found = TemperatureScaling(LogTemperature(mean, 0.5)).fit(p_nj, rng.integers(3, size=50))
    assert np.isfinite(found.temperature)
