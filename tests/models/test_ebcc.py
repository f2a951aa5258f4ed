"""EBCC: the fit is the exact posterior, by enumeration and quadrature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hitl.models.gibbs_ibcc import EBCC, GibbsIBCC
from tests import bcc_oracles, oracles

FOUR: dict[str, dict[str, Any]] = {
    "plain": {},
    "two known truths": {"known": 0.5},
    "everything known": {"known": 1.0},
    "options beyond the classes": {"n_options": 3},
    "an anonymous pool": {"pool": 5},
    "items without labels": {"unlabeled": 1, "known": 0.3},
}


def easy_matrix(epsilon: float, n_classes: int, n_options: int) -> oracles.Floats:
    easy = np.full((n_classes, n_options), epsilon / (n_options - 1))
    easy[np.arange(n_classes), np.arange(n_classes)] = 1 - epsilon
    return easy


@pytest.mark.parametrize("shape", FOUR.values(), ids=FOUR)
def test_the_fit_is_the_exact_posterior_of_four_items(shape: dict[str, Any]) -> None:
    """All truths and difficulties enumerated, pi and p integrated out, alpha by quadrature."""
    rng = np.random.default_rng(2)
    evidence, _ = oracles.crowd(rng, 4, **({"n_annotators": 3, "n_classes": 2} | shape))
    a = evidence.annotations
    combiner = EBCC(epsilon=0.2, hard=0.4, diagonal=3.0, off=0.7, share_smoothing=0.8, burn_in=100, draws=12_000)
    mean_jl = np.where(np.eye(a.n_classes, a.n_options) == 1, 3.0, 0.7)
    easy_jl = easy_matrix(0.2, a.n_classes, a.n_options)
    exact = bcc_oracles.enumerate_posterior(evidence, mean_jl, 0.8, 0.4, easy_jl)
    found = combiner.fit(evidence)
    assert found.fit.converged
    np.testing.assert_allclose(found.probabilities, exact.q_nj, atol=0.01)
    np.testing.assert_allclose(found.difficulty, exact.hard_n, atol=0.01)
    np.testing.assert_allclose(found.class_shares, exact.share_j, atol=0.01)
    np.testing.assert_allclose(found.annotators.confusion, exact.mean_kjl, atol=0.01)
    variance = (exact.square_kjl - exact.mean_kjl**2).sum(axis=2)
    np.testing.assert_allclose(bcc_oracles.matched_variance(found.annotators.concentration), variance, rtol=0.05)


@pytest.mark.parametrize("shape", [{}, {"known": 0.5}], ids=["nothing known", "two known truths"])
def test_the_papers_settings_are_its_model(shape: dict[str, Any]) -> None:
    """Kim & Ghahramani 2012: lambda = 8 and 1, nu = 1, beta = (0.5, 0.5), epsilon = 0.01; eq. 19 as it is meant."""
    evidence, _ = oracles.crowd(np.random.default_rng(11), 4, 3, 2, **shape)
    lambda_jl, easy_jl = np.array([[8.0, 1.0], [1.0, 8.0]]), np.array([[0.99, 0.01], [0.01, 0.99]])
    exact = bcc_oracles.enumerate_posterior(evidence, lambda_jl, 1.0, 0.5 / (0.5 + 0.5), easy_jl)
    found = replace(EBCC.paper(), draws=12_000).fit(evidence)
    np.testing.assert_allclose(found.probabilities, exact.q_nj, atol=0.01)
    np.testing.assert_allclose(found.difficulty, exact.hard_n, atol=0.01)
    usual = bcc_oracles.enumerate_posterior(evidence, lambda_jl, 1.0, 0.8, easy_jl)
    assert np.abs(usual.hard_n - exact.hard_n).max() > 0.1  # the test can tell


# -- difficulty ------------------------------------------------------------------------------------------------


def test_where_nearly_all_items_are_hard_it_is_ibcc() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(7), 60, 5, 3, known=0.2)
    hard, plain = EBCC(hard=1 - 1e-9, draws=4000).fit(evidence), GibbsIBCC(draws=4000).fit(evidence)
    np.testing.assert_allclose(hard.probabilities, plain.probabilities, atol=0.04)
    assert hard.difficulty is not None
    assert hard.difficulty.min() > 0.999
