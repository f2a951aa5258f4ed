"""The Dirichlet parts of variational Bayes: posteriors, their divergences, and the shared prior with its constraint."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.special import gammaln

from hitl.models.annotators.dirichlet_confusion import (
    largest_on_the_diagonal,
    raised,
)
from tests import oracles

Floats = oracles.Floats
seeds = st.integers(0, 100_000)


def prior_objective(prior_jl: Floats, counts_klj: Floats, hyper_jl: Floats) -> float:
    """sum_k [ln B(a_j + N_kj) - ln B(a_j)] + sum_l (a0 ln a - a), one term after the other."""
    total = 0.0
    for j, a in enumerate(prior_jl):
        total += oracles.log_beta(a + counts_klj[:, :, j]) - len(counts_klj) * oracles.log_beta(a)
        total += (stats.gamma.logpdf(a, hyper_jl[j] + 1) + gammaln(hyper_jl[j] + 1)).sum()
    return float(total)


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
