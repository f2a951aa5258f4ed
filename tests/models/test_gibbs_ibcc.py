"""GibbsIBCC: the fit is the exact posterior, by enumeration and quadrature; chains that have not mixed say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.gibbs_ibcc import GibbsIBCC
from hitl.models.sampling import sampler
from tests import bcc_oracles, oracles

FIVE: dict[str, dict[str, Any]] = {
    "plain": {},
    "two known truths": {"known": 0.4},
    "everything known": {"known": 1.0},
    "options beyond the classes": {"n_classes": 2, "n_options": 3},
    "an anonymous pool": {"pool": 6},
    "items without labels": {"unlabeled": 2, "known": 0.3},
}


@pytest.mark.parametrize("shape", FIVE.values(), ids=FIVE)
def test_the_fit_is_the_exact_posterior_of_five_items(shape: dict[str, Any]) -> None:
    """All truths enumerated, pi and p integrated out, alpha by quadrature."""
    rng = np.random.default_rng(7)
    evidence, _ = oracles.crowd(rng, 5, **({"n_annotators": 3, "n_classes": 2} | shape))
    a = evidence.annotations
    combiner = GibbsIBCC(diagonal=3.0, off=0.7, share_smoothing=0.8, burn_in=100, draws=12_000)
    mean_jl = np.where(np.eye(a.n_classes, a.n_options) == 1, 3.0, 0.7)
    exact = bcc_oracles.enumerate_posterior(evidence, mean_jl, 0.8)
    found = combiner.fit(evidence)
    assert found.fit.converged
    np.testing.assert_allclose(found.probabilities, exact.q_nj, atol=0.01)
    np.testing.assert_allclose(found.class_shares, exact.share_j, atol=0.01)
    np.testing.assert_allclose(found.annotators.confusion, exact.mean_kjl, atol=0.01)
    variance = (exact.square_kjl - exact.mean_kjl**2).sum(axis=2)
    np.testing.assert_allclose(bcc_oracles.matched_variance(found.annotators.concentration), variance, rtol=0.05)
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
    weight = sampler.accuracy_weights(a)
    np.testing.assert_allclose(weight[0], labels / labels.sum())
    people = sampler.busiest(a)
    assert len(people) == sampler.MONITORED < 30
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
