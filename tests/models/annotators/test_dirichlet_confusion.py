"""The Dirichlet parts of variational Bayes: posteriors, their divergences, and the shared prior with its constraint."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.special import gammaln

from hitl.models.annotators.dirichlet_confusion import (
    DirichletConfusion,
    largest_on_the_diagonal,
    raised,
)
from hitl.models.priors.shares import DirichletShares, log_beta
from tests import oracles

Floats = oracles.Floats
seeds = st.integers(0, 100_000)


def some_counts(rng: np.random.Generator, n_annotators: int, n_classes: int, n_options: int) -> Floats:
    """(K, L, J) expected counts of all sizes: none at all, fractions of a label, hundreds."""
    scale = 10.0 ** rng.uniform(-3, 2, size=(n_annotators, 1, n_classes))
    return rng.gamma(0.5, size=(n_annotators, n_options, n_classes)) * scale * (rng.random(scale.shape) < 0.8)


def some_prior(rng: np.random.Generator, n_classes: int, n_options: int, low: float = 0.05) -> Floats:
    """(J, L) parameters that satisfy the constraint."""
    prior_jl = 10.0 ** rng.uniform(np.log10(low), 1, size=(n_classes, n_options))
    np.fill_diagonal(prior_jl, prior_jl.max(axis=1) * rng.choice([1.0, 1.3, 4.0], size=n_classes))
    return prior_jl


def expected_log(alpha: Floats) -> Floats:
    """E ln x_l of a Dirichlet: its Beta marginals, by the trapezoid rule over logit x, which decays fast both ways."""
    out = np.empty(alpha.size)
    for option, a in enumerate(alpha):
        b = alpha.sum() - a
        u = np.linspace(-9, 9, 4001)
        logit = np.log(a / b) + np.sqrt(1 / a + 1 / b) * np.sinh(u)
        log_x, log_rest = -np.logaddexp(0, -logit), -np.logaddexp(0, logit)
        weight = a * log_x + b * log_rest + np.log(np.cosh(u))
        weight = np.exp(weight - weight.max())
        out[option] = weight @ log_x / weight.sum()
    return out


def divergence(alpha: Floats, prior: Floats) -> float:
    """KL(Dir(alpha) || Dir(prior)): minus the entropy of the one, minus the mean log density of the other."""
    log_x = expected_log(alpha)
    log_density = gammaln(prior.sum()) - gammaln(prior).sum() + ((prior - 1) * log_x).sum()
    return float(-stats.dirichlet(alpha).entropy() - log_density)


def prior_objective(prior_jl: Floats, counts_klj: Floats, hyper_jl: Floats) -> float:
    """sum_k [ln B(a_j + N_kj) - ln B(a_j)] + sum_l (a0 ln a - a), one term after the other."""
    total = 0.0
    for j, a in enumerate(prior_jl):
        total += oracles.log_beta(a + counts_klj[:, :, j]) - len(counts_klj) * oracles.log_beta(a)
        total += (stats.gamma.logpdf(a, hyper_jl[j] + 1) + gammaln(hyper_jl[j] + 1)).sum()
    return float(total)


# -- posteriors ----------------------------------------------------------------------------------------------


def test_the_log_normaliser_is_that_of_the_density() -> None:
    rng = np.random.default_rng(0)
    for alpha in rng.gamma(1.0, size=(20, 4)) + 0.05:
        x = rng.dirichlet(np.ones(4))
        expected = ((alpha - 1) * np.log(x)).sum() - stats.dirichlet(alpha).logpdf(x)
        assert log_beta(alpha) == pytest.approx(expected, abs=1e-10)


def test_expected_logs_agree_with_quadrature() -> None:
    rng = np.random.default_rng(1)
    counts_klj = some_counts(rng, 2, 3, 4)
    people = DirichletConfusion.unlearned(some_prior(rng, 3, 4), 2).learn(counts_klj)
    for k in range(2):
        for j in range(3):
            expected = expected_log(people.prior_jl[j] + counts_klj[k, :, j])
            np.testing.assert_allclose(people.log_pi_klj[k, :, j], expected, rtol=1e-8)
    q_nj, informative_n = rng.dirichlet(np.ones(3), size=5), np.array([True, False, True, True, True])
    prior = DirichletShares.even(3, 0.7)
    shares = prior.learn(prior.statistics(q_nj, informative_n))
    nu_j = 0.7 + q_nj[[0, 2, 3, 4]].sum(axis=0)
    np.testing.assert_allclose(shares.log_prior()[0], expected_log(nu_j), rtol=1e-8)
    np.testing.assert_allclose(shares.share_j, nu_j / nu_j.sum(), rtol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_the_density_of_the_annotators_is_what_it_says(shared: bool) -> None:
    """-KL(q(pi) || p(pi | a)) + ln p(a)."""
    rng = np.random.default_rng(2)
    start = DirichletConfusion.unlearned(some_prior(rng, 2, 3), 3, shared)
    people = start.learn(some_counts(rng, 3, 2, 3))
    assert np.array_equal(people.prior_jl, start.hyper_jl) is not shared
    rows = [(people.alpha_klj[k, :, j], people.prior_jl[j]) for k in range(3) for j in range(2)]
    expected = -sum(divergence(alpha, prior) for alpha, prior in rows)
    if shared:
        expected += float((start.hyper_jl * np.log(people.prior_jl) - people.prior_jl).sum())
    assert people.log_density() == pytest.approx(expected, rel=1e-8)


def test_the_density_of_the_shares_is_what_it_says() -> None:
    assert DirichletShares.even(3, 0.8).log_density() == pytest.approx(0, abs=1e-12)
    shares = DirichletShares.even(3, 0.8).learn(np.random.default_rng(3).dirichlet(np.ones(3), size=9).sum(axis=0))
    assert shares.log_density() == pytest.approx(-divergence(shares.nu_j, np.full(3, 0.8)), rel=1e-8)


def test_no_nearby_posterior_explains_the_counts_better() -> None:
    """E ln p(counts) - KL(q || prior) is highest at prior + counts, for the rows and for the shares (eqs. 17, 22)."""
    rng = np.random.default_rng(4)
    counts_klj = some_counts(rng, 3, 2, 4)
    people = DirichletConfusion.unlearned(some_prior(rng, 2, 4), 3).learn(counts_klj)
    q_nj = rng.dirichlet(np.ones(4), size=20)
    shares = DirichletShares.even(4, 0.6).learn(q_nj.sum(axis=0))
    cases = [(people.alpha_klj[k, :, j], people.prior_jl[j], counts_klj[k, :, j]) for k in range(3) for j in range(2)]
    for alpha, prior, counts in [*cases, (shares.nu_j, np.full(4, 0.6), q_nj.sum(axis=0))]:

        def gain(alpha: Floats, prior: Floats = prior, counts: Floats = counts) -> float:
            return float(counts @ expected_log(alpha)) - divergence(alpha, prior)

        best = gain(alpha)
        for _ in range(6):
            moved = alpha * np.exp(10.0 ** -rng.uniform(0.5, 2.5) * rng.normal(size=4))
            assert gain(moved) < best + 1e-9


# -- the constraint ------------------------------------------------------------------------------------------


def gain_of(x: Floats, gain: Floats) -> float:
    return float((gain * np.log(x) - x).sum())


@settings(max_examples=80, deadline=None)
@given(seed=seeds, n_options=st.integers(1, 5))
def test_the_largest_on_the_diagonal_agrees_with_a_generic_solver(seed: int, n_options: int) -> None:
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(1, n_options + 1))
    gain_jl = rng.choice([rng.uniform(0.2, 3, size=(n_classes, n_options)), rng.gamma(1.5, 3, (n_classes, n_options))])
    gain_jl += 0.05
    before = gain_jl.copy()
    found_jl = largest_on_the_diagonal(gain_jl)
    np.testing.assert_array_equal(gain_jl, before)
    for j, (gain, found) in enumerate(zip(gain_jl, found_jl, strict=True)):
        assert (found <= found[j] * (1 + 1e-12)).all()
        lead = np.delete(np.eye(n_options)[j] - np.eye(n_options), j, axis=0)
        solved = optimize.minimize(
            lambda x, gain=gain: -gain_of(x, gain),
            np.full(n_options, gain.mean()),
            jac=lambda x, gain=gain: 1 - gain / x,
            method="SLSQP",
            bounds=[(1e-3, None)] * n_options,
            constraints=[{"type": "ineq", "fun": lambda x, a=lead: a @ x, "jac": lambda x, a=lead: a}]
            * bool(len(lead)),
            options={"ftol": 1e-13, "maxiter": 300},
        )
        assert gain_of(found, gain) >= -solved.fun - 1e-10
        np.testing.assert_allclose(found, solved.x, rtol=1e-3)


# -- the shared prior ----------------------------------------------------------------------------------------


def settled(counts_klj: Floats, hyper_jl: Floats, sweeps: int = 2000) -> Floats:
    prior_jl = hyper_jl
    for _ in range(sweeps):
        prior_jl = raised(prior_jl, counts_klj, hyper_jl)
    return prior_jl


def dirichlet_counts(rng: np.random.Generator, prior_jl: Floats, n_annotators: int, n_labels: int) -> Floats:
    """(K, L, J) counts of people whose rows come from Dir(prior_jl), each with as many labels of every class."""
    rows = [[rng.multinomial(n_labels, rng.dirichlet(a)) for a in prior_jl] for _ in range(n_annotators)]
    return np.array(rows, dtype=float).transpose(0, 2, 1)


CROWDS = {
    "most are right": [[4.0, 1.0, 0.5], [0.7, 3.0, 1.0]],
    "one class is mistaken for another": [[1.0, 3.0, 0.5], [1.0, 2.0, 0.3]],
    "two others tempt": [[0.8, 2.0, 1.5], [2.0, 1.5, 1.8]],
}


@pytest.mark.parametrize("truth", CROWDS.values(), ids=CROWDS)
def test_sweeps_converge_to_the_maximum(truth: list[list[float]]) -> None:
    """The constrained maximum by a generic solver from several starts, and its first-order conditions."""
    rng = np.random.default_rng(5)
    counts_klj = dirichlet_counts(rng, np.array(truth), 25, 12)
    hyper_jl = np.array([[2.0, 1.0, 1.0], [1.0, 2.0, 1.0]])
    found_jl = settled(counts_klj, hyper_jl)
    for j, found in enumerate(found_jl):

        def objective(log_a: Floats, j: int = j) -> float:
            return -prior_objective(np.exp(log_a)[None], counts_klj[:, :, [j]], hyper_jl[[j]])

        solved = [
            optimize.minimize(
                objective,
                start,
                method="SLSQP",
                bounds=[(-6, 6)] * 3,
                constraints={"type": "ineq", "fun": lambda log_a, j=j: log_a[j] - np.delete(log_a, j)},
                options={"ftol": 1e-14, "maxiter": 500},
            )
            for start in (np.zeros(3), np.log(hyper_jl[j]), rng.normal(size=3))
        ]
        best = min(solved, key=lambda result: result.fun)
        assert -objective(np.log(found)) >= -best.fun - 1e-9
        np.testing.assert_allclose(found, np.exp(best.x), rtol=1e-3)
        slope = -optimize.approx_fprime(np.log(found), objective, 1e-6)
        tied = np.isclose(found, found[j])
        assert slope[tied].sum() == pytest.approx(0, abs=1e-3)
        np.testing.assert_allclose(slope[~tied], 0, atol=1e-3)
        assert (np.delete(slope, j)[np.delete(tied, j)] > -1e-3).all(), "an option held down without need"
