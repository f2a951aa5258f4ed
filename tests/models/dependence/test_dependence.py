"""The correction for dependence between annotators against its docstring written out once more in plain loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from hitl.annotations import Annotations
from hitl.design_effect import DesignEffect
from hitl.evidence import Evidence
from hitl.models.dependence import design_effect
from hitl.models.dependence.design_effect import Independent, effect_of, independent
from hitl.models.dependence.held_out import bearable_strength
from tests import oracles
from tests.dependent_labels import (
    CROWDS,
    answered,
    everywhere,
    labels_of,
    plain_log_posterior,
    some_crowd,
    table,
)

Floats = oracles.Floats
Ints = NDArray[np.int32]


def temperatures(annotations: Annotations, log_q0_nj: Floats, pi_kjl: Floats, strength: float) -> Floats:
    nothing = np.zeros(annotations.n_items, dtype=bool)
    return Independent(annotations, log_q0_nj, pi_kjl, nothing).temperature(effect_of(strength))


def corrected(annotations: Annotations, alpha_kjl: Floats, share_j: Floats, effect: DesignEffect) -> Floats:
    return independent(annotations, alpha_kjl, share_j).tempered(effect)


# -- the same in plain loops ---------------------------------------------------------------------------------


def plain_temperatures(annotations: Annotations, log_q0_nj: Floats, pi_kjl: Floats, strength: float) -> Floats:
    out = []
    for n, row in enumerate(log_q0_nj):
        order = sorted(range(len(row)), key=lambda j: -row[j])
        rho = []
        for k, _ in labels_of(annotations, n):
            top, next_to_top = pi_kjl[k, order[0]], pi_kjl[k, order[1]]
            delta = sum((a - b) * np.log(a / b) for a, b in zip(top, next_to_top, strict=True)) / 4
            rho.append(strength * delta / (1 + strength * delta))
        out.append(1 + (len(rho) - 1) * sum(rho) / len(rho) if len(rho) > 1 else 1.0)
    return np.array(out)


def plain_corrected(annotations: Annotations, alpha_kjl: Floats, share_j: Floats, correction: DesignEffect) -> Floats:
    log_q0_nj = plain_log_posterior(annotations, alpha_kjl, share_j)
    mean_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    temperature_n = plain_temperatures(
        annotations, log_q0_nj, mean_kjl, 1 / correction.half if correction.half else 0.0
    )
    out = np.empty_like(log_q0_nj)
    for n, row in enumerate(log_q0_nj):
        log_q = row / temperature_n[n] + (
            correction.shift if correction.shift is not None and labels_of(annotations, n) else 0.0
        )
        out[n] = np.exp(log_q - logsumexp(log_q))
    return out


def plain_correlation(annotations: Annotations, q_nj: Floats, pi_kjl: Floats) -> float:
    together = alone = 0.0
    options = np.eye(annotations.n_options)
    for n in range(annotations.n_items):
        given = labels_of(annotations, n)
        for j, q in enumerate(q_nj[n]):
            for one, (k, option) in enumerate(given):
                alone += q * (len(given) - 1) * (1 - (pi_kjl[k, j] ** 2).sum())
                for two, (k2, option2) in enumerate(given):
                    if one != two:
                        together += q * (options[option] - pi_kjl[k, j]) @ (options[option2] - pi_kjl[k2, j])
    return together / alone


def plain_held_out(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> Floats:
    """Each known item judged by Dirichlets from which its own labels are taken."""
    rows = []
    for n in np.flatnonzero(evidence.known):
        left_kjl = alpha_kjl.copy()
        for k, option in labels_of(evidence.annotations, n):
            left_kjl[k, evidence.truth[n], option] -= 1
        rows.append(plain_log_posterior(evidence.annotations, left_kjl, share_j)[n])
    return np.array(rows)


def plain_objective(evidence: Evidence, alpha_kjl: Floats, share_j: Floats) -> Callable[[Floats], float]:
    """Log posterior of (ln c, b) given the known items, up to a constant; ln c is centred where no truth is known."""
    annotations, known = evidence.annotations, np.flatnonzero(evidence.known)
    held_out = plain_held_out(evidence, alpha_kjl, share_j)
    log_q0_nj = plain_log_posterior(annotations, alpha_kjl, share_j)
    mean_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    expected = design_effect.unsupervised_strength(evidence, alpha_kjl, share_j)

    def log_posterior(theta: Floats) -> float:
        temperature_n = plain_temperatures(annotations, log_q0_nj, mean_kjl, np.exp(theta[0]))
        value = stats.norm.logpdf(theta[0], np.log(expected), design_effect.SPREAD)
        value += stats.norm.logpdf(theta[1:], 0, design_effect.SHIFT).sum()
        for row, n in zip(held_out, known, strict=True):
            if labels_of(annotations, n):
                log_q = row / temperature_n[n] + theta[1:]
                value += log_q[evidence.truth[n]] - logsumexp(log_q)
        return float(value)

    return log_posterior


# -- temperatures --------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("strength", [0.0, 0.3, 5.0])
def test_temperatures_are_those_of_plain_loops(shape: dict[str, Any], strength: float) -> None:
    evidence, alpha_kjl, share_j = some_crowd(shape)
    annotations, pi_kjl = evidence.annotations, alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    log_q0_nj = plain_log_posterior(annotations, alpha_kjl, share_j)
    found = temperatures(annotations, log_q0_nj, pi_kjl, strength)
    np.testing.assert_allclose(found, plain_temperatures(annotations, log_q0_nj, pi_kjl, strength), rtol=1e-10)


@everywhere
def test_temperatures_lie_between_one_and_the_number_of_labels_and_rise_with_strength(shape: dict[str, Any]) -> None:
    evidence, alpha_kjl, share_j = some_crowd(shape, seed=1)
    annotations, pi_kjl = evidence.annotations, alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    log_q0_nj = plain_log_posterior(annotations, alpha_kjl, share_j)
    labels_n = annotations.labels_per_item
    several = labels_n > 1
    last = np.ones(annotations.n_items)
    for strength in (0.01, 0.1, 1, 10, 1e3, 1e9):
        found = temperatures(annotations, log_q0_nj, pi_kjl, strength)
        assert (found[~several] == 1).all()
        assert (found[several] > last[several]).all()
        assert (found[several] <= labels_n[several]).all()
        last = found
    np.testing.assert_allclose(last[several], labels_n[several], rtol=1e-6)  # all are worth one


def test_temperatures_do_not_depend_on_the_order_of_people_or_classes() -> None:
    evidence, alpha_kjl, share_j = some_crowd(CROWDS["everything"])
    rng = np.random.default_rng(3)
    people, classes = rng.permutation(evidence.annotations.n_annotators), rng.permutation(4)
    other = oracles.reordered(evidence, annotators=people, classes=classes).annotations
    options = np.append(classes, np.arange(4, evidence.annotations.n_options))
    pi_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    log_q0_nj = plain_log_posterior(evidence.annotations, alpha_kjl, share_j)
    np.testing.assert_allclose(
        temperatures(other, log_q0_nj[:, classes], pi_kjl[np.ix_(people, classes, options)], 2.0),
        temperatures(evidence.annotations, log_q0_nj, pi_kjl, 2.0),
        rtol=1e-12,
    )


@pytest.mark.parametrize("m", [2, 3, 10])
@pytest.mark.parametrize(("mu", "sigma", "c"), [(1.0, 1.0, 0.5), (0.4, 1.5, 3.0), (2.0, 0.7, 1.0)])
def test_the_evidence_of_pulled_scores_is_that_of_independent_ones_over_the_temperature(
    m: int, mu: float, sigma: float, c: float
) -> None:
    """Scores x_k = +-mu + u + e_k with var u = c mu^2: the exact odds against those that forget what they share."""
    rng = np.random.default_rng(m)
    rho = c * mu**2 / (sigma**2 + c * mu**2)
    covariance = sigma**2 * np.eye(m) + c * mu**2
    spread = np.sqrt(np.diag(covariance))
    for x in rng.normal(scale=2, size=(5, m)):
        exact = np.subtract(*(stats.multivariate_normal.logpdf(x, np.full(m, s * mu), covariance) for s in (1, -1)))
        alone = np.subtract(*(stats.norm.logpdf(x, s * mu, spread).sum() for s in (1, -1)))
        np.testing.assert_allclose(exact, alone / (1 + (m - 1) * rho), rtol=1e-9)
    # The same temperature from the answers, where options are narrow bins of x = +-mu + e.
    middle = np.linspace(-mu - 7 * sigma, mu + 7 * sigma, 1001)
    pi_jl = np.array([stats.norm.pdf(middle, s * mu, sigma) for s in (1, -1)])
    pi_kjl = np.repeat((pi_jl / pi_jl.sum(axis=1, keepdims=True))[None], m, axis=0)
    annotations = table(rng.integers(1001, size=(1, m)), 2, 1001)
    found = temperatures(annotations, np.array([[-0.1, -2.0]]), pi_kjl, c)
    np.testing.assert_allclose(found, 1 + (m - 1) * rho, rtol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("strength", [0.0, 1.0, 1e300])
def test_temperatures_stay_finite_where_answers_are_certain(strength: float) -> None:
    """Two who never err, one who cannot tell the classes apart, options nobody uses."""
    pi_kjl = np.zeros((3, 2, 4))
    pi_kjl[:2] = np.eye(2, 4)
    pi_kjl[2, :, 0] = 1
    annotations = table(np.array([[0, 0, -1], [0, 1, 0], [-1, -1, 0]]), 2, 4)
    found = temperatures(annotations, np.array([[0, -np.inf], [-1, -2], [0, 0]]), pi_kjl, strength)
    if strength:
        most = {1.0: 1.0, 1e300: 1.0}[strength]
        np.testing.assert_allclose(found, [1 + most, 1 + 2 * (most + most + 0) / 3, 1], rtol=0.01)
    else:
        assert (found == 1).all()


# -- the unexplained correlation -----------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("seed", [0, 1])
def test_the_correlation_is_a_sum_over_all_ordered_pairs_of_labels(shape: dict[str, Any], seed: int) -> None:
    evidence, alpha_kjl, _ = some_crowd(shape, seed=seed)
    annotations = evidence.annotations
    rng = np.random.default_rng(seed)
    q_nj = rng.dirichlet(np.ones(annotations.n_classes), size=annotations.n_items)
    q_nj[q_nj < 0.02] = 0
    pi_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    found = design_effect.unexplained_correlation(annotations, q_nj, pi_kjl)
    np.testing.assert_allclose(found, plain_correlation(annotations, q_nj, pi_kjl), rtol=1e-10)


def test_beliefs_next_to_nothing_count_as_nothing() -> None:
    evidence, alpha_kjl, _ = some_crowd({})
    pi_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    one_hot = np.eye(4)[np.arange(40) % 4]
    nearly = one_hot * (1 - 3.6e-3) + 0.9e-3
    few = [design_effect.unexplained_correlation(evidence.annotations, q, pi_kjl) for q in (one_hot, nearly)]
    assert few[0] == pytest.approx(few[1], rel=1e-12)


def test_independent_people_leave_no_correlation() -> None:
    """In expectation, whoever they are, with an option that is no class."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(150):
        pi_kjl = rng.dirichlet(np.full(4, 0.8), size=(4, 3))
        truth = rng.integers(3, size=12).astype(np.int32)
        annotations = answered(rng, truth, pi_kjl)
        found.append(design_effect.unexplained_correlation(annotations, np.eye(3)[truth], pi_kjl))
    error = np.std(found) / np.sqrt(len(found))
    assert error < 0.01
    assert abs(np.mean(found)) < 3 * error


