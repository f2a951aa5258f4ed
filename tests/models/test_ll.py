"""L+L: naive Bayes in plain loops, modes that no neighbour beats, and what was learned on other items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import LL
from hitl.models.ll import model_confusion, model_labels
from tests import oracles

SHAPES: dict[str, dict[str, Any]] = {
    "one model": {"models": 1},
    "two models, abstaining here and there": {"models": 2, "abstaining": 0.4},
    "a pool, options beyond the classes": {"models": 2, "pool": 30, "n_options": 5},
    "items without labels": {"models": 1, "unlabeled": 10, "abstaining": 0.3},
    "two classes": {"models": 2, "n_classes": 2},
}


def plainly(evidence: Evidence, accuracy: float = 0.75, off: float = 0.1, smoothing: float = 1.0) -> oracles.Floats:
    """(N, J) naive Bayes with every label of a person or a model one more factor; known truths one-hot."""
    a = evidence.annotations
    n_classes = a.n_classes
    known = [(n, int(t)) for n, t in enumerate(evidence.truth) if t >= 0]
    share = np.array([smoothing + sum(t == j for _, t in known) for j in range(n_classes)])
    said: dict[Any, list[tuple[int, int]]] = {("person", k): [] for k in range(a.n_annotators)}
    for n, k, label in zip(a.item, a.annotator, a.label, strict=True):
        said["person", k].append((n, label))
    for name, p in evidence.probabilities.items():
        said["model", name] = [(n, int(np.argmax(row))) for n, row in enumerate(p) if not np.isnan(row).any()]
    weight = np.tile(share / share.sum(), (a.n_items, 1))
    truth = dict(known)
    for (kind, _), labels in said.items():
        size = a.n_options if kind == "person" else n_classes
        table = np.full((n_classes, size), off)
        table[range(n_classes), range(n_classes)] = off * (size - 1) * accuracy / (1 - accuracy)
        for n, label in labels:
            if n in truth:
                table[truth[n], label] += 1
        for n, label in labels:
            weight[n] *= table[:, label] / table.sum(axis=1)
    weight /= weight.sum(axis=1, keepdims=True)
    for n, t in known:
        weight[n] = np.eye(n_classes)[t]
    return weight


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_is_naive_bayes_with_the_models_as_annotators(shape: dict[str, Any]) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(1), 60, 4, **({"n_classes": 3} | shape), known=0.5)
    np.testing.assert_allclose(LL().fit(evidence).probabilities, plainly(evidence), atol=1e-12)
    other = LL(accuracy=0.6, off=0.5, share_smoothing=3.0)
    np.testing.assert_allclose(other.fit(evidence).probabilities, plainly(evidence, 0.6, 0.5, 3.0), atol=1e-12)


def test_strangers_have_the_priors_mode() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(3), 60, 2, 3, models=1, known=0.9)
    learned = LL().fit(evidence)
    annotations = Annotations.from_frame(
        {"item": ["a"], "annotator": ["stranger"], "label": ["j1"]}, items=["a", "b"], classes=["j0", "j1", "j2"]
    )
    p = np.array([[0.4, 0.3, 0.3], [np.nan] * 3])
    judged = LL().apply(learned, Evidence(annotations, {"unmet": p}))
    stranger = np.array([0.125, 0.75, 0.125]) * np.array([0.75, 0.125, 0.125])
    expected = learned.class_shares * stranger
    np.testing.assert_allclose(judged.probabilities[0], expected / expected.sum(), atol=1e-12)
    np.testing.assert_allclose(judged.probabilities[1], learned.class_shares, atol=1e-12)


def test_a_silence_and_a_tie_say_nothing() -> None:
    p = np.array([[0.2, 0.5, 0.3], [np.nan] * 3, [0.4, 0.4, 0.2], [1 / 3] * 3, [0.0, 0.0, 1.0]])
    assert model_labels(p).tolist() == [1, -1, -1, -1, 2]
    pseudo = np.full((3, 3), 0.5)
    found = model_confusion(p, np.eye(3)[[0, 1, 2, 0, 2]], pseudo)
    np.testing.assert_allclose(
        found, np.array([[0.5, 1.5, 0.5], [0.5, 0.5, 0.5], [0.5, 0.5, 1.5]]) / [[2.5], [1.5], [2.5]]
    )
