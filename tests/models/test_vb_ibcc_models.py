"""VB-IBCC beside models: the posteriors are fixed points, the bound never falls, and both parts help."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma, softmax

from hitl import score
from hitl.evidence import Evidence
from hitl.models import PLEM, VBIBCC, VBIBCCWithModels
from hitl.models.priors.calibrated import learned_prior
from tests import oracles
from tests.pools_of_models import simulated


@pytest.mark.parametrize("known", [0.0, 0.3])
def test_beliefs_are_a_fixed_point_of_eq_7_with_the_pool_as_prior(known: float) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(1), 60, 5, 3, models=2, abstaining=0.2, known=known)
    found = VBIBCCWithModels(tolerance=1e-12).fit(evidence)
    alpha_kjl = found.annotators.prior + oracles.counts(evidence.annotations, found.probabilities)
    np.testing.assert_allclose(found.annotators.concentration, alpha_kjl, atol=1e-4)
    log_pi_kjl = digamma(alpha_kjl) - digamma(alpha_kjl.sum(axis=2, keepdims=True))
    logits = learned_prior(found, evidence).log_prior() + oracles.messages(evidence.annotations, log_pi_kjl)
    expected = softmax(logits, axis=1)
    expected[evidence.known] = np.eye(3)[evidence.truth[evidence.known]]
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-4)
    assert (np.diff(found.fit.objective) > -1e-8).all()


def test_it_is_better_than_annotators_or_models_alone() -> None:
    evidence, truth = simulated(3, 1000, 2, right=0.8)
    (model,) = evidence.probabilities.values()
    together = VBIBCCWithModels().fit(evidence)
    apart = VBIBCC().fit(Evidence(evidence.annotations)).probabilities, model
    error = [score.log_loss(p, truth) for p in (together.probabilities, *apart, PLEM().fit(evidence).probabilities)]
    assert error[0] < 0.8 * min(error[1:3])
    assert error[0] < 1.1 * error[3]
