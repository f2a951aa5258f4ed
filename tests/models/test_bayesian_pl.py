"""Bayesian P+L: the quadrature against scipy's and against Metropolis, predictions against draws of everything."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import PL, BayesianPL
from hitl.models.bayesian_pl import FACTOR, WEIGHT, repeated_answers
from tests import oracles


def pools(evidence: Evidence, log_t_dm: oracles.Floats) -> oracles.Floats:
    """(D, N, J) the pool at each of D vectors of log temperatures; NaN where all models are abstaining."""
    log_p = np.log(np.stack([*evidence.probabilities.values()]))
    speaks = ~np.isnan(log_p[:, :, 0])
    with np.errstate(invalid="ignore"):
        joint = np.einsum("dm,mnj->dnj", np.exp(-log_t_dm), np.nan_to_num(log_p)) / speaks.sum(axis=0)[None, :, None]
    return np.exp(joint - logsumexp(joint, axis=2, keepdims=True))


def log_posteriors(evidence: Evidence, log_t_dm: oracles.Floats) -> oracles.Floats:
    """(D,) log posterior of the log temperatures, in plain sums over known items, up to a constant."""
    spoken = np.any([~np.isnan(p[:, 0]) for p in evidence.probabilities.values()], axis=0)
    rows = np.flatnonzero(evidence.known & spoken)
    few = Evidence(oracles.crowd(np.random.default_rng(0), len(rows), 1, evidence.annotations.n_classes)[0].annotations)
    told = replace(few, probabilities={name: p[rows] for name, p in evidence.probabilities.items()})
    likelihood = np.log(pools(told, log_t_dm)[:, np.arange(len(rows)), evidence.truth[rows]]).sum(axis=1)
    return likelihood - 0.5 * (((log_t_dm - 0.5) / 0.5) ** 2).sum(axis=1)


def metropolis(evidence: Evidence, rng: np.random.Generator, draws: int, chains: int, step: float) -> oracles.Floats:
    """(draws * chains, M) log temperatures, by many chains at once; the first fifth of each is dropped."""
    at = 0.5 + 0.5 * rng.normal(size=(chains, len(evidence.probabilities)))
    here = log_posteriors(evidence, at)
    kept = []
    for draw in range(draws):
        tried = at + step * rng.normal(size=at.shape)
        there = log_posteriors(evidence, tried)
        moves = np.log(rng.random(chains)) < there - here
        at, here = np.where(moves[:, None], tried, at), np.where(moves, there, here)
        if draw >= draws / 5:
            kept.append(at)
    return np.concatenate(kept)


@pytest.mark.parametrize("n_known", [4, 40, 2000])
def test_the_quadrature_is_that_of_scipy(n_known: int) -> None:
    evidence, truth = oracles.crowd(np.random.default_rng(1), n_known + 10, 1, 3, models=1, abstaining=0.1)
    evidence = replace(evidence, truth=np.where(np.arange(n_known + 10) < n_known, truth, -1))
    learned = BayesianPL().fit(evidence)
    p = evidence.probabilities["m0"]
    rows = np.flatnonzero(evidence.known & ~np.isnan(p[:, 0]))
    log_p, told = np.log(p[rows]), np.log(p[rows, truth[rows]])
    mode = np.log(learned.temperatures["m0"])

    def density(log_t: float) -> float:
        def log_density(at: float) -> float:
            b = np.exp(-at)
            return float((b * told - logsumexp(b * log_p, axis=1)).sum() - 0.5 * ((at - 0.5) / 0.5) ** 2)

        return float(np.exp(log_density(log_t) - log_density(mode)))

    log_t_s, weight_s = mode + np.log(learned.parameters[FACTOR]), learned.parameters[WEIGHT]
    assert weight_s.sum() == pytest.approx(1)
    moments = [quad(lambda x, r=r: x**r * density(x), -3, 5, points=[mode], limit=400)[0] for r in range(3)]
    for r in (1, 2):
        assert weight_s @ log_t_s**r == pytest.approx(moments[r] / moments[0], abs=1e-7)


def test_a_sampler_of_the_temperature_and_draws_of_the_matrices_say_the_same() -> None:
    """Eq. 21 by brute force: Metropolis for T, Dirichlet draws for the people, repeated answers of a pool included."""
    rng = np.random.default_rng(2)
    evidence, truth = oracles.crowd(rng, 26, 2, 3, 4, models=1, pool=60, abstaining=0.15)
    told = np.where(np.arange(26) < 12, truth, -1)
    evidence = replace(evidence, truth=told)
    found = BayesianPL(accuracy=0.75, off=0.4).fit(evidence)
    a = evidence.annotations
    pooled = a.annotator == a.anonymous
    assert np.bincount(a.item[pooled & (told[a.item] < 0)]).max() >= 3
    log_t = metropolis(evidence, rng, draws=100, chains=500, step=0.8)
    calibrated = pools(evidence, log_t).mean(axis=0)
    calibrated[np.isnan(calibrated[:, 0])] = found.class_shares
    counts = oracles.counts(a, np.where(told[:, None] >= 0, np.eye(3)[truth], 0.0))
    pseudo = np.where(np.eye(3, 4) > 0, 0.4 * 3 * 0.75 / 0.25, 0.4)
    pi = np.stack([[rng.dirichlet(row, size=100_000) for row in table] for table in counts + pseudo])  # K, J, draws, L
    likelihood = np.ones((26, 3))
    for n in range(26):
        product = np.ones((3, 100_000))
        for row in np.flatnonzero(a.item == n):
            product *= pi[a.annotator[row], :, :, a.label[row]]
        likelihood[n] = product.mean(axis=1)
    expected = calibrated * likelihood
    expected /= expected.sum(axis=1, keepdims=True)
    unknown = told < 0
    np.testing.assert_allclose(found.probabilities[unknown], expected[unknown], atol=0.015)
    independent = PL(accuracy=0.75, off=0.4).fit(evidence).probabilities
    assert np.abs(independent - expected)[unknown].max() > 0.05  # the test can tell


def test_the_papers_settings_are_eq_22() -> None:
    """One item after the other: the mean of p_T over a grid of T, times (N + b + 1) / sum for each label."""
    evidence, truth = oracles.crowd(np.random.default_rng(10), 50, 3, 3, 4, models=1)
    told = replace(evidence, truth=np.where(np.arange(50) < 12, truth, -1))
    a, p = evidence.annotations, evidence.probabilities["m0"]
    log_t = np.linspace(-2.5, 3.5, 3001)
    powered = p[None] ** np.exp(-log_t)[:, None, None]
    p_gnj = powered / powered.sum(axis=2, keepdims=True)
    weight = np.exp(-0.5 * ((log_t - 0.5) / 0.5) ** 2)  # eq. 18
    for n in range(12):
        weight *= p_gnj[:, n, truth[n]]
    expected = np.einsum("g,gnj->nj", weight / weight.sum(), p_gnj)
    alpha = np.full((3, 3, 4), 0.1 + 1)
    alpha[:, range(3), range(3)] = 0.1 * 3 * 0.75 / 0.25 + 1
    for n, k, label in zip(a.item, a.annotator, a.label, strict=True):
        alpha[k, truth[n], label] += n < 12
    for n, k, label in zip(a.item, a.annotator, a.label, strict=True):
        expected[n] *= alpha[k, :, label] / alpha[k].sum(axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    found = BayesianPL.paper().fit(told)
    np.testing.assert_allclose(found.probabilities[12:], expected[12:], atol=1e-6)
    at_the_mean = replace(BayesianPL.paper(), accuracy_at="mean").fit(told)
    assert np.abs(at_the_mean.probabilities - expected)[12:].max() > 0.05  # the test can tell


def test_at_the_mode_the_repeated_answers_of_a_pool_are_draws_of_the_same_rows() -> None:
    """Settings apart, Dirichlet(N + b + 1) is Dirichlet(N + b') with b' = b + 1 everywhere."""
    table = np.array([[2.5, 0.7, 0.4], [0.3, 1.5, 0.2]])
    rows = {"item": ["x", "x", "x", "y"], "label": ["a", "a", "b", "c"]}
    annotations = Annotations.from_frame(rows, annotator=None, classes=["a", "b"], options=["a", "b", "c"])
    net = np.array([[0.6, 0.4], [0.5, 0.5]])
    told = Evidence(annotations, {"net": net}, truth=[0, -1])
    learned = BayesianPL(off=0.2).fit(told)
    learned = replace(learned, annotators=replace(learned.annotators, concentration=table[None]))
    raised = replace(learned, annotators=replace(learned.annotators, concentration=table[None] + 1))
    bare = replace(told, truth=None)
    expected = BayesianPL(off=0.2).apply(raised, bare).probabilities
    np.testing.assert_allclose(BayesianPL(off=0.2, accuracy_at="mode").apply(learned, bare).probabilities, expected)


def test_two_models_are_nearly_what_the_posterior_of_both_temperatures_says() -> None:
    """All of it, on a dense grid of both; with little truth and models that speak on different items."""
    evidence, truth = oracles.crowd(np.random.default_rng(3), 120, 1, 3, models=2, abstaining=0.2, asked=0.0)
    axis = np.linspace(-2.5, 3.5, 81)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    for n_known in (5, 12, 60):
        told = replace(evidence, truth=np.where(np.arange(120) < n_known, truth, -1))
        log_weight = log_posteriors(told, grid)
        weight = np.exp(log_weight - logsumexp(log_weight))
        expected = np.einsum("d,dnj->nj", weight, pools(told, grid))
        rows = ~told.known & ~np.isnan(expected[:, 0])
        error = np.abs(BayesianPL().fit(told).probabilities - expected)[rows]
        mode = np.abs(PL().fit(told).probabilities - expected)[rows]
        assert error.max() < 0.035
        assert error.mean() < 0.6 * mode.mean()


def test_answers_that_repeat_each_other_tell_less() -> None:
    """Polya's urn, answer by answer."""
    a = np.array([[2.7, 0.1, 0.1, 0.4], [0.3, 4.0, 0.1, 0.1], [1.0, 1.0, 1.0, 1.0]])
    labels = {"x": [1, 0, 1, 1], "y": [3], "z": [2, 2, 0]}
    rows = [(item, label) for item, said in labels.items() for label in said]
    annotations = Annotations.from_frame(
        {"item": [item for item, _ in rows], "label": [f"o{label}" for _, label in rows]},
        annotator=None,
        items=["nobody", *labels],
        classes=["o0", "o1", "o2"],
        options=["o0", "o1", "o2", "o3"],
    )
    for j in range(3):
        for n, said in enumerate(labels.values(), 1):
            urn, log_p = a[j].copy(), 0.0
            for label in said:
                log_p += np.log(urn[label] / urn.sum())
                urn[label] += 1
            alone = np.log(a[j, said] / a[j].sum()).sum()
            assert repeated_answers(annotations, a)[n, j] == pytest.approx(log_p - alone)
    np.testing.assert_array_equal(repeated_answers(annotations, a)[[0, 2]], 0)