@pytest.mark.parametrize("way", ["items pull everybody", "people copy"])
def test_what_people_share_beyond_the_class_shows_as_correlation(way: str) -> None:
    """Hard items (a quarter): right with 0.3 in place of 0.9. Copies: everybody has the first one's answer or none."""
    rng = np.random.default_rng(1)
    truth = rng.integers(3, size=400).astype(np.int32)
    if way == "people copy":
        right = np.repeat(rng.random((400, 1)) < 0.7, 4, axis=1)
        wrong = np.repeat(rng.integers(1, 3, size=(400, 1)), 4, axis=1)
        least = 0.99
    else:
        right = rng.random((400, 4)) < np.where(rng.random(400) < 0.25, 0.3, 0.9)[:, None]
        wrong = rng.integers(1, 3, size=(400, 4))
        least = 0.1
    said = np.where(right, truth[:, None], (truth[:, None] + wrong) % 3)
    pi_kjl = oracles.counts(table(said, 3, 3), np.eye(3)[truth]) + 0.01
    pi_kjl /= pi_kjl.sum(axis=2, keepdims=True)
    assert least < design_effect.unexplained_correlation(table(said, 3, 3), np.eye(3)[truth], pi_kjl) <= 1


def test_without_pairs_there_is_no_correlation() -> None:
    said = np.full((5, 3), -1)
    said[np.arange(4), [0, 1, 2, 0]] = 1
    assert (
        design_effect.unexplained_correlation(table(said, 2, 3), np.full((5, 2), 0.5), np.full((3, 2, 3), 1 / 3)) == 0.0
    )


