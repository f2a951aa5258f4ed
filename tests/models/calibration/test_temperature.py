"""Temperatures and the calibrated pool: against a dense grid, a general optimiser, and the pool item by item."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax

from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import Likelihood, LogTemperature, best_temperatures, pool_weights
from hitl.models.pl import PL
from hitl.models.priors.calibrated import FLOOR, LEAST_ROWS, Calibrated, ModelOutputs
from hitl.models.priors.shares import Shares
from tests import oracles

PRIOR = LogTemperature(0.5, 0.5)


def map_temperatures(log_p: np.ndarray, q: np.ndarray, prior: LogTemperature, **others: Any) -> np.ndarray:
    items = Likelihood.of(log_p, q, weight_n=others.pop("weight_n", None))
    return best_temperatures(items, len(log_p), prior, **others)


def data(rng: np.random.Generator, n: int, models: int = 1, sharpness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """(M, N, J) log probabilities that are over-confident by about `sharpness`, and one-hot truths."""
    logits = rng.normal(size=(n, 4))
    truth = np.array([rng.choice(4, p=np.exp(row)) for row in log_softmax(logits, axis=1)], dtype=int)
    noisy = [log_softmax(sharpness * (logits + 0.3 * rng.normal(size=logits.shape)), axis=1) for _ in range(models)]
    return np.array(noisy), np.eye(4)[truth]


def objective(log_p: np.ndarray, q: np.ndarray, t: np.ndarray, w: np.ndarray, prior_weight: float) -> float:
    """Sum of weighted log likelihoods plus the log prior once."""
    pooled = log_softmax(np.einsum("mnj,m->nj", log_p, 1 / (len(t) * t)), axis=1)
    return float(w @ (q * pooled).sum(axis=1) - prior_weight * 0.5 * np.sum(((np.log(t) - 0.5) / 0.5) ** 2))


GRID = np.exp(np.linspace(np.log(0.05), np.log(50), 4_001))


@pytest.mark.parametrize("n", [0, 1, 100])
@pytest.mark.parametrize("prior_weight", [1.0, 30.0])
@pytest.mark.parametrize("sharpness", [0.2, 12.0])
def test_one_temperature_is_the_best_of_a_dense_grid(n: int, prior_weight: float, sharpness: float) -> None:
    rng = np.random.default_rng(n)
    log_p, q = data(rng, n, sharpness=sharpness)
    weight = rng.uniform(0, 3, size=n)
    (t,) = map_temperatures(log_p, q, PRIOR, weight_n=weight, prior_weight=prior_weight)
    pooled = log_p[0][None] / GRID[:, None, None]
    loss = (weight[:, None] * q * log_softmax(pooled, axis=2)).sum(axis=(1, 2))
    best = GRID[np.argmax(loss - prior_weight * 0.5 * ((np.log(GRID) - 0.5) / 0.5) ** 2)]
    assert np.log(t) == pytest.approx(np.log(best), abs=3e-3)


def test_soft_labels_and_a_start_elsewhere_change_nothing_in_the_answer() -> None:
    rng = np.random.default_rng(1)
    log_p, _ = data(rng, 200)
    q = rng.dirichlet(np.ones(4), size=200)
    answers = [
        map_temperatures(log_p, q, PRIOR, start_m=None if s is None else np.array([s])) for s in (None, 0.03, 80)
    ]
    assert np.ptp(np.log(answers)) < 1e-3


@pytest.mark.parametrize("n", [20, 500])
def test_two_temperatures_are_as_good_as_a_general_optimiser_finds(n: int) -> None:
    log_p, q = data(np.random.default_rng(2), n, models=2)
    log_p[1] *= 2
    ones = np.ones(n)
    found = map_temperatures(log_p, q, PRIOR)
    best = minimize(
        lambda log_t: -objective(log_p, q, np.exp(log_t), ones, 1.0), [0.5, 0.5], method="Nelder-Mead", tol=1e-9
    )
    assert objective(log_p, q, found, ones, 1.0) == pytest.approx(-best.fun, abs=1e-4)
    np.testing.assert_allclose(np.log(found), best.x, atol=0.02)


def test_the_prior_fades_as_data_come_in() -> None:
    """With a mean instead of the sum of log likelihoods T would never leave the prior."""
    t = [map_temperatures(*data(np.random.default_rng(3), n, sharpness=6.0), PRIOR)[0] for n in (5, 50, 5000)]
    assert abs(np.log(t[0]) - 0.5) < abs(np.log(t[1]) - 0.5) < abs(np.log(t[2]) - 0.5)
    assert t[2] > 4.5


# -- the pool ------------------------------------------------------------------------------------------------


def test_a_model_weighs_what_its_temperature_says_shared_by_those_that_speak() -> None:
    speaks = np.array([[True, True], [True, False], [False, True], [False, False]])
    weights = pool_weights(speaks, np.array([2.0, 4.0]))
    np.testing.assert_allclose(weights, [[0.25, 0.125], [0.5, 0], [0, 0.25], [0, 0]])


def test_models_that_err_independently_are_worth_several() -> None:
    speaks = np.array([[True, True], [True, False], [False, False]])
    for correlation, worth in ((1.0, 1.0), (0.5, 0.75**2 / (0.25 + 0.0625 + 0.125)), (0.0, 0.75**2 / (0.25 + 0.0625))):
        weights = pool_weights(speaks, np.array([2.0, 4.0]), np.array([[1, correlation], [correlation, 1]]))
        np.testing.assert_allclose(weights, [[worth * 0.25, worth * 0.125], [0.5, 0], [0, 0]])
    equal = pool_weights(np.ones((1, 3), bool), np.ones(3), np.eye(3))
    np.testing.assert_allclose(equal, 1.0)  # three equally good ones that err independently: each in full


@pytest.mark.parametrize("models", [1, 2, 3])
def test_the_pool_is_eq_3_item_by_item(models: int) -> None:
    rng = np.random.default_rng(models)
    evidence, _ = oracles.crowd(rng, 30, 3, 3, models=models, abstaining=0.4)
    temperatures = {name: float(rng.uniform(0.5, 3)) for name in evidence.probabilities}
    shares = Shares(np.array([0.2, 0.3, 0.5]))
    correlation = 0.4 + 0.6 * np.eye(models)
    pool = Calibrated.from_evidence(evidence, PRIOR).at(np.array(list(temperatures.values())), correlation)
    prior = replace(pool, shares=shares)
    expected = oracles.pool(evidence, temperatures, shares.share_j, correlation=correlation)
    np.testing.assert_allclose(prior.log_prior(), expected, atol=1e-10)
    np.testing.assert_allclose(np.exp(prior.log_prior()).sum(axis=1), 1)
    assert prior.temperatures == temperatures


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    models=st.integers(1, 3),
    known=st.sampled_from([0.0, 0.3, 1.0]),
    abstaining=st.sampled_from([0.0, 0.3]),
)
def test_no_nearby_temperatures_are_better(seed: int, models: int, known: float, abstaining: float) -> None:
    rng = np.random.default_rng(seed)
    evidence, _ = oracles.crowd(rng, 25, 3, 3, models=models, abstaining=abstaining, known=known, unlabeled=5)
    q_nj = rng.dirichlet(np.ones(3), size=25)
    q_nj[evidence.known] = np.eye(3)[evidence.truth[evidence.known]]
    informative = (evidence.annotations.labels_per_item > 0) | evidence.known

    def value(t: dict[str, float]) -> float:
        return oracles.temperature_objective(evidence, q_nj, t, 0.5, 0.5, informative_n=informative)

    learned = Calibrated.from_evidence(evidence, PRIOR)
    learned = learned.fitted_to(learned.likelihood(q_nj, informative), np.zeros(3))
    best = value(learned.temperatures)
    for _ in range(20):
        size = 10 ** -rng.uniform(0.3, 1.7)
        moved = {name: t * float(np.exp(size * rng.normal())) for name, t in learned.temperatures.items()}
        assert value(moved) <= best + 1e-3


def test_shares_come_from_the_items_without_predictions() -> None:
    annotations = Annotations.from_matrix(np.array([[0], [1], [1], [1]]))
    p = np.array([[0.5, 0.5], [0.5, 0.5], [np.nan] * 2, [np.nan] * 2])
    q_nj = np.array([[1, 0], [1, 0], [0, 1], [0.4, 0.6]])
    pool = Calibrated.from_evidence(Evidence(annotations, {"m": p}), PRIOR)
    learned = pool.learn(pool.statistics(q_nj, np.ones(4, dtype=bool)))
    np.testing.assert_allclose(learned.shares.share_j, [1.4 / 4, 2.6 / 4])  # one pseudo-item of each class


# -- how probabilities are read ------------------------------------------------------------------------------


def read(p_nj: Any, used: Any = True) -> np.ndarray:
    """As a model that has said this over and over is read."""
    p = np.array(p_nj, dtype=float)
    again = np.tile(p, (LEAST_ROWS, 1))
    return np.exp(ModelOutputs.of(("m",), {"m": again}, np.broadcast_to(used, p.shape[1])).log_p(0, p))


def test_probabilities_are_read_as_they_are_and_no_model_may_forbid_a_class_for_ever() -> None:
    p = [[0.2, 0.8, 0.0], [0.1, 0.4, 0.5]]
    np.testing.assert_allclose(read(p), np.maximum(p, FLOOR), rtol=1e-12)
    np.testing.assert_array_equal(read([[np.nan] * 2, [0.3, 0.7]])[0], 1.0)


def test_a_label_without_probabilities_is_believed_as_far_as_a_strangers() -> None:
    np.testing.assert_allclose(read([[1, 0, 0], [0, 0, 1], [0, 1, 0]])[1], [0.125, 0.125, 0.75])


def test_of_a_class_it_does_not_know_a_model_says_little() -> None:
    np.testing.assert_allclose(read([[0.6, 0.4, 0], [0.1, 0.9, 0]]), np.array([[6, 4, 3], [2, 18, 9]]) / [[13], [29]])
    two = read([[0.6, 0.4, 0, 0]])
    np.testing.assert_allclose(two, np.array([[6, 4, 2, 2]]) / 14)
    np.testing.assert_allclose(read([[0, 1, 0]]), 1 / 3)  # only ever one class
    labels = read([[1, 0, 0], [0, 1, 0]])  # of the third class never
    np.testing.assert_allclose(labels, np.array([[6, 1, 3], [1, 6, 3]]) / 10)


def test_what_a_model_is_read_as_is_part_of_what_was_learned() -> None:
    """One item alone does not show that a model gives labels, or which classes it does not know."""
    rng = np.random.default_rng(8)
    evidence, truth = oracles.crowd(rng, 60, 3, 3, models=1)
    labels = np.eye(3)[np.where(rng.random(60) < 0.2, (truth + 1) % 3, truth)]
    learned = PL().fit(Evidence(evidence.annotations, {"m": labels}, truth=truth))
    learned = Consensus.from_bytes(learned.to_bytes())
    one = Annotations.from_frame({"item": [], "annotator": [], "label": []}, items=["x"], classes=["j0", "j1", "j2"])
    p = np.array([[0.2, 0.5, 0.3]])
    weight = (0.75 * p + 0.125 * (1 - p)) ** (1 / learned.temperatures["m"])
    judged = PL().apply(learned, Evidence(one, {"m": p})).probabilities
    np.testing.assert_allclose(judged, weight / weight.sum(), atol=1e-12)
