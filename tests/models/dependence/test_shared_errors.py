"""Confidence where people and models err together, against plain loops and where it is known how far they do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from hitl import score
from hitl.active.policy import ExpectedGain
from hitl.annotations import Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.crew import Budget, Crew
from hitl.design_effect import DesignEffect
from hitl.evidence import Evidence
from hitl.models import PLEM, DefaultCombiner
from hitl.models.dependence.design_effect import (
    BESIDE_MODELS,
    SHIFT,
    SPREAD,
    UNTRACED_RHO,
    Independent,
    KnownItems,
    beliefs_for_gain,
    of_crowd,
)
from hitl.models.dependence.replicas import Dependence
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.priors.calibrated import RESIDUAL
from tests import oracles
from tests.pools_of_models import simulated
from tests.reference_data import anonymous, cifar10h_labels, cifar10h_probabilities, cifar10h_truth


def some() -> tuple[Evidence, np.ndarray]:
    evidence, truth = oracles.crowd(
        np.random.default_rng(0), 30, 4, 3, models=2, abstaining=0.5, asked=0.5, unlabeled=3
    )
    return evidence, truth


def parts(evidence: Evidence, log_q0_nj: Floats) -> Independent:
    """A posterior under independence that somebody else has worked out."""
    return Independent(evidence.annotations, log_q0_nj, evidence.predicted)


def judged_by(evidence: Evidence, q_nj: Floats, pi_kjl: Floats, effect: DesignEffect) -> Consensus:
    a, even = evidence.annotations, np.full(3, 1 / 3)
    report = AnnotatorReport(a.annotators, a.classes, a.options, pi_kjl, pi_kjl, a.labels_per_annotator, even)
    residual = {RESIDUAL: np.array(effect.residual)}
    return Consensus(a.items, a.classes, q_nj, report, even, parameters=residual, design_effect=effect)


def test_rho_and_shift_beside_models_are_the_best_that_a_search_of_its_own_finds() -> None:
    evidence, truth = some()
    told = np.where(np.arange(30) % 3 > 0, truth, -1)
    evidence = replace(evidence, truth=told)
    outputs = Outputs.of(evidence)
    rng = np.random.default_rng(2)
    log_q_nj, labels_n = 3 * rng.normal(size=(20, 3)) + 2 * np.eye(3)[truth[:20]], rng.integers(1, 5, size=20)
    known = KnownItems(log_q_nj, truth[:20], labels_n, rng.random(20) < 0.6)
    found = of_crowd(Dependence(0.9, 0.06), outputs, known, 3)
    begun = of_crowd(Dependence(0.9, 0.06), outputs, None, 3)
    assert begun.rho == pytest.approx(
        outputs.informativeness * BESIDE_MODELS + (1 - outputs.informativeness) * 0.9 * (UNTRACED_RHO + 0.06)
    )
    assert (begun.echo, begun.residual) == (1, outputs.residual)
    most = outputs.informativeness * BESIDE_MODELS + (1 - outputs.informativeness) * (UNTRACED_RHO + 0.06)
    spread, sd = np.hypot(SPREAD, np.log(begun.rho / most)), SHIFT * (1 - outputs.informativeness)

    def cost(theta: Floats) -> float:
        effect = replace(begun, rho=begun.rho * np.exp(spread * theta[0]), shift=sd * theta[1:])
        q_nj = effect.temper(known.log_q_nj, known.labels_n, known.predicted_n)
        return float(theta @ theta / 2 - np.log(q_nj[np.arange(20), known.truth_n]).sum())

    best = minimize(cost, np.zeros(4), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4000}).x
    assert found.rho == pytest.approx(begun.rho * np.exp(spread * best[0]), rel=1e-3)
    np.testing.assert_allclose(found.shift, sd * best[1:], atol=1e-3)


def hard_for_all(seed: int, items: int) -> tuple[Evidence, np.ndarray]:
    """Of every five items one looks like another class, to three people and the model alike."""
    evidence, truth = simulated(seed, items, 3, right=0.9)
    shown = truth.copy()
    hard = np.arange(items) % 5 == 0
    shown[hard] = (truth[hard] + 1) % 5
    return evidence, shown


def test_truth_tells_dependence_from_independence() -> None:
    """What all see alike and is not so: there the same evidence says much less."""
    strengths, errors = [], []
    for make in (lambda: simulated(3, 2000, 3, right=0.9), lambda: hard_for_all(3, 2000)):
        evidence, truth = make()
        told = np.where(np.arange(2000) < 300, truth, -1)
        found = DefaultCombiner().fit(replace(evidence, truth=told))
        strengths.append(found.design_effect.rho)
        raw = PLEM().fit(replace(evidence, truth=told))
        rest = slice(300, None)
        errors.append([score.log_loss(c.probabilities[rest], truth[rest]) for c in (found, raw)])
    assert strengths[0] < BESIDE_MODELS < strengths[1]
    assert errors[1][0] < 0.8 * errors[1][1]
    assert errors[0][0] < errors[0][1] + 0.005


def test_each_alone_is_the_pool_to_a_root_and_people_in_full() -> None:
    """Where no model speaks the shares of the classes are as they were."""
    evidence, _ = some()
    rng = np.random.default_rng(8)
    pi_kjl = rng.dirichlet(np.ones(evidence.annotations.n_options), size=(evidence.annotations.n_annotators, 3))
    spoken = np.any([~np.isnan(p[:, 0]) for p in evidence.probabilities.values()], axis=0)
    models_nj = np.where(spoken[:, None], rng.dirichlet(np.ones(3), size=30), np.array([0.5, 0.3, 0.2]))
    residual_n1 = np.where(spoken, 1.4, 1.0)[:, None]
    people_nj = oracles.messages(evidence.annotations, np.log(pi_kjl))
    effect = DesignEffect(0.3, residual=1.4)
    known = parts(evidence, np.log(models_nj) + people_nj)
    consensus = judged_by(evidence, known.tempered(effect), pi_kjl, effect)
    found = beliefs_for_gain(evidence, consensus)
    np.testing.assert_allclose(found, softmax(np.log(models_nj) / residual_n1 + people_nj, axis=1), atol=1e-12)
    assert spoken.any()
    assert not spoken.all()


def test_the_gain_of_an_answer_is_that_of_independent_voices() -> None:
    """Else items that many have answered would be asked about again and again."""
    evidence, _ = simulated(7, 60, 2)
    corrected = DefaultCombiner(0.8).fit(evidence)
    raw = corrected.judging(corrected.items, beliefs_for_gain(evidence, corrected))
    budget = Budget(open_questions=20, target_confidence=1.0)
    asked = [ExpectedGain().plan([(evidence, c)], Crew(()), budget).asks for c in (corrected, raw)]
    assert [ask.item for ask in asked[0]] == [ask.item for ask in asked[1]]
    np.testing.assert_allclose([ask.gain for ask in asked[0]], [ask.gain for ask in asked[1]], atol=1e-4)


def test_on_cifar10h_confidence_means_more() -> None:
    truth, classes = cifar10h_truth()
    human = np.array([labels[0] for labels in cifar10h_labels(0)], dtype=np.int32)
    evidence = Evidence(anonymous(human, classes), {"resnet-110": cifar10h_probabilities("resnet-110")})
    loss, error = zip(
        *[
            (score.log_loss(p, truth), score.calibration_error(p, truth))
            for p in (method.fit(evidence).probabilities for method in (DefaultCombiner(), PLEM()))
        ],
        strict=True,
    )
    assert loss[0] < 0.85 * loss[1]
    assert error[0] < 0.65 * error[1]
