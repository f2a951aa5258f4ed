"""Confidence where people and models err together, against plain loops and where it is known how far they do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from hitl import score
from hitl.active.policy import ExpectedGain
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models import PLEM, DefaultCombiner
from hitl.models.dependence import shared_errors
from tests import oracles
from tests.models.inference.test_unsupervised_pool import simulated
from tests.reference_data import anonymous, cifar10h_labels, cifar10h_probabilities, cifar10h_truth


def some() -> tuple[Evidence, np.ndarray]:
    evidence, truth = oracles.crowd(np.random.default_rng(0), 30, 4, 3, models=2, silent=0.5, asked=0.5, unlabeled=3)
    return evidence, truth


def test_temperatures_count_the_voices() -> None:
    evidence, _ = some()
    found = shared_errors.temperatures(evidence, 0.3, 1.2)
    for n in range(30):
        labels = int(np.sum(evidence.annotations.item == n))
        spoken = any(not np.isnan(p[n]).any() for p in evidence.probabilities.values())
        assert found[n] == pytest.approx(1.2 + 0.3 * labels if spoken else 1 + 0.3 * max(labels - 1, 0))
    assert set(np.round(found, 9)) > {1.0, 1.2, 1.5}


def test_tempering_takes_a_root_and_leaves_the_label() -> None:
    evidence, _ = some()
    q_nj = np.random.default_rng(1).dirichlet(np.ones(3), size=30)
    found = shared_errors.tempered(evidence, np.log(q_nj) + 5, 0.7, 1.2)
    rooted = q_nj ** (1 / shared_errors.temperatures(evidence, 0.7, 1.2))[:, None]
    np.testing.assert_allclose(found, rooted / rooted.sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(found.argmax(axis=1), q_nj.argmax(axis=1))


def test_the_strength_is_the_best_of_a_dense_search() -> None:
    evidence, truth = some()
    told = np.where(np.arange(30) % 3 > 0, truth, -1)
    evidence = replace(evidence, truth=told)
    log_q_nj = 3 * np.random.default_rng(2).normal(size=(30, 3)) + 3 * np.eye(3)[truth]
    known = np.flatnonzero(told >= 0)

    def value(rho: float) -> float:
        p = shared_errors.tempered(evidence, log_q_nj, rho, 1.1)[known, told[known]]
        return float(np.log(p).sum() - (np.log(rho / 0.4) / 0.7) ** 2 / 2)

    grid = np.exp(np.linspace(np.log(0.011), np.log(2.9), 4000))
    best = grid[np.argmax([value(rho) for rho in grid])]
    assert shared_errors.learned(evidence, log_q_nj, 1.1) == pytest.approx(best, rel=0.01)


def test_without_truth_it_is_the_expected_one() -> None:
    evidence, _ = some()
    assert shared_errors.learned(evidence, np.zeros((30, 3)), 1.0) == shared_errors.EXPECTED


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
        strengths.append(found.correction.strength)
        raw = PLEM().fit(replace(evidence, truth=told))
        rest = slice(300, None)
        errors.append([score.log_loss(c.probabilities[rest], truth[rest]) for c in (found, raw)])
    assert strengths[0] < shared_errors.EXPECTED < strengths[1]
    assert errors[1][0] < 0.8 * errors[1][1]
    assert errors[0][0] < errors[0][1] + 0.005


def test_it_is_applied_to_other_items_too() -> None:
    evidence, _ = simulated(4, 200, 2)
    other, _ = simulated(5, 50, 1)
    learned = DefaultCombiner().fit(evidence)
    raw = PLEM().apply(learned, other).probabilities
    caution = shared_errors.caution_of(learned)
    assert caution >= 1
    rooted = raw ** (1 / (caution + learned.correction.strength))
    expected = rooted / rooted.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(DefaultCombiner().apply(learned, other).probabilities, expected, atol=1e-12)


def test_what_was_tempered_can_be_taken_back() -> None:
    evidence, _ = some()
    q_nj = np.random.default_rng(6).dirichlet(np.ones(3), size=30)
    tempered = shared_errors.tempered(evidence, np.log(q_nj), 0.4, 1.3)
    np.testing.assert_allclose(shared_errors.independent(evidence, tempered, 0.4, 1.3), q_nj, atol=1e-12)


def test_each_alone_is_the_pool_to_a_root_and_people_in_full() -> None:
    """Where no model speaks the shares of the classes are as they were."""
    evidence, _ = some()
    rng = np.random.default_rng(8)
    pi_kjl = rng.dirichlet(np.ones(evidence.annotations.n_options), size=(evidence.annotations.n_annotators, 3))
    spoken = np.any([~np.isnan(p[:, 0]) for p in evidence.probabilities.values()], axis=0)
    models_nj = np.where(spoken[:, None], rng.dirichlet(np.ones(3), size=30), np.array([0.5, 0.3, 0.2]))
    caution_n1 = np.where(spoken, 1.4, 1.0)[:, None]
    people_nj = oracles.messages(evidence.annotations, np.log(pi_kjl))
    together_nj = softmax(np.log(models_nj) + people_nj, axis=1)
    found = shared_errors.each_alone(evidence, together_nj, np.log(pi_kjl).transpose(0, 2, 1), 1.4)
    np.testing.assert_allclose(found, softmax(np.log(models_nj) / caution_n1 + people_nj, axis=1), atol=1e-12)
    assert spoken.any()
    assert not spoken.all()


def test_the_gain_of_an_answer_is_that_of_independent_voices() -> None:
    """Else items that many have answered would be asked about again and again."""
    evidence, _ = simulated(7, 60, 2)
    corrected, raw = DefaultCombiner(0.8).fit(evidence), PLEM(accuracy=0.8).fit(evidence)
    budget = Budget(labels=20, target_confidence=1.0)
    asked = [ExpectedGain().plan([(evidence, c)], Crew(()), budget).asks for c in (corrected, raw)]
    assert [ask.item for ask in asked[0]] == [ask.item for ask in asked[1]]
    np.testing.assert_allclose([ask.gain for ask in asked[0]], [ask.gain for ask in asked[1]], atol=1e-9)


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


def test_models_alone_are_not_too_sure() -> None:
    """Which images could skip people: as the three networks together are weighed against people, too many."""
    truth, classes = cifar10h_truth()
    human = np.array([labels[0] for labels in cifar10h_labels(1)], dtype=np.int32)
    networks = {name: cifar10h_probabilities(name) for name in ("resnet-110", "resnet-low-acc", "preresnet-110")}
    learned = DefaultCombiner().fit(Evidence(anonymous(human, classes), networks))
    bare = Evidence(anonymous(human, classes).select(np.zeros(10_000, bool)), networks)
    corrected, raw = (method.apply(learned, bare).probabilities for method in (DefaultCombiner(), PLEM()))
    assert score.calibration_error(corrected, truth) < 0.4 * score.calibration_error(raw, truth)