# -- the corrected beliefs -----------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("strength", [0.0, 1.5])
def test_corrected_beliefs_are_those_of_plain_loops(shape: dict[str, Any], strength: float) -> None:
    evidence, alpha_kjl, share_j = some_crowd(shape)
    correction = effect_of(strength, np.random.default_rng(4).normal(size=share_j.size))
    found = corrected(evidence.annotations, alpha_kjl, share_j, correction)
    np.testing.assert_allclose(found, plain_corrected(evidence.annotations, alpha_kjl, share_j, correction), atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)


@everywhere
def test_without_shift_confidence_falls_and_labels_stay(shape: dict[str, Any]) -> None:
    evidence, alpha_kjl, share_j = some_crowd(shape)
    log_q0_nj = plain_log_posterior(evidence.annotations, alpha_kjl, share_j)
    last = np.exp(log_q0_nj - logsumexp(log_q0_nj, axis=1, keepdims=True))
    none = np.zeros(share_j.size)
    without = corrected(evidence.annotations, alpha_kjl, share_j, effect_of(0.0, none))
    np.testing.assert_allclose(without, last, atol=1e-12)
    labels_n = evidence.annotations.labels_per_item
    for strength in (0.1, 1, 100):
        found = corrected(evidence.annotations, alpha_kjl, share_j, effect_of(strength, none))
        np.testing.assert_array_equal(found.argmax(axis=1), last.argmax(axis=1))
        assert (found.max(axis=1) < last.max(axis=1))[labels_n > 1].all()
        np.testing.assert_allclose(found[labels_n < 2], last[labels_n < 2], atol=1e-12)
        last = found


