"""VBIBCC.paper() against eqs. 7 to 23 of Simpson et al. 2011, label by label, from the prior's expectations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import digamma

from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.models import VBIBCC
from tests import oracles
from tests.oracles import Floats

CROWDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gaps and known truths": {"asked": 0.4, "known": 0.2},
    "items without labels": {"unlabeled": 8},
    "options beyond the classes": {"n_options": 4},
}
everywhere = pytest.mark.parametrize("shape", CROWDS.values(), ids=CROWDS)


def printed(evidence: Evidence, iterations: int) -> tuple[Floats, Floats, Floats]:
    """q(t) (N, J), nu (J,) and alpha (K, J, L) after so many iterations; items that say nothing are not in the data."""
    a, classes = evidence.annotations, evidence.annotations.n_classes
    alpha_0 = [[2.0 if option == j else 1.0 for option in range(a.n_options)] for j in range(classes)]
    nu = np.ones(classes)
    alpha = np.array([alpha_0] * a.n_annotators)
    q = np.empty((a.n_items, classes))
    for iteration in range(iterations + 1):
        for n in range(a.n_items):
            log_rho = digamma(nu) - digamma(nu.sum())  # eq. 18
            for k, label in zip(a.annotator[a.item == n], a.label[a.item == n], strict=True):
                log_rho = log_rho + digamma(alpha[k, :, label]) - digamma(alpha[k].sum(axis=1))  # eq. 23
            q[n] = np.exp(log_rho) / np.exp(log_rho).sum()  # eq. 7
            if evidence.truth[n] >= 0:
                q[n] = np.eye(classes)[evidence.truth[n]]
        if iteration == iterations:
            break
        nu = 1.0 + q[(a.labels_per_item > 0) | evidence.known].sum(axis=0)  # eqs. 8, 17
        alpha = np.array([alpha_0] * a.n_annotators)
        for n, k, label in zip(a.item, a.annotator, a.label, strict=True):
            alpha[k, :, label] += q[n]  # eqs. 9, 22
    return q, nu, alpha


@everywhere
@pytest.mark.parametrize("iterations", [1, 2])
def test_each_iteration_is_the_printed_one(shape: dict[str, Any], iterations: int) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(1), 40, 6, 3, **({"asked": 0.8} | shape))
    found = replace(VBIBCC.paper(), max_iterations=iterations).fit(evidence)
    q, nu, alpha = printed(evidence, iterations)
    np.testing.assert_allclose(found.probabilities, q, atol=1e-11)
    np.testing.assert_allclose(found.class_shares, nu / nu.sum(), atol=1e-11)
    np.testing.assert_allclose(found.annotators.concentration, alpha, atol=1e-11)


@everywhere
def test_it_ends_where_the_printed_iterations_end(shape: dict[str, Any]) -> None:
    """Momentum is on the way; the fixed point is the same."""
    evidence, _ = oracles.crowd(np.random.default_rng(2), 40, 6, 3, **({"asked": 0.8} | shape))
    found = replace(VBIBCC.paper(), tolerance=1e-14, max_iterations=5000).fit(evidence)
    q, _, alpha = printed(evidence, 600)
    assert np.abs(q - printed(evidence, 599)[0]).max() < 1e-9
    np.testing.assert_allclose(found.probabilities, q, atol=1e-5)
    np.testing.assert_allclose(found.annotators.concentration, alpha, atol=1e-4)
    assert np.abs(VBIBCC().fit(evidence).probabilities - q).max() > 0.01  # the test can tell


def test_from_the_prior_is_not_from_the_votes() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(3), 40, 6, 3)
    prior, votes = (VBIBCC(shared=False, begin=begin, max_iterations=1).fit(evidence) for begin in ("prior", "votes"))
    assert np.abs(prior.probabilities - votes.probabilities).max() > 1e-4
    with pytest.raises(BadSettings, match=r"setting begin is 'above'; expected one of votes, prior"):
        VBIBCC(begin="above")
