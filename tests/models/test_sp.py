"""SP: eq. 3 with one accuracy an annotator by hand, the mode by dense search, and what was learned on other items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.evidence import Evidence
from hitl.models import PL, SP
from tests import oracles

SHAPES: dict[str, dict[str, Any]] = {
    "one model": {"models": 1},
    "two models, abstaining here and there": {"models": 2, "abstaining": 0.4},
    "a pool, options beyond the classes": {"models": 1, "pool": 30, "n_options": 5},
    "items without labels": {"models": 1, "unlabeled": 10},
}


def right_and_wrong(evidence: Evidence) -> np.ndarray:
    """(K, 2) numbers of right and of wrong answers on known items; answers that are no class are neither."""
    a = evidence.annotations
    found = np.zeros((a.n_annotators, 2))
    for n, k, label in zip(a.item, a.annotator, a.label, strict=True):
        if evidence.truth[n] >= 0 and label < a.n_classes:
            found[k, int(label != evidence.truth[n])] += 1
    return found


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_judgement_is_eq_3_with_one_accuracy_each(shape: dict[str, Any]) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(1), 80, 4, 3, **shape, known=0.5)
    found = SP(accuracy=0.8, strength=5.0).fit(evidence)
    right, wrong = right_and_wrong(evidence).T
    accuracy = (right + 4.0) / (right + wrong + 5.0)
    joint = oracles.pool(evidence, dict(found.temperatures), found.class_shares)
    a = evidence.annotations
    for n, k, label in zip(a.item, a.annotator, a.label, strict=True):
        if label < 3:
            joint[n] += np.log(np.where(np.arange(3) == label, accuracy[k], (1 - accuracy[k]) / 2))
    expected = np.exp(joint) / np.exp(joint).sum(axis=1, keepdims=True)
    unknown = ~evidence.known
    np.testing.assert_allclose(found.probabilities[unknown], expected[unknown], atol=1e-10)
    if a.n_options == 3:
        matrix = np.where(np.eye(3) > 0, accuracy[:, None, None], (1 - accuracy[:, None, None]) / 2)
        np.testing.assert_allclose(found.annotators.confusion, matrix)


def test_the_accuracy_is_where_the_posterior_is_highest() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(2), 40, 3, 4, models=1, known=0.7)
    accuracy = np.linspace(0.001, 0.999, 9_981)[:, None]
    right, wrong = right_and_wrong(evidence).T
    # The log likelihood of the answers, and the density of Beta(2.7 + 1, 0.9 + 1).
    log_posterior = right * np.log(accuracy) + wrong * np.log((1 - accuracy) / 3)
    log_posterior += 2.7 * np.log(accuracy) + 0.9 * np.log(1 - accuracy)
    best = accuracy[log_posterior.argmax(axis=0), 0]
    np.testing.assert_allclose(SP().fit(evidence).annotators.confusion[:, 0, 0], best, atol=2e-4)


def test_the_prior_weighs_as_much_as_a_row_of_pl_and_temperatures_are_those_of_pl() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(3), 60, 3, 10, models=2, known=0.7)
    assert PL(accuracy=0.75, off=0.1).pseudo_counts(evidence.annotations)[0].sum() == pytest.approx(SP().strength)
    assert SP().fit(evidence).temperatures == pytest.approx(PL().fit(evidence).temperatures)
