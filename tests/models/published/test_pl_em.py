"""PLEM.paper() against appendix I of Kerrigan 2021: EM in plain loops, the temperature by search in every M step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import PLEM
from hitl.models.inference.model_pool import unsupervised
from tests import oracles
from tests.oracles import Floats


def calibrated(p_nj: Floats, t: float) -> Floats:
    powered = p_nj ** (1 / t)
    return np.asarray(powered / powered.sum(axis=1, keepdims=True))


def temperature(p_nj: Floats, q_nj: Floats) -> float:
    """Eq. 26: the sum of the expected log likelihoods, and the log prior of log T once."""

    def negative(log_t: float) -> float:
        return -float((q_nj * np.log(calibrated(p_nj, np.exp(log_t)))).sum() - 0.5 * ((log_t - 0.5) / 0.5) ** 2)

    grid = np.linspace(-3, 3, 61)
    best = grid[np.argmin([negative(x) for x in grid])]
    found = minimize_scalar(negative, bounds=(best - 0.1, best + 0.1), method="bounded", options={"xatol": 1e-10})
    return float(np.exp(found.x))


def printed(evidence: Evidence, iterations: int) -> tuple[Floats, float, Floats]:
    """Beliefs (N, J), T, and confusion matrices (K, J, L), by EM from the priors' modes."""
    a, p_nj = evidence.annotations, evidence.probabilities["m0"]
    classes = a.n_classes
    on = 0.1 * (a.n_options - 1) * 0.75 / 0.25
    b = np.array([[on if option == j else 0.1 for option in range(a.n_options)] for j in range(classes)])
    t, pi = float(np.exp(0.5)), np.array([b / b.sum(axis=1, keepdims=True)] * a.n_annotators)
    q = np.empty_like(p_nj)
    for iteration in range(iterations + 1):
        weight = calibrated(p_nj, t)
        for n, k, label in zip(a.item, a.annotator, a.label, strict=True):
            weight[n] *= pi[k, :, label]  # eq. 3
        q = weight / weight.sum(axis=1, keepdims=True)
        for n in np.flatnonzero(evidence.known):
            q[n] = np.eye(classes)[evidence.truth[n]]
        if iteration == iterations:
            break
        labeled = (a.labels_per_item > 0) | evidence.known
        t = temperature(p_nj[labeled], q[labeled])
        raised = oracles.counts(a, q) + b  # eq. 28, the 1 of the mode subtracted everywhere
        pi = raised / raised.sum(axis=2, keepdims=True)
    return q, t, pi


SHAPES = {
    "one label an item": {"n_annotators": 1},
    "several annotators": {"n_annotators": 4, "asked": 0.5},
    "known truths and an option that is no class": {"n_annotators": 3, "n_options": 4, "asked": 0.6, "known": 0.2},
    "items without labels": {"n_annotators": 2, "unlabeled": 6},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("seed", [1, 2])
def test_it_ends_where_the_papers_em_ends(shape: dict[str, float], seed: int) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(seed), 60, n_classes=3, models=1, **({"asked": 1.0} | shape))
    found = replace(PLEM.paper(), tolerance=1e-14, max_iterations=5000).fit(evidence)
    q, t, pi = printed(evidence, 300)
    assert found.fit.converged
    assert found.temperatures["m0"] == pytest.approx(t, rel=1e-4)
    np.testing.assert_allclose(found.annotators.confusion, pi, atol=1e-4)
    np.testing.assert_allclose(found.probabilities, q, atol=1e-4)
    assert np.diff(found.fit.objective).min() > -1e-9
    once = PLEM().fit(evidence)
    assert abs(once.temperatures["m0"] - t) > 0.01  # the test can tell


def test_the_temperature_at_the_end_is_the_maximum_of_eq_26() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(3), 200, 3, 4, models=1, asked=0.7)
    found = replace(PLEM.paper(), tolerance=1e-13, max_iterations=3000).fit(evidence)
    expected = temperature(evidence.probabilities["m0"], found.probabilities)
    assert found.temperatures["m0"] == pytest.approx(expected, rel=1e-4)


def test_without_truth_the_temperature_drifts_as_it_is_said_to() -> None:
    """The classes of a model permuted: matrices bend to it, and it is trusted; the default step sees through it."""
    rng = np.random.default_rng(4)
    truth = rng.integers(3, size=1500)
    said = np.where(rng.random(1500) < 0.75, truth, rng.integers(3, size=1500))
    network = np.where(np.eye(3)[(truth + 1) % 3] > 0, 0.9, 0.05)
    evidence = Evidence(Annotations.from_matrix(said[:, None]), {"m0": network})
    wrong = [float(np.mean(method.fit(evidence).codes != truth)) for method in (PLEM.paper(), PLEM())]
    assert wrong[0] > 0.9
    assert wrong[1] < 0.3


def test_how_often_an_item_counts_follows_from_its_labels() -> None:
    """By the last beliefs from `enough_labels` on, else by the first; the temperature is held."""
    evidence, _ = oracles.crowd(np.random.default_rng(5), 80, 4, 3, models=1, asked=0.5)
    a, first_nj = evidence.annotations, unsupervised(evidence, PLEM().temperature)[1]
    for enough in (1, 2, 3, 99):
        method = PLEM(enough_labels=enough, tolerance=1e-13, max_iterations=3000)
        found = method.fit(evidence)
        counted_nj = np.where((a.labels_per_item >= enough)[:, None], found.probabilities, first_nj)
        expected = oracles.counts(a, counted_nj) + method.pseudo_counts(a)
        np.testing.assert_allclose(found.annotators.concentration, expected, atol=1e-4)