def test_items_without_labels_have_the_class_shares() -> None:
    evidence, alpha_kjl, share_j = some_crowd({"unlabeled": 6})
    found = corrected(evidence.annotations, alpha_kjl, share_j, effect_of(2.0, np.arange(4.0)))
    np.testing.assert_allclose(found[-6:], np.tile(share_j, (6, 1)), rtol=1e-12)


# -- with truth ----------------------------------------------------------------------------------------------


@everywhere
def test_known_items_are_judged_by_what_the_others_taught(shape: dict[str, Any]) -> None:
    evidence, alpha_kjl, share_j = some_crowd(shape, known=0.5)
    assert 0 < evidence.known.sum() < 40
    found = design_effect.without_own_labels(evidence, alpha_kjl, share_j)
    np.testing.assert_allclose(found, plain_held_out(evidence, alpha_kjl, share_j), rtol=1e-9, atol=1e-9)


def test_what_is_left_of_a_count_stays_above_zero() -> None:
    evidence, alpha_kjl, share_j = some_crowd({}, known=1.0)
    found = design_effect.without_own_labels(evidence, np.full_like(alpha_kjl, 0.7), share_j)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", ["plain", "items without labels", "an anonymous pool", "everything"])
def test_no_nearby_strength_and_shift_explain_the_known_items_better(name: str) -> None:
    evidence, alpha_kjl, share_j = some_crowd(CROWDS[name], known=0.6, seed=2)
    objective = plain_objective(evidence, alpha_kjl, share_j)
    found = design_effect.of_annotators(evidence, alpha_kjl, share_j)
    theta = np.append(np.log(1 / found.half), found.shift)
    assert np.abs(theta[1:]).max() > 0.02
    step = 1e-4 * np.eye(theta.size)
    gradient = [(objective(theta + s) - objective(theta - s)) / 2e-4 for s in step]
    np.testing.assert_allclose(gradient, 0, atol=5e-4)
    rng = np.random.default_rng(0)
    for size in (0.01, 0.1, 1.0):
        for _ in range(4):
            assert objective(theta + size * rng.normal(size=theta.size)) < objective(theta) + 1e-6


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("known", [0.0, 0.5])
def test_the_labels_alone_suggest_a_strength(seed: int, known: float) -> None:
    """What held-out labels bear (see test_held_out), more where more is unexplained."""
    evidence, alpha_kjl, share_j = some_crowd({"asked": 0.9}, known, seed)
    annotations, pi_kjl = evidence.annotations, alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    log_q0_nj = plain_log_posterior(annotations, alpha_kjl, share_j)
    q_nj = np.exp(log_q0_nj - logsumexp(log_q0_nj, axis=1, keepdims=True))
    q_nj[evidence.known] = np.eye(4)[evidence.truth[evidence.known]]
    delta_m = design_effect.separations(annotations, log_q0_nj, pi_kjl)
    log_pi_klj = np.log(pi_kjl).transpose(0, 2, 1)
    bearable = bearable_strength(annotations, log_q0_nj, q_nj, delta_m, alpha_kjl, log_pi_klj, share_j)
    q_nj = np.where(q_nj < design_effect.NEGLIGIBLE, 0, q_nj)
    unexplained = max(plain_correlation(annotations, q_nj, pi_kjl), 0)
    expected = np.clip(bearable * np.sqrt(1 + 10 * unexplained), design_effect.LOWEST, design_effect.HIGHEST)
    assert design_effect.unsupervised_strength(evidence, alpha_kjl, share_j) == pytest.approx(expected)
    if not known:
        found = design_effect.of_annotators(evidence, alpha_kjl, share_j)
        assert 1 / found.half == pytest.approx(expected)
        np.testing.assert_array_equal(found.shift, 0)


