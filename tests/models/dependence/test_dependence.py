"""The correction for annotators who err together against its docstring written out once more in plain loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize
from scipy.special import logsumexp

from hitl.design_effect import DesignEffect
from hitl.evidence import Evidence
from hitl.models.dependence import design_effect
from hitl.models.dependence.design_effect import UNTRACED_RHO, Independent, held_out, independent
from hitl.models.dependence.replicas import Dependence
from hitl.models.inference.observed_outputs import Outputs
from tests import oracles
from tests.dependent_labels import CROWDS, everywhere, labels_of, plain_log_posterior, some_crowd, table

Floats = oracles.Floats
Ints = NDArray[np.int32]

EFFECTS = {
    "none": DesignEffect(),
    "correlated": DesignEffect(0.4),
    "learned from one another": DesignEffect(0.4, echo=1.0),
    "shifted": DesignEffect(0.3, 1.0, shift=np.array([0.5, -1.0, 0.2, 0.7])),
    "beside models": DesignEffect(0.6, residual=1.7),
    "everything": DesignEffect(1.2, 0.5, 1.3, np.array([-0.4, 0.1, 2.0, 0.0])),
}
of_any_size = pytest.mark.parametrize("effect", EFFECTS.values(), ids=EFFECTS)


TOGETHER = Dependence(0.8, 0.05)


def of_crowd(evidence: Evidence, alpha_kjl: Floats, share_j: Floats, together: Dependence = TOGETHER) -> DesignEffect:
    """The effect of a table, without models."""
    outputs = Outputs(None, share_j)
    known = held_out(evidence, alpha_kjl, share_j, outputs) if evidence.known.any() else None
    return design_effect.of_crowd(together, outputs, known, share_j.size)


def posterior(seed: int = 0) -> Independent:
    """Some items without labels, some with one, some predicted."""
    evidence, _, _ = some_crowd({"unlabeled": 6, "asked": 0.3}, seed=seed)
    log_q0_nj = 4 * np.random.default_rng(seed).normal(size=(40, 4))
    assert set(evidence.annotations.labels_per_item) >= {0, 1, 2}
    return Independent(evidence.annotations, log_q0_nj, np.arange(40) % 3 == 0)


# -- the same in plain loops ---------------------------------------------------------------------------------


def plain_temperature(effect: DesignEffect, labels: int, predicted: bool) -> float:
    voices = labels + max(float(predicted), effect.echo)  # a model takes the place of the echo
    own = effect.residual if predicted else 1.0
    return own + effect.rho * (voices - 1) if labels else own


def plain_tempered(known: Independent, effect: DesignEffect) -> Floats:
    out = np.empty_like(known.log_q0_nj)
    for n, row in enumerate(known.log_q0_nj):
        labels = len(labels_of(known.annotations, n))
        log_q = row / plain_temperature(effect, labels, bool(known.predicted_n[n]))
        if labels and effect.shift is not None:
            log_q = log_q + effect.shift
        out[n] = np.exp(log_q - logsumexp(log_q))
    return out


def plain_held_out(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> Floats:
    """Each known item judged by Dirichlets from which its own labels are taken."""
    rows = []
    for n in np.flatnonzero(evidence.known):
        left_kjl = alpha_kjl.copy()
        for k, option in labels_of(evidence.annotations, n):
            left_kjl[k, evidence.truth[n], option] -= 1
        rows.append(plain_log_posterior(evidence.annotations, left_kjl, share_j)[n])
    return np.array(rows)


def plain_objective(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> tuple[Callable[[Floats], float], float]:
    """Log posterior of (ln rho, b) given the known items, up to a constant; and the rho expected without truth."""
    known = np.flatnonzero(evidence.known)
    labels = [len(labels_of(evidence.annotations, n)) for n in known]
    held_out = plain_held_out(evidence, alpha_kjl, share_j)
    rho = TOGETHER.chance * (UNTRACED_RHO + TOGETHER.excess)
    spread = np.sqrt(0.7**2 + np.log(TOGETHER.chance) ** 2)

    def log_posterior(theta: Floats) -> float:
        value = stats.norm.logpdf(theta[0], np.log(rho), spread) + stats.norm.logpdf(theta[1:]).sum()
        for row, n, m in zip(held_out, known, labels, strict=True):
            if m:
                log_q = row / (1 + m * np.exp(theta[0])) + theta[1:]
                value += log_q[evidence.truth[n]] - logsumexp(log_q)
        return float(value)

    return log_posterior, rho


# -- the design effect ---------------------------------------------------------------------------------------


@of_any_size
def test_temperatures_are_those_of_plain_loops(effect: DesignEffect) -> None:
    known = posterior()
    labels_n = known.annotations.labels_per_item
    found = effect.temperature(labels_n, known.predicted_n)
    expected = [plain_temperature(effect, int(m), bool(p)) for m, p in zip(labels_n, known.predicted_n, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (found >= 1).all()


@of_any_size
def test_tempered_beliefs_are_those_of_plain_loops(effect: DesignEffect) -> None:
    known = posterior()
    found = known.tempered(effect)
    np.testing.assert_allclose(found, plain_tempered(known, effect), atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    bare = known.annotations.labels_per_item == 0
    assert effect.independent == np.allclose(found[~bare], np.exp(log_normalised(known.log_q0_nj))[~bare])


@of_any_size
def test_what_was_tempered_can_be_taken_back(effect: DesignEffect) -> None:
    known = posterior(1)
    found = effect.untemper(known.tempered(effect), known.annotations.labels_per_item, known.predicted_n)
    np.testing.assert_allclose(log_normalised(found), log_normalised(known.log_q0_nj), atol=1e-9)


def log_normalised(log_q_nj: Floats) -> Floats:
    return log_q_nj - logsumexp(log_q_nj, axis=1, keepdims=True)


@pytest.mark.parametrize("m", [2, 3, 10])
@pytest.mark.parametrize(("mu", "sigma", "pull"), [(1.0, 1.0, 0.7), (0.4, 1.5, 0.7), (2.0, 0.7, 2.0)])
def test_the_evidence_of_pulled_scores_is_that_of_independent_ones_over_the_temperature(
    m: int, mu: float, sigma: float, pull: float
) -> None:
    """Scores x_k = +-mu + u + e_k with sd(u) = pull: the exact odds against those that forget what they share."""
    rho = pull**2 / (sigma**2 + pull**2)
    temperature = DesignEffect(rho).temperature(np.array([m]), np.array([False]))[0]
    covariance = sigma**2 * np.eye(m) + pull**2
    spread = np.sqrt(np.diag(covariance))
    for x in np.random.default_rng(m).normal(scale=2, size=(5, m)):
        exact = np.subtract(*(stats.multivariate_normal.logpdf(x, np.full(m, s * mu), covariance) for s in (1, -1)))
        alone = np.subtract(*(stats.norm.logpdf(x, s * mu, spread).sum() for s in (1, -1)))
        np.testing.assert_allclose(exact, alone / temperature, rtol=1e-9)


# -- annotators alone ----------------------------------------------------------------------------------------


@everywhere
def test_the_posterior_takes_the_means_of_the_matrices(shape: dict[str, Any]) -> None:
    evidence, alpha_kjl, share_j = some_crowd(shape)
    found = independent(evidence.annotations, alpha_kjl, share_j)
    expected = plain_log_posterior(evidence.annotations, alpha_kjl, share_j)
    np.testing.assert_allclose(found.log_q0_nj, expected, rtol=1e-10)
    assert not found.predicted_n.any()


@pytest.mark.parametrize("name", ["plain", "an anonymous pool", "items without labels"])
def test_without_truth_rho_is_what_is_expected_of_people_who_err_together(name: str) -> None:
    evidence, alpha_kjl, share_j = some_crowd(CROWDS[name])
    found = of_crowd(evidence, alpha_kjl, share_j)
    assert (found.rho, found.echo) == (pytest.approx(0.8 * (0.3 + 0.05)), 1)
    assert (found.residual, found.shift) == (1, None)


# -- with truth ----------------------------------------------------------------------------------------------


@everywhere
def test_known_items_are_judged_by_what_the_others_taught(shape: dict[str, Any]) -> None:
    evidence, alpha_kjl, share_j = some_crowd(shape, known=0.5)
    assert 0 < evidence.known.sum() < 40
    found = design_effect.without_own_labels(evidence, alpha_kjl, share_j)
    np.testing.assert_allclose(found, plain_held_out(evidence, alpha_kjl, share_j), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["plain", "two classes", "items without labels", "an anonymous pool", "everything"])
def test_rho_and_shift_are_the_best_that_a_search_of_its_own_finds(name: str) -> None:
    evidence, alpha_kjl, share_j = some_crowd(CROWDS[name], known=0.6, seed=2)
    objective, expected = plain_objective(evidence, alpha_kjl, share_j)
    found = of_crowd(evidence, alpha_kjl, share_j)
    theta = np.append(np.log(found.rho), found.shift)
    assert np.abs(theta[1:]).max() > 0.02
    assert abs(theta[0] - np.log(expected)) > 0.02
    start = np.append(np.log(expected) + 1, np.ones(share_j.size))
    best = minimize(lambda each: -objective(each), start, method="BFGS").x
    np.testing.assert_allclose(theta, best, atol=0.005)
    assert objective(theta) > objective(best) - 1e-5
    grid = np.linspace(-3, 3, 121)
    values = [objective(np.append(theta[0] + step, theta[1:])) for step in grid]
    assert grid[int(np.argmax(values))] == pytest.approx(0, abs=1e-9)
    assert (found.echo, found.residual) == (1, 1)


def judged(said: Ints, truth: Ints, told: Ints) -> tuple[DesignEffect, DesignEffect]:
    """The corrections of a fit that saw all the truth, without and with some of it told."""
    annotations = table(said, 2, 2)
    q_nj, share_j = np.eye(2)[truth], np.array([0.5, 0.5])
    alpha_kjl = oracles.counts(annotations, q_nj) + 0.5
    evidence = Evidence(annotations, truth=told)
    unknown = replace(evidence, truth=np.full(truth.size, -1, np.int32))
    without, with_it = (of_crowd(e, alpha_kjl, share_j) for e in (unknown, evidence))
    return without, with_it


def test_known_items_nobody_labeled_say_nothing() -> None:
    evidence, alpha_kjl, share_j = some_crowd({"unlabeled": 6})
    told = np.where(np.arange(40) >= 34, 0, -1).astype(np.int32)
    found = of_crowd(replace(evidence, truth=told), alpha_kjl, share_j)
    without = of_crowd(evidence, alpha_kjl, share_j)
    assert found.rho == pytest.approx(without.rho)
    np.testing.assert_array_equal(found.shift, 0)
