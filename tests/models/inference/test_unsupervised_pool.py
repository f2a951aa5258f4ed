"""What models are worth without truth: steps against oracles, and models that are wrong in every way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

from hitl import score
from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.inference import unsupervised_pool
from hitl.models.inference.model_pool import unsupervised
from hitl.models.inference.unsupervised_pool import (
    Part,
    PoolWeights,
    chosen,
    error_correlation,
    newton_step,
    weights_by,
)
from hitl.models.majority import MajorityVote
from hitl.models.pl_em import PLEM
from tests import oracles
from tests.pools_of_models import simulated

Floats = oracles.Floats


def weights_of(evidence: Evidence) -> PoolWeights:
    found = []

    def weigh(labeled: Part, predicted: Callable[[], Part], prior: LogTemperature) -> PoolWeights:
        found.append(weights_by(labeled, predicted, prior))
        return found[0]

    unsupervised(evidence, PLEM().temperature, weigh)
    return found[0]


def features(rng: np.random.Generator, models: int, items: int, classes: int) -> tuple[Floats, Floats]:
    """(M, N, J) log probabilities over the number of models, and beliefs (N, J)."""
    logits = rng.normal(size=(models, items, classes)) * 2
    return log_softmax(logits, axis=2) / models, rng.dirichlet(np.ones(classes), size=items)


def objective(weight_m: Floats, feature_mnj: Floats, q_nj: Floats, mean: float, precision: float) -> float:
    total = -precision / 2 * float(np.sum((weight_m - mean) ** 2))
    for n in range(feature_mnj.shape[1]):
        logits = sum(w * feature_mnj[m, n] for m, w in enumerate(weight_m))
        total += float(q_nj[n] @ (logits - logsumexp(logits)))
    return total


@pytest.mark.parametrize("models", [1, 2, 3])
def test_newton_steps_end_where_no_nearby_weights_are_better(models: int) -> None:
    rng = np.random.default_rng(models)
    feature_mnj, q_nj = features(rng, models, 40, 4)
    weight_m = np.full(models, 0.5)
    for _ in range(60):
        weight_m = newton_step(weight_m, feature_mnj, q_nj, 0.5, 3.0)
    best = objective(weight_m, feature_mnj, q_nj, 0.5, 3.0)
    for _ in range(200):
        moved = np.maximum(weight_m + rng.normal(size=models) * 10 ** -rng.uniform(0.5, 4), 1e-6)
        assert objective(moved, feature_mnj, q_nj, 0.5, 3.0) <= best + 1e-9


def test_a_first_newton_step_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(4)
    feature_mnj, q_nj = features(rng, 2, 30, 3)
    at, h = np.array([0.4, 0.6]), 1e-4

    def value(x: Floats) -> float:
        return objective(x, feature_mnj, q_nj, 0.5, 50.0)

    unit = np.eye(2) * h
    gradient = np.array([(value(at + e) - value(at - e)) / (2 * h) for e in unit])
    curvature = np.array(
        [
            [
                -(value(at + e + f) - value(at + e - f) - value(at - e + f) + value(at - e - f)) / (4 * h * h)
                for f in unit
            ]
            for e in unit
        ]
    )
    step = np.linalg.solve(curvature, gradient)
    assert np.abs(step).max() < 0.4  # not cut
    np.testing.assert_allclose(newton_step(at, feature_mnj, q_nj, 0.5, 50.0), at + step, rtol=1e-3)


def test_beliefs_are_those_of_people_who_err_evenly_and_the_weighted_models() -> None:
    rng = np.random.default_rng(5)
    evidence, _ = oracles.crowd(rng, 6, 3, 3, n_options=4, known=0.3, pool=3)
    feature_mnj, _ = features(rng, 2, 6, 3)
    weight_m, accuracy_k = np.array([0.7, 0.2]), np.array([0.9, 0.6, 0.75, 0.8])[: evidence.annotations.n_annotators]
    pi_kjl = np.empty((accuracy_k.size, 3, 4))
    for k, a in enumerate(accuracy_k):
        pi_kjl[k] = (1 - a) / 3
        pi_kjl[k, range(3), range(3)] = a
        pi_kjl[k, :, 3] = 1.0  # "unsure" tells nothing
    logits = np.einsum("m,mnj->nj", weight_m, feature_mnj)
    expected, _ = oracles.enumerate_truths(evidence, logits, np.log(pi_kjl))
    np.testing.assert_allclose(
        unsupervised_pool._beliefs(evidence, weight_m, feature_mnj, accuracy_k), expected, atol=1e-12
    )


def test_the_correlation_of_errors_is_that_of_plain_loops() -> None:
    rng = np.random.default_rng(6)
    feature_mnj, q_nj = features(rng, 3, 200, 4)
    feature_mnj[2] = feature_mnj[1] + 0.3 * feature_mnj[2]
    predicts_nm = rng.random((200, 3)) < 0.7
    found = error_correlation(feature_mnj, predicts_nm, q_nj)
    for m in range(3):
        for other in range(3):
            both = np.flatnonzero(predicts_nm[:, m] & predicts_nm[:, other])
            wrong = [[1 - q_nj[n, feature_mnj[k, n].argmax()] for n in both] for k in (m, other)]
            plain = max(np.corrcoef(wrong)[0, 1], 0)
            expected = 1.0 if m == other else (both.size * plain + 5) / (both.size + 10)
            assert found[m, other] == pytest.approx(expected)


# -- simulated people and models -----------------------------------------------------------------------------


def accuracy(evidence: Evidence, truth: np.ndarray) -> float:
    return score.accuracy(PLEM().fit(evidence).probabilities, truth)


def test_independent_models_keep_their_own_temperatures_in_a_pool() -> None:
    """What they are worth together is in the weights once, not twice."""
    evidence, truth = simulated(1, 4000, models=3)
    consensus = PLEM().fit(evidence)
    assert all(0.9 < t < 1.9 for t in consensus.temperatures.values())
    bare = Evidence(evidence.annotations.select(np.zeros(4000, bool)), evidence.probabilities)
    models_alone = PLEM().apply(consensus, bare).probabilities
    assert score.calibration_error(models_alone, truth) < 0.012


@pytest.mark.parametrize("models", [1, 3])
def test_the_residual_temperature_is_the_root_of_how_much_surer_the_pool_is_than_the_labels_suggest(
    models: int,
) -> None:
    """In sums of the exponents of log p_m: those of the pool that is held, and those that were learned."""
    evidence, _ = simulated(21, 400, models=models, right=0.85)
    held, _ = unsupervised(evidence, PLEM().temperature)
    worth = weights_of(evidence)
    held_mn = np.linalg.lstsq(  # the exponents, from the beliefs themselves
        np.stack(
            [np.log(p)[:, 1:].ravel() - np.log(p)[:, :1].repeat(4, 1).ravel() for p in evidence.probabilities.values()],
            1,
        ),
        (held.log_prior()[:, 1:] - held.log_prior()[:, :1]).ravel(),
        rcond=None,
    )[0]
    expected = np.sqrt(held_mn.sum() / worth.weight_m.mean())
    assert expected > (1.2 if models == 3 else 0.999)
    assert held.residual == pytest.approx(expected)


def test_known_truth_corrects_the_temperature() -> None:
    evidence, truth = simulated(2, 3000, sharp=3.0)
    untold_t = PLEM().fit(evidence).temperatures["m0"]
    told = replace(evidence, truth=np.where(np.arange(3000) < 1500, truth, -1))
    assert abs(PLEM().fit(told).temperatures["m0"] - 3) < 0.3 < abs(untold_t - 3)


PERMUTED = np.array([4, 2, 1, 3, 0])  # class 3 where it was


def wrong(p_nj: Floats, how: str) -> Floats:
    labels = np.eye(5)[p_nj.argmax(axis=1)]
    if how == "permuted":
        return p_nj[:, PERMUTED]
    if how == "permuted labels":
        return labels[:, PERMUTED]
    if how == "labels":
        return labels
    if how == "constant":
        return np.tile([0.7, 0.1, 0.1, 0.05, 0.05], (len(p_nj), 1))
    if how == "always the same, and sure":
        return np.tile(np.eye(5)[2], (len(p_nj), 1))
    if how == "a class missing":
        rest = np.where(np.arange(5) == 1, 0.0, p_nj)
        return rest / rest.sum(axis=1, keepdims=True)
    return np.random.default_rng(0).dirichlet(np.ones(5), size=len(p_nj))


@pytest.mark.parametrize("each", [1, 2, 3])
@pytest.mark.parametrize("items", [200, 2000])
@pytest.mark.parametrize(
    "how",
    ["permuted", "permuted labels", "labels", "constant", "always the same, and sure", "a class missing", "random"],
)
def test_a_wrong_model_does_not_make_people_worse(how: str, items: int, each: int) -> None:
    lost = []
    for seed in range(4):
        evidence, truth = simulated(seed, items, each, right=0.9)
        alone = score.accuracy(MajorityVote().fit(Evidence(evidence.annotations)).probabilities, truth)
        p_nj = wrong(evidence.probabilities["m0"], how)
        lost.append(alone - accuracy(Evidence(evidence.annotations, {"wrong": p_nj}), truth))
    assert np.mean(lost) <= 0.003


@pytest.mark.parametrize("items", [300, 3000])
def test_a_copy_or_a_random_model_changes_next_to_nothing(items: int) -> None:
    changed = []
    for seed in range(4):
        evidence, truth = simulated(seed, items, models=2)
        pair = dict(evidence.probabilities)
        alone = accuracy(evidence, truth)
        for more in (pair["m0"], wrong(pair["m0"], "random")):
            changed.append(accuracy(Evidence(evidence.annotations, pair | {"more": more}), truth) - alone)
    assert abs(np.mean(changed)) < 0.002
    assert np.max(np.abs(changed)) < 0.01


def test_a_large_pool_is_learned_from_some_items(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, _ = simulated(4, 3000, models=2)
    everything = unsupervised(evidence, PLEM().temperature)[0].temperature_m
    monkeypatch.setattr(unsupervised_pool, "ENOUGH", 1000)
    rows = chosen(3000, 3000)
    assert (rows.size, rows[0], rows[-1]) == (1000, 0, 2999)
    some = unsupervised(evidence, PLEM().temperature)[0].temperature_m
    np.testing.assert_allclose(some, everything, rtol=0.5)
    assert not np.allclose(some, everything)


def test_errors_are_as_correlated_where_people_were_asked_because_models_disagree_as_anywhere() -> None:
    rng = np.random.default_rng(5)
    n, truth = 4000, np.random.default_rng(6).integers(0, 4, 4000)
    hard = rng.random((n, 1)) * 2.5  # of an item, for all models
    scores = [3 * np.eye(4)[truth] + hard * rng.normal(size=(n, 4)) for _ in range(1)]
    probabilities = {f"m{m}": softmax(scores[0] + 0.6 * rng.normal(size=(n, 4)), axis=1) for m in range(3)}
    mean = np.mean(list(probabilities.values()), axis=0)
    least = np.argsort(mean.max(axis=1))[:400]
    found = {}
    for name, rows in (("chosen", least), ("at random", rng.permutation(n)[:400])):
        said = np.where(rng.random(400) < 0.9, truth[rows], rng.integers(0, 4, 400))
        matrix = np.full((n, 1), -1)
        matrix[rows, 0] = said
        evidence = Evidence(Annotations.from_matrix(matrix, classes=(0, 1, 2, 3)), probabilities)
        found[name] = weights_of(evidence).correlation_mm[np.triu_indices(3, 1)]
    wrong_m = [(p.argmax(axis=1) != truth).astype(float) for p in probabilities.values()]
    real = np.corrcoef(wrong_m)[np.triu_indices(3, 1)]
    assert np.abs(found["at random"] - real).max() < 0.2
    assert np.abs(found["chosen"] - real).max() < 0.2
