"""Models beside the hierarchy: what one tells counts, what it says of every item does not; against plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from hitl import score
from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.models.hierarchy.counted import SHARES, Counted, Reading
from hitl.models.inference.engine import Table
from hitl.models.inference.observed_outputs import MODEL_INFORMATIVENESS, Outputs
from hitl.models.inference.unsupervised_pool import (
    BEFOREHAND,
    GRID,
    Part,
    less_what_is_always_said,
    probability_informative,
)
from tests import oracles
from tests.dependent_labels import compared

Floats = oracles.Floats


def labeled(truth: NDArray[np.int32], classes: int, labels: float, seed: int, right: float = 0.75) -> Annotations:
    """Forty people who err evenly, each with an accuracy of their own; a part of a label is had by chance."""
    rng = np.random.default_rng(seed)
    right_k = np.clip(rng.normal(right, 0.1, size=40), 1 / classes, 0.98)
    most_n = int(labels) + (rng.random(truth.size) < labels % 1)
    item = np.repeat(np.arange(truth.size), most_n)
    who = np.concatenate([rng.choice(40, m, replace=False) for m in most_n])
    wrong = (truth[item] + rng.integers(1, classes, size=item.size)) % classes
    said = np.where(rng.random(item.size) < right_k[who], truth[item], wrong)
    return Annotations.from_frame(
        {"item": item, "annotator": who, "label": said}, items=range(truth.size), classes=range(classes)
    )


def calibrated(truth: NDArray[np.int32], share_j: Floats, worth: float, rng: np.random.Generator) -> Floats:
    """p(class | Gaussian scores of this worth), which is calibrated."""
    scores = worth * np.eye(share_j.size)[truth] + np.sqrt(worth) * rng.normal(size=(truth.size, share_j.size))
    p_nj: Floats = softmax(scores + np.log(share_j), axis=1)
    return p_nj


def some(seed: int = 0, known: float = 0.2) -> Evidence:
    evidence, _ = oracles.crowd(
        np.random.default_rng(seed), 40, 5, 3, models=2, asked=0.35, unlabeled=4, abstaining=0.3, known=known
    )
    return evidence


# -- how much models tell, and what it counts ---------------------------------------------------------------


def plain_informativeness(evidence: Evidence, outputs: Outputs) -> tuple[float, Floats]:
    """1 - mean entropy / entropy of the mean, and (J,) the mean, by loops over the items that are predicted."""
    assert outputs.pool is not None
    rows = [row for row, one in zip(np.exp(outputs.pool.log_prior()), evidence.predicted, strict=True) if one]
    mean = sum(rows) / len(rows)
    entropies = [-sum(p * np.log(p) for p in row) for row in rows]
    return 1 - np.mean(entropies) / -sum(p * np.log(p) for p in mean), mean


@pytest.mark.parametrize("seed", range(3))
def test_what_models_tell_is_their_information_about_a_class(seed: int) -> None:
    evidence = some(seed)
    outputs = Outputs.of(evidence)
    told, share_j = plain_informativeness(evidence, outputs)
    assert 0 < told < 1
    assert outputs.informativeness == pytest.approx(told)
    np.testing.assert_allclose(outputs.share_j, share_j)


def test_a_model_that_says_the_same_of_all_tells_nothing_and_one_that_is_certain_everything() -> None:
    evidence = some(known=0.0)
    truth = np.arange(40) % 3
    says = Annotations.from_matrix(truth[:, None], classes=[0, 1, 2])
    for p_nj, told in ((np.tile([0.6, 0.3, 0.1], (40, 1)), 0.0), (np.eye(3)[truth] * 0.9997 + 0.0001, 1.0)):
        assert Outputs.of(Evidence(says, {"m": p_nj})).informativeness == pytest.approx(told, abs=0.05)
    assert Outputs.of(replace(evidence, probabilities={})).informativeness == 0


@pytest.mark.parametrize("seed", range(3))
def test_labels_count_as_far_as_they_are_not_spent_on_the_class(seed: int) -> None:
    evidence = some(seed)
    outputs = Outputs.of(evidence)
    counted, a, k = Counted.of(Table(evidence), Reading(0.3), outputs), evidence.annotations, outputs.informativeness
    spent, labels, expected_n, votes = 0.0, 0, np.zeros(a.n_items), np.zeros(3)
    for n in range(a.n_items):
        m, told = int((a.item == n).sum()), k if evidence.predicted[n] else 0.0
        if m >= 2:
            spent, labels = spent + 1 - told, labels + m
    for n in range(a.n_items):
        m, told = int((a.item == n).sum()), k if evidence.predicted[n] else 0.0
        expected_n[n] = 1.0 if evidence.known[n] else max(told, (1 - spent / labels) * compared(evidence, n))
        said = np.bincount(a.label[a.item == n], minlength=3)[:3].astype(float)
        if evidence.known[n]:
            said = np.eye(3)[evidence.truth[n]]
        votes += (1 - expected_n[n]) * said / max(said.sum(), 1)
    np.testing.assert_allclose(counted.weighed(evidence).weight_n, expected_n)
    here_n = (a.labels_per_item > 0) | evidence.known
    beside = SHARES * here_n.sum() / expected_n[here_n].sum()
    expected_j = votes + beside * ((1 - k) / 3 + k * outputs.share_j) + 1 / 3
    np.testing.assert_allclose(counted.shares().smoothing, expected_j)


def test_what_is_always_said_is_taken_out_of_each_model() -> None:
    rng = np.random.default_rng(3)
    feature_mnj, predicts_nm = np.log(rng.dirichlet(np.ones(3), size=(2, 20))), rng.random((20, 2)) < 0.7
    feature_mnj[~predicts_nm.T] = 0.0
    evidence = Evidence(Annotations.from_matrix(np.zeros((20, 1), int), classes=[0, 1, 2]))
    found = less_what_is_always_said(Part(evidence, feature_mnj, predicts_nm)).feature_mnj
    for m in range(2):
        rows = [n for n in range(20) if predicts_nm[n, m]]
        for j in range(3):
            mean = np.mean([np.exp(feature_mnj[m, n, j]) for n in rows])
            for n in range(20):
                expected = feature_mnj[m, n, j] - np.log(mean) if n in rows else 0.0
                assert found[m, n, j] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(4))
def test_how_probably_a_model_knows_anything_is_bayes_rule(seed: int) -> None:
    """The sum over all classes of all items, for each weight, by plain loops."""
    rng = np.random.default_rng(seed)
    feature_mnj, message_nj = rng.normal(size=(2, 12, 3)), rng.normal(size=(12, 3))
    truth = np.where(np.arange(12) < 3, rng.integers(3, size=12), -1).astype(np.int32)
    evidence = Evidence(Annotations.from_matrix(np.zeros((12, 1), int), classes=[0, 1, 2]), truth=truth)
    weight_m, mean, precision = np.array([0.4, 0.7]), 0.5, 15.0
    found = probability_informative(
        Part(evidence, feature_mnj, np.ones((12, 2), bool)), message_nj, weight_m, mean, precision
    )
    for m in range(2):

        def likelihood(u: float, m: int = m) -> float:
            product = 1.0
            for n in range(12):
                p = softmax(u * feature_mnj[m, n] + weight_m[1 - m] * feature_mnj[1 - m, n]) * np.exp(message_nj[n])
                product *= p[truth[n]] if truth[n] >= 0 else p.sum()
            return product

        prior = [np.exp(-precision / 2 * (u - mean) ** 2) for u in GRID]
        bayes = sum(p * likelihood(u) for p, u in zip(prior, GRID, strict=True)) / sum(prior) / likelihood(0.0)
        expected = BEFOREHAND * bayes / (BEFOREHAND * bayes + 1 - BEFOREHAND)
        assert found[m] == pytest.approx(expected)


# -- beliefs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_beliefs_are_those_of_shares_labels_and_what_the_pool_says_beside_its_own_shares(seed: int) -> None:
    evidence = some(seed)
    raw = found = DefaultCombiner().fit(evidence)
    outputs, a = Outputs.of(evidence, raw), evidence.annotations
    pool_nj = oracles.pool(evidence, raw.temperatures, np.ones(3) / 3, correlation=raw.parameters["model correlation"])
    pi_kjl = raw.annotators.concentration / raw.annotators.concentration.sum(axis=2, keepdims=True)
    effect, told = found.design_effect, float(raw.parameters[MODEL_INFORMATIVENESS])
    residual = 1 + told * (float(raw.parameters["residual temperature"]) - 1)
    for n in range(a.n_items):
        log_q = np.log(raw.class_shares)
        if evidence.predicted[n]:
            log_q = log_q + pool_nj[n] - np.log(outputs.share_j)
        labels = np.flatnonzero(a.item == n)
        for m in labels:
            log_q = log_q + np.log(pi_kjl[a.annotator[m], :, a.label[m]])
        judges = len(labels)  # an echo, or the models in its place, is one more than the others of each
        log_q = log_q / ((residual if evidence.predicted[n] else 1.0) + effect.rho * judges)
        expected = softmax(log_q + (effect.shift if len(labels) else 0.0))
        if evidence.known[n]:
            expected = np.eye(3)[evidence.truth[n]]
        np.testing.assert_allclose(found.probabilities[n], expected, atol=1e-9)


@pytest.mark.parametrize("known", [0, 60])
@pytest.mark.parametrize("labels", [1.2, 5])
@pytest.mark.parametrize("classes", [2, 8])
def test_a_model_that_says_the_same_of_all_changes_nothing(classes: int, labels: float, known: int) -> None:
    rng = np.random.default_rng([classes, known])
    truth = rng.integers(classes, size=300).astype(np.int32)
    annotations = labeled(truth, classes, labels, classes)
    told = np.where(np.arange(300) < known, truth, -1).astype(np.int32)
    alone = DefaultCombiner().fit(Evidence(annotations, truth=told))
    always = np.tile(rng.dirichlet(np.ones(classes)), (300, 1))
    beside = DefaultCombiner().fit(Evidence(annotations, {"always": always}, truth=told))
    np.testing.assert_allclose(beside.class_shares, alone.class_shares, atol=1e-6)
    np.testing.assert_allclose(beside.annotators.concentration, alone.annotators.concentration, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(beside.probabilities, alone.probabilities, atol=1e-5)


@pytest.mark.parametrize("labels", [1.2, 5])
@pytest.mark.parametrize("classes", [2, 8])
def test_a_model_that_knows_nothing_costs_next_to_nothing_and_one_that_does_helps(classes: int, labels: float) -> None:
    """Its outputs belong to other items: as sure as one that knows, and never right but by chance.

    With two classes and two labels it decides ties that people who differ, or the shares, decide better (to 3 points).
    """
    lost: dict[str, list[tuple[float, float]]] = {"nothing": [], "something": []}
    for seed in range(3):
        rng = np.random.default_rng([seed, classes])
        share_j = rng.dirichlet(np.full(classes, 4.0))
        truth = rng.choice(classes, size=600, p=share_j).astype(np.int32)
        annotations = labeled(truth, classes, labels, seed)
        alone = DefaultCombiner().fit(Evidence(annotations)).probabilities
        knows = calibrated(truth, share_j, 2.0, rng)
        for name, p_nj in (("something", knows), ("nothing", knows[rng.permutation(600)])):
            beside = DefaultCombiner().fit(Evidence(annotations, {"m": p_nj})).probabilities
            lost[name].append(
                (
                    score.accuracy(alone, truth) - score.accuracy(beside, truth),
                    score.log_loss(beside, truth) - score.log_loss(alone, truth),
                )
            )
    accuracy, loss = np.mean(lost["nothing"], axis=0)
    assert accuracy < (0.035 if classes == 2 else 0.01)
    assert loss < (0.03 if classes == 2 else 0.02)
    accuracy, loss = np.mean(lost["something"], axis=0)
    assert accuracy < 0.002
    assert loss < -0.01
