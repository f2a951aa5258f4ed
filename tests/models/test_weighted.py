"""Weighted majority and weighted sum: weights by hand, losses and rounds against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.majority import WeightedMajority, WeightedSum, contradicted, losses, outvoted, shrunk
from tests import oracles

LOSSES = {"majority": outvoted, "sum": contradicted}
METHODS = {"majority": WeightedMajority, "sum": WeightedSum}
both = pytest.mark.parametrize("which", LOSSES)

SHAPES = {
    "plain": {},
    "known": {"known": 0.5},
    "unsure": {"n_options": 5},
    "pool": {"pool": 12},
    "sparse": {"asked": 0.3, "unlabeled": 2},
}


def plain_rates(evidence: Evidence, weight_k: np.ndarray, which: str, shrinkage: float) -> np.ndarray:
    """Label by label: what the others on the item say, or the truth."""
    a = evidence.annotations
    lost, counted = np.zeros(a.n_annotators), np.zeros(a.n_annotators)
    rows = list(zip(a.item, a.annotator, a.label, strict=True))
    for me, (n, k, said) in enumerate(rows):
        if said >= a.n_classes:
            continue
        if evidence.truth[n] >= 0:
            loss = float(said != evidence.truth[n])
        else:
            vote = dict.fromkeys(range(a.n_classes), 0.0)
            for other, (item, annotator, label) in enumerate(rows):
                if other != me and item == n and label < a.n_classes:
                    vote[int(label)] += weight_k[annotator]
            if not any(vote.values()):
                continue
            if which == "sum":
                loss = 1 - vote[int(said)] / sum(vote.values())
            else:
                tied = [j for j, v in vote.items() if v > max(vote.values()) - 1e-9]
                loss = 1 - (said in tied) / len(tied)
        lost[k] += loss
        counted[k] += 1
    overall = lost.sum() / max(1, counted.sum())
    return (lost + shrinkage * overall) / (counted + shrinkage)


@both
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_losses_agree_with_plain_loops(which: str, shape: dict[str, float]) -> None:
    rng = np.random.default_rng(1)
    evidence, _ = oracles.crowd(rng, 25, 5, 3, **shape)
    for weight_k in (
        np.ones(evidence.annotations.n_annotators),
        rng.uniform(0.1, 2, evidence.annotations.n_annotators),
    ):
        found = shrunk(*losses(evidence, weight_k, LOSSES[which], "others"), 2.5)
        np.testing.assert_allclose(found, plain_rates(evidence, weight_k, which, 2.5), atol=1e-12)


@both
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_weights_and_votes_in_turn_agree_with_plain_loops(which: str, shape: dict[str, float]) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(3), 25, 5, 3, **shape)
    a = evidence.annotations
    consensus = METHODS[which](beta=0.3, horizon=4.0, shrinkage=2.0, smoothing=0.6, rounds=4).fit(evidence)
    weight_k = np.ones(a.n_annotators)
    for _ in range(4):
        weight_k = 0.3 ** (4.0 * plain_rates(evidence, weight_k, which, 2.0))
        weight_k /= sum(weight_k[k] for k in a.annotator) / len(a)
    expected = np.full((a.n_items, 3), 0.2)
    for n, k, said in zip(a.item, a.annotator, a.label, strict=True):
        if said < 3:
            expected[n, said] += weight_k[k]
    expected /= expected.sum(axis=1, keepdims=True)
    for n in np.flatnonzero(evidence.known):
        expected[n] = np.eye(3)[evidence.truth[n]]
    np.testing.assert_allclose(consensus.probabilities, expected, atol=1e-10)


def test_with_all_truth_known_weights_are_those_of_the_algorithm() -> None:
    matrix = np.zeros((10, 4), dtype=int)
    for k, mistakes in enumerate((0, 1, 3, 7)):
        matrix[:mistakes, k] = 1
    evidence = Evidence(Annotations.from_matrix(matrix), truth=np.zeros(10, int))
    for loss in LOSSES.values():
        rate_k = shrunk(*losses(evidence, np.ones(4), loss, "others"), 1e-12)
        np.testing.assert_allclose(0.5 ** (10 * rate_k), [1, 0.5, 0.125, 1 / 128], rtol=1e-9)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_papers_settings_are_the_algorithm_trial_by_trial(shape: dict[str, float]) -> None:
    """Littlestone & Warmuth: each mistake halves a weight; then the share of the weight, on items of unknown truth."""
    evidence, _ = oracles.crowd(np.random.default_rng(7), 40, 5, 3, **({"known": 0.5} | shape))
    a = evidence.annotations
    weight = [1.0] * a.n_annotators
    for n in np.flatnonzero(evidence.known):
        for k, said in zip(a.annotator[a.item == n], a.label[a.item == n], strict=True):
            if said < 3 and said != evidence.truth[n]:
                weight[k] *= 0.5
    expected = np.zeros((a.n_items, 3))
    for n, k, said in zip(a.item, a.annotator, a.label, strict=True):
        if said < 3:
            expected[n, said] += weight[k]
    expected[expected.sum(axis=1) == 0] = 1.0
    expected /= expected.sum(axis=1, keepdims=True)
    expected[evidence.known] = np.eye(3)[evidence.truth[evidence.known]]
    np.testing.assert_allclose(WeightedMajority.paper().fit(evidence).probabilities, expected, atol=1e-12)
    assert np.abs(WeightedMajority().fit(evidence).probabilities - expected).max() > 0.05  # the test can tell


def test_thousands_of_mistakes_leave_everyone_a_weight() -> None:
    rng = np.random.default_rng(9)
    said = np.where(rng.random((9000, 3)) < [0.3, 0.4, 0.5], 0, 1)
    said[-1] = (0, 1, 2)
    truth = np.append(np.zeros(8999, int), -1)
    annotations = Annotations.from_matrix(said, classes=(0, 1, 2))
    p = WeightedMajority.paper().fit(Evidence(annotations, truth=truth)).probabilities
    assert np.isfinite(p).all()
    assert p[-1].argmax() == 2
