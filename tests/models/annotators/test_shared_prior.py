"""The prior that annotators share is found by steps of Newton, where creeping to it finds it, and never from below."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma, polygamma

from hitl.annotations import Floats
from hitl.models.annotators import dirichlet_confusion
from hitl.models.annotators.confusion import on_the_diagonal, over_options
from hitl.models.numerics.special import log_gamma, psi_sums
from hitl.models.priors.shares import log_beta


def objective(prior_jl: Floats, counts_klj: Floats, hyper_jl: Floats) -> float:
    alpha_klj = counts_klj + prior_jl.T
    value = log_gamma(alpha_klj).sum() - log_gamma(over_options(alpha_klj)).sum()
    value -= len(counts_klj) * log_beta(prior_jl).sum()
    return float(value + dirichlet_confusion.log_hyper_density(prior_jl, hyper_jl))


def counts(rng: np.random.Generator, annotators: int, classes: int, options: int, labels: float) -> Floats:
    pi_kjl = rng.dirichlet(np.ones(options), size=(annotators, classes))
    pi_kjl[:, np.arange(classes), np.arange(classes)] += 2
    pi_kjl /= pi_kjl.sum(axis=2, keepdims=True)
    given_kj = rng.gamma(0.7, labels, size=(annotators, classes))
    return np.ascontiguousarray((pi_kjl * given_kj[:, :, None]).transpose(0, 2, 1))


@pytest.mark.parametrize("seed", range(12))
def test_few_steps_get_as_far_as_many_of_the_fixed_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes, annotators = int(rng.integers(2, 6)), int(rng.choice([1, 4, 40, 400]))
    options = classes + int(rng.integers(2))
    counts_klj = counts(rng, annotators, classes, options, float(rng.choice([0.5, 5, 100])))
    hyper_jl = on_the_diagonal(classes, options, 2.0, 1.0)
    quick_jl = crept_jl = hyper_jl
    reached = objective(hyper_jl, counts_klj, hyper_jl)
    for _ in range(4):
        quick_jl = dirichlet_confusion.fitted(quick_jl, counts_klj, hyper_jl)
        before, reached = reached, objective(quick_jl, counts_klj, hyper_jl)
        assert reached >= before - 1e-9 * abs(before)
        assert (quick_jl <= quick_jl.diagonal()[:, None] * (1 + 1e-12)).all()
    for _ in range(60):
        crept_jl = dirichlet_confusion.raised(crept_jl, counts_klj, hyper_jl)
    assert reached >= objective(crept_jl, counts_klj, hyper_jl) - 1e-6 * abs(reached)


def test_an_overshooting_step_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    counts_klj = counts(np.random.default_rng(3), 60, 3, 3, 20.0)
    hyper_jl = on_the_diagonal(3, 3, 2.0, 1.0)
    newton = dirichlet_confusion._Rows._newton
    monkeypatch.setattr(dirichlet_confusion._Rows, "_newton", lambda self: 2.5 * newton(self))
    prior_jl, reached = hyper_jl, objective(hyper_jl, counts_klj, hyper_jl)
    for _ in range(6):
        prior_jl = dirichlet_confusion.fitted(prior_jl, counts_klj, hyper_jl)
        before, reached = reached, objective(prior_jl, counts_klj, hyper_jl)
        assert reached >= before - 1e-9 * abs(before)


@pytest.mark.parametrize("rows", [1, 300, 7000])
def test_sums_of_psi_are_scipys(rows: int) -> None:
    rng = np.random.default_rng(0)
    counts_kc, a_c = rng.gamma(0.3, 50, size=(rows, 9)), rng.gamma(1.0, 3.0, size=9) + 1e-3
    rise_c, slope_c = psi_sums(counts_kc, a_c)
    np.testing.assert_allclose(rise_c, (digamma(counts_kc + a_c) - digamma(a_c)).sum(axis=0), rtol=1e-11)
    np.testing.assert_allclose(slope_c, (polygamma(1, counts_kc + a_c) - polygamma(1, a_c)).sum(axis=0), rtol=1e-10)
