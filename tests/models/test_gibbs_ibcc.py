"""GibbsIBCC: every conditional against enumeration or quadrature, the whole against the exact posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln, gammaln, logsumexp

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.gibbs_ibcc import GibbsIBCC
from hitl.models.sampling import chains, gibbs, posterior
from tests import bcc_oracles, oracles
from tests.gibbs_states import log_joint, matched_variance, some_state

FIVE: dict[str, dict[str, Any]] = {
    "plain": {},
    "two known truths": {"known": 0.4},
    "everything known": {"known": 1.0},
    "options beyond the classes": {"n_classes": 2, "n_options": 3},
    "an anonymous pool": {"pool": 6},
    "items without labels": {"unlabeled": 2, "known": 0.3},
}


# -- single draws ----------------------------------------------------------------------------------------------


def test_indices_are_drawn_with_their_probabilities_and_never_an_impossible_one() -> None:
    rng = np.random.default_rng(2)
    p = np.array([0.0, 0.2, 0.0, 0.5, 0.3, 0.0])
    found = np.bincount([gibbs.draw_index(rng, 3 * p, 3.0) for _ in range(20_000)], minlength=6) / 20_000
    np.testing.assert_allclose(found, p, atol=4 * np.sqrt(0.25 / 20_000))
    assert (found[p == 0] == 0).all()
    assert gibbs.draw_index(rng, np.array([0.0, 1e-9, 0.0]), 1.0) == 1  # whatever rounding does to the sum


# -- alpha -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "other", "rest"), [(0, 5, 0.4), (7, 0, 3.0), (1, 1, 0.02), (40, 13, 9.0)])
def test_the_density_of_alpha_is_the_integral_over_pi(count: int, other: int, rest: float) -> None:
    """Two options: integrate Beta(pi | alpha, rest) pi^count (1 - pi)^other numerically; differences at points."""
    mean = 2.5

    def by_quadrature(u: float) -> float:
        alpha = np.exp(u)
        # With pi = sigmoid(v) the integrand is smooth at both ends.
        value, _ = quad(
            lambda v: np.exp((alpha + count) * -np.logaddexp(0, -v) + (rest + other) * -np.logaddexp(0, v)),
            *(-60 / (alpha + count), 60 / (rest + other)),
            limit=400,
            points=[0.0],
        )
        return float(np.log(value) - betaln(alpha, rest) - alpha / mean + u)

    points = [-3.0, -1.0, 0.0, 1.0, 2.5]
    expected = np.array([by_quadrature(u) for u in points])
    found = np.array([gibbs.log_alpha_density(u, rest, count, count + other, mean) for u in points])
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=1e-6)


@pytest.mark.parametrize(("count", "total", "rest"), [(0.0, 5.0, 0.4), (7.0, 7.0, 3.0), (1.0, 60.0, 0.02)])
def test_slice_draws_have_the_moments_of_the_density(count: float, total: float, rest: float) -> None:
    rng = np.random.default_rng(3)
    draws = np.empty(30_000)
    u = 0.0
    for s in range(draws.size):
        u = draws[s] = gibbs.slice_log_alpha(rng, u, rest, count, total, 2.0)

    def density(v: float) -> float:
        a = np.exp(v)
        seen = gammaln(a + count) - gammaln(a) + gammaln(a + rest) - gammaln(a + rest + total)
        return float(np.exp(seen - a / 2.0 + v + gammaln(total + 1)))

    norm, mean, square = (quad(lambda v, p=p: v**p * density(v), -40, 6, limit=400)[0] for p in (0, 1, 2))
    mean, square = mean / norm, square / norm
    error = np.sqrt((square - mean**2) / chains.effective_size(draws[None]))
    assert draws.mean() == pytest.approx(mean, abs=4 * error)
    assert (draws**2).mean() == pytest.approx(square, rel=0.08)
    assert chains.effective_size(draws[None]) > 5000


def test_a_row_of_alphas_has_the_moments_of_its_posterior() -> None:
    """Given counts, against quadrature over all three. A row without counts is at its prior."""
    rng = np.random.default_rng(4)
    mean_jl = np.array([[5.0, 1.0, 0.5], [1.0, 4.0, 1.0]])
    prior = gibbs.Prior(np.ones(2), mean_jl, np.ones_like(mean_jl), 1.0)
    state = gibbs.blank_state(1, 1, 2, 3)
    state.counts_klj[0, :, 0] = counts = np.array([6, 2, 0])
    state.counts_kj[0, 0] = 8
    alpha = np.empty((20_000, 2, 3))
    for s in range(len(alpha)):
        gibbs.draw_alphas(rng, prior, state)
        alpha[s] = state.alpha_klj[0].T
    np.testing.assert_allclose(state.alpha_kj, state.alpha_klj.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(alpha[:, 1].mean(axis=0), mean_jl[1], rtol=0.05)
    row = bcc_oracles.RowEvidence(mean_jl[0], 8)
    for option in range(3):  # E of the chance of one more, and of two more, of this answer
        chance = (alpha[:, 0, option] + counts[option]) / (alpha[:, 0].sum(axis=1) + 8)
        twice = chance * (alpha[:, 0, option] + counts[option] + 1) / (alpha[:, 0].sum(axis=1) + 9)
        for values, by in ((chance, 1), (twice, 2)):
            expected = row(bcc_oracles.raised(counts, option, by)) / row((6, 2, 0))
            error = values.std() / np.sqrt(chains.effective_size(values[None]))
            assert values.mean() == pytest.approx(expected, abs=4 * error)


# -- truths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", FIVE.values(), ids=FIVE)
def test_conditional_truths_are_ratios_of_the_joint(shape: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    evidence, _ = oracles.crowd(rng, 5, **({"n_annotators": 4, "n_classes": 3} | shape))
    a = evidence.annotations
    prior = posterior.all_hard(a, 8.0, 1.0, 0.6)
    table, state = posterior.known_table(evidence), some_state(rng, evidence, prior)
    always = np.ones(5, dtype=bool)
    left_out = {n for n in range(5) if a.labels_per_item[n] == 0 and evidence.truth[n] < 0}
    assert set(range(5)) - set(table.informative) == left_out
    found = gibbs.log_joint(table, prior, state)
    assert found == pytest.approx(log_joint(evidence, prior, state, state.truth_n, always), abs=1e-9)
    for n in table.informative:
        if evidence.truth[n] >= 0:
            assert state.truth_n[n] == evidence.truth[n]
            continue
        joint = [
            log_joint(evidence, prior, state, np.where(np.arange(5) == n, j, state.truth_n), always)
            for j in range(a.n_classes)
        ]
        expected = np.exp(joint - logsumexp(joint))
        times = np.zeros(a.n_classes)
        for _ in range(1000):
            one = table._replace(informative=np.array([n]))
            gibbs.draw_truths(rng, one, prior, state)
            np.testing.assert_allclose(state.q_nj[n], expected, atol=1e-12)
            times[state.truth_n[n]] += 1
        np.testing.assert_allclose(times / 1000, expected, atol=4 * np.sqrt(0.25 / 1000))
    np.testing.assert_allclose(state.hard_n, 1, atol=1e-12)


@pytest.mark.parametrize("shape", FIVE.values(), ids=FIVE)
def test_counts_follow_the_drawn_truths(shape: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    evidence, _ = oracles.crowd(rng, 12, **({"n_annotators": 4, "n_classes": 3} | shape))
    a = evidence.annotations
    prior = posterior.all_hard(a, 8.0, 1.0, 1.0)
    prior = prior._replace(hard=0.6, easy_jl=np.full_like(prior.mean_jl, 1 / a.n_options))
    table, state = posterior.known_table(evidence), some_state(rng, evidence, prior)
    for _ in range(20):
        gibbs.draw_truths(rng, table, prior, state)
    one_hot = np.zeros((12, a.n_classes))
    one_hot[table.informative, state.truth_n[table.informative]] = 1.0
    hard = one_hot * state.is_hard_n[:, None]
    assert 0 < hard.sum() < one_hot.sum()
    np.testing.assert_array_equal(state.counts_klj.transpose(0, 2, 1), oracles.counts(a, hard))
    np.testing.assert_array_equal(state.counts_kj, state.counts_klj.sum(axis=1))
    np.testing.assert_array_equal(state.items_j, one_hot.sum(axis=0))
    np.testing.assert_array_equal(state.easy_j, (one_hot - hard).sum(axis=0))


# -- the whole -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", FIVE.values(), ids=FIVE)
def test_the_fit_is_the_exact_posterior_of_five_items(shape: dict[str, Any]) -> None:
    """All truths enumerated, pi and p integrated out, alpha by quadrature."""
    rng = np.random.default_rng(7)
    evidence, _ = oracles.crowd(rng, 5, **({"n_annotators": 3, "n_classes": 2} | shape))
    a = evidence.annotations
    combiner = GibbsIBCC(diagonal=3.0, off=0.7, share_smoothing=0.8, burn_in=100, draws=12_000)
    mean_jl = posterior.all_hard(a, 3.0, 0.7, 0.8).mean_jl
    assert mean_jl.shape == (a.n_classes, a.n_options)
    assert (np.diag(mean_jl) == 3.0).all()
    exact = bcc_oracles.enumerate_posterior(evidence, mean_jl, 0.8)
    found = combiner.fit(evidence)
    assert found.fit.converged
    np.testing.assert_allclose(found.probabilities, exact.q_nj, atol=0.01)
    np.testing.assert_allclose(found.class_shares, exact.share_j, atol=0.01)
    np.testing.assert_allclose(found.annotators.confusion, exact.mean_kjl, atol=0.01)
    variance = (exact.square_kjl - exact.mean_kjl**2).sum(axis=2)
    np.testing.assert_allclose(matched_variance(found.annotators.concentration), variance, rtol=0.05)
    assert found.difficulty is None


def test_a_start_shortens_the_burn_in_and_keeps_the_answer() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(12), 80, 6, 3, known=0.2)
    cold = GibbsIBCC().fit(evidence)
    warm = GibbsIBCC().fit(evidence, start=cold)
    assert (cold.fit.iterations, warm.fit.iterations) == (1250, 1062)
    np.testing.assert_allclose(warm.probabilities, cold.probabilities, atol=0.04)


# -- mixing ----------------------------------------------------------------------------------------------------


def test_the_people_with_most_labels_are_monitored_one_by_one() -> None:
    rng = np.random.default_rng(19)
    evidence, _ = oracles.crowd(rng, 60, 30, 2, asked=0.3)
    a = evidence.annotations
    labels = a.labels_per_annotator
    weight = posterior.accuracy_weights(a)
    np.testing.assert_allclose(weight[0], labels / labels.sum())
    people = posterior.busiest(a)
    assert len(people) == posterior.MONITORED < 30
    assert labels[people].min() >= np.delete(labels, people).max()
    np.testing.assert_array_equal(weight[1:], np.eye(30)[people])
    mixing = GibbsIBCC(burn_in=10, draws=10).fit(evidence).fit.mixing
    assert mixing is not None
    assert [name for name in mixing.rhat if name.startswith("accuracy of")] == [f"accuracy of k{k}" for k in people]


def test_chains_that_are_stuck_in_different_answers_are_reported() -> None:
    """Two people who contradict each other on everything: one of them is right, and no chain changes its mind."""
    truth = np.random.default_rng(15).integers(2, size=100)
    evidence = Evidence(Annotations.from_matrix(np.stack((truth, 1 - truth), axis=1)))
    fits = [GibbsIBCC(seed=seed).fit(evidence).fit for seed in range(4)]
    assert any(fit.mixing is not None and max(fit.mixing.rhat.values()) > 1.5 for fit in fits)
    assert not all(fit.converged for fit in fits)