def judged(said: Ints, truth: Ints, told: Ints) -> tuple[DesignEffect, DesignEffect]:
    """The corrections of a fit that saw all the truth, without and with some of it told."""
    annotations = table(said, 2, 2)
    alpha_kjl = oracles.counts(annotations, np.eye(2)[truth]) + 0.5
    evidence = Evidence(annotations, truth=told)
    unknown = replace(evidence, truth=np.full(truth.size, -1, np.int32))
    share_j = np.array([0.5, 0.5])
    return design_effect.of_annotators(unknown, alpha_kjl, share_j), design_effect.of_annotators(
        evidence, alpha_kjl, share_j
    )


@pytest.mark.parametrize("dependent", [False, True])
def test_known_items_tell_how_strongly_items_pull(dependent: bool) -> None:
    rng = np.random.default_rng(6)
    truth = rng.integers(2, size=300).astype(np.int32)
    chance = np.where(rng.random(300) < 0.3, 0.2, 0.9) if dependent else np.full(300, 0.75)
    said = np.where(rng.random((300, 8)) < chance[:, None], truth[:, None], 1 - truth[:, None])
    without, told = judged(said, truth, truth)
    assert 1 / told.half > 1.5 * 1 / without.half if dependent else 1 / told.half < 0.5 * 1 / without.half
    np.testing.assert_allclose(told.shift, 0, atol=0.4)


@pytest.mark.parametrize("common", [0, 1])
def test_known_items_tell_that_a_class_is_more_common(common: int) -> None:
    """A fit took the classes for even; of the items of known truth nine in ten are of one class."""
    rng = np.random.default_rng(7)
    truth = np.where(rng.random(200) < 0.9, common, 1 - common).astype(np.int32)
    said = np.where(rng.random((200, 4)) < 0.65, truth[:, None], 1 - truth[:, None])
    without, told = judged(said, truth, np.where(np.arange(200) < 100, truth, -1).astype(np.int32))
    np.testing.assert_array_equal(without.shift, 0)
    assert told.shift[common] > 0.3
    assert told.shift[1 - common] < -0.3


def test_known_items_nobody_labeled_say_nothing() -> None:
    evidence, alpha_kjl, share_j = some_crowd({"unlabeled": 6})
    told = np.where(np.arange(40) >= 34, 0, -1).astype(np.int32)
    found = design_effect.of_annotators(replace(evidence, truth=told), alpha_kjl, share_j)
    without = design_effect.of_annotators(evidence, alpha_kjl, share_j)
    assert 1 / found.half == pytest.approx(1 / without.half)
    np.testing.assert_array_equal(found.shift, 0)
