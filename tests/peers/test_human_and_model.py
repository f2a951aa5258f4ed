"""CROWDLAB and ActiveLab beside hitl: what they are asked, and that all are asked the same."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.annotations import Floats
from hitl.testing import crowd
from tests.bench.human_and_model import relabelled
from tests.bench.human_and_model.crowdlab import active_lab, crowdlab, posterior
from tests.bench.human_and_model.crowds import classified
from tests.peers.test_field import renamed


def model(truth: np.ndarray, n_classes: int, rng: np.random.Generator) -> Floats:
    """(N, J) probabilities of a classifier that is right in about two of three cases."""
    logits = rng.normal(size=(len(truth), n_classes)) + 1.5 * np.eye(n_classes)[truth]
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_the_posterior_is_the_weighted_mean_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    label_nk = np.where(rng.random((6, 4)) < 0.6, rng.integers(0, 3, (6, 4)), np.nan)
    p_nj, weight_k, model_weight, agreement = rng.dirichlet(np.ones(3), 6), rng.random(4), 0.7, 0.85
    found = posterior(label_nk, p_nj, weight_k, model_weight, agreement)
    for n in range(6):
        for j in range(3):
            above, below = model_weight * p_nj[n, j], model_weight
            for k in range(4):
                if not np.isnan(label_nk[n, k]):
                    above += weight_k[k] * (agreement if label_nk[n, k] == j else (1 - agreement) / 2)
                    below += weight_k[k]
            assert found[n, j] == pytest.approx(above / below)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_crowdlab_finds_the_same_whatever_the_order_of_items_and_classes() -> None:
    pytest.importorskip("cleanlab", reason="cleanlab is in the bench extra")
    rng = np.random.default_rng(1)
    evidence, truth = crowd(rng, n_items=60, n_annotators=5, n_classes=3, asked=0.9, accuracy=(0.7, 0.95))
    a = evidence.annotations
    annotations = a.select((a.item > 20) | np.isin(np.arange(len(a)), a.item_start[:-1]))  # some items have one label
    p_nj = model(truth, 3, rng)
    items, classes = rng.permutation(60), rng.permutation(3)
    moved = renamed(annotations, items, classes)
    label_n, q_nj = crowdlab(annotations, p_nj)
    moved_n, moved_nj = crowdlab(moved, p_nj[np.ix_(items, classes)])
    np.testing.assert_array_equal(classes[moved_n], label_n[items])
    np.testing.assert_allclose(moved_nj, q_nj[np.ix_(items, classes)])
    assert np.mean(label_n == truth) > 0.8
    scores = active_lab(annotations, p_nj)
    moved_scores = active_lab(moved, p_nj[np.ix_(items, classes)])  # cleanlab's temperature depends on the order
    assert np.corrcoef(moved_scores, scores[items])[0, 1] > 0.98


def test_no_item_is_predicted_by_a_classifier_that_saw_its_label() -> None:
    rng = np.random.default_rng(0)
    label_n = rng.integers(0, 2, 40).astype(np.int32)
    words = np.array([f"word{n}" for n in range(40)], dtype=object)  # by a word of its own an item can be remembered
    p_nj = classified(words, label_n, 3, seed=0)
    of_0, of_1 = (set(p_nj[label_n == label, 0].round(6)) for label in (0, 1))
    assert of_0 == of_1  # all that is left is the share of the classes in the other folds
    assert (p_nj[:, 2] == 0).all()
    told = classified(np.repeat([["cat"], ["dog"]], 20).astype(object), np.repeat([0, 2], 20), 3, seed=0)
    assert (told.argmax(axis=1) == np.repeat([0, 2], 20)).all()


@pytest.mark.parametrize("strategy", relabelled.STRATEGIES)
def test_every_strategy_begins_alike_and_spends_the_same(strategy: str) -> None:
    if strategy == relabelled.ACTIVE_LAB:
        pytest.importorskip("cleanlab", reason="cleanlab is in the bench extra")
    rng = np.random.default_rng(2)
    evidence, truth = crowd(rng, n_items=50, n_annotators=5, n_classes=3, asked=1.0)
    p_nj = model(truth, 3, rng)
    answers = relabelled.first_labels(evidence.annotations, seed=3)
    first = answers.revealed()
    again = relabelled.first_labels(evidence.annotations, seed=3).revealed()
    assert (first.labels_per_item.min(), first.labels_per_item.max(), len(first)) == (1, 2, 60)
    np.testing.assert_array_equal(first.annotator, again.annotator)
    for _ in range(5):
        asks = relabelled.choose(strategy, answers, p_nj, 10, 3, rng)
        assert len({item for item, _ in asks}) == 10
        assert answers.reveal(asks) == 10
    assert answers.revealed().labels_per_item.max() <= 3
