"""LR: a second minimiser of the same objective, P+L as a special case, classes that the truths lack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from hitl import score
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models import LR, PL
from tests import oracles

SHAPES: dict[str, dict[str, Any]] = {
    "one model": {"models": 1},
    "two models, abstaining here and there": {"models": 2, "abstaining": 0.4},
    "a pool, options beyond the classes": {"models": 1, "pool": 30, "n_options": 5},
    "items without labels": {"models": 1, "unlabeled": 10, "abstaining": 0.3},
    "two classes": {"models": 2, "n_classes": 2},
}


def objective(evidence: Evidence, own: list[int], strength: float, pseudo: float) -> Callable[..., Any]:
    """The objective of the docstring as a function of all weights, and the logits of all items, in plain numpy."""
    a = evidence.annotations
    n, j, options = a.n_items, a.n_classes, a.n_options
    blocks = []
    voices: list[tuple[int, oracles.Floats]] = []
    strong = np.where(np.eye(j) > 0, np.log(0.75), np.log(0.25 / (j - 1)))
    for p in evidence.probabilities.values():
        x = np.zeros((n, j))
        for row in range(n):
            if not np.isnan(p[row]).any():
                x[row] = np.log(p[row]) - np.log(p[row]).mean()
        voices.append((sum(block.shape[1] for block in blocks), strong - strong.mean(axis=1, keepdims=True)))
        blocks.append(x)
    voices.append((sum(block.shape[1] for block in blocks), np.eye(j)))
    for who in [None, *own]:
        said = np.zeros((n, options))
        for item, person, label in zip(a.item, a.annotator, a.label, strict=True):
            if who is None or who == person:
                said[item, label] += 1
        blocks.append(said)
    x = np.hstack(blocks)
    artificial = np.zeros((len(voices) * j, x.shape[1]))
    for v, (start, block) in enumerate(voices):
        artificial[v * j : (v + 1) * j, start : start + j] = block
    known = evidence.known
    rows = np.vstack((x[known], artificial))
    truth = np.concatenate((evidence.truth[known], np.tile(np.arange(j), len(voices))))
    item_weight = np.concatenate((np.ones(known.sum()), np.full(len(artificial), pseudo)))

    def logits(flat: oracles.Floats, features: oracles.Floats) -> oracles.Floats:
        weights = flat.reshape(j, -1)
        return features @ weights[:, 1:].T + weights[:, 0]

    def loss(flat: oracles.Floats) -> float:
        z = logits(flat, rows)
        fit = item_weight @ (logsumexp(z, axis=1) - z[np.arange(len(truth)), truth])
        return float(fit + (flat.reshape(j, -1)[:, 1:] ** 2).sum() / (2 * strength))

    return lambda: (loss, lambda flat: logits(flat, x), j * (1 + x.shape[1]))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("own", [None, 12], ids=["one block", "own weights"])
def test_a_second_minimiser_finds_the_same(shape: dict[str, Any], own: int | None) -> None:
    shape = {"n_classes": 3} | shape
    evidence, _ = oracles.crowd(np.random.default_rng(1), 60, 3, **shape, known=0.5)
    method = LR(strength=0.7, pseudo_items=0.3, own_weights=own, tolerance=1e-9)
    found = method.fit(evidence)
    a = evidence.annotations
    labels = np.bincount(a.annotator[evidence.known[a.item]], minlength=a.n_annotators)
    people = [] if own is None else [int(k) for k in np.flatnonzero(labels >= own)]
    loss, logits, size = objective(evidence, people, 0.7, 0.3)()
    best = minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-5})
    z = logits(best.x)
    spoken = np.any([~np.isnan(p[:, 0]) for p in evidence.probabilities.values()], axis=0) | (a.labels_per_item > 0)
    rows = spoken & ~evidence.known
    expected = np.exp(z - logsumexp(z, axis=1, keepdims=True))
    np.testing.assert_allclose(found.probabilities[rows], expected[rows], atol=2e-4)
    assert own is None or people
    abstaining = ~spoken & ~evidence.known
    np.testing.assert_allclose(found.probabilities[abstaining], np.tile(found.class_shares, (abstaining.sum(), 1)))
    flat = np.column_stack(
        (found.parameters["intercept"], *[v for k, v in found.parameters.items() if k != "intercept"])
    )
    assert loss(flat.ravel()) <= best.fun + 1e-6


def test_pl_is_a_special_case() -> None:
    """Eq. 16: with I / T and the log confusion matrix as weights LR says what P+L says."""
    evidence, _ = oracles.crowd(np.random.default_rng(2), 40, 0, 3, models=1, known=0.5, pool=60, n_options=4)
    other = PL().fit(evidence)
    parameters = {
        "intercept": np.zeros(3),
        "weights of model m0": np.eye(3) / other.temperatures["m0"],
        "weights of answers": np.log(other.annotators.confusion[0]),
    }
    found = LR().apply(replace(other, parameters=parameters), evidence)
    np.testing.assert_allclose(found.probabilities, other.probabilities, atol=1e-10)


def test_classes_that_the_truths_lack_stay_possible() -> None:
    rng = np.random.default_rng(3)
    evidence, truth = oracles.crowd(rng, 300, 3, 6, models=1, asked=1.0, accuracy=(0.8, 0.9))
    for seen in ([0], [2, 4]):
        told = np.where(np.isin(truth, seen) & (np.arange(300) < 60), truth, -1)
        p = LR().fit(replace(evidence, truth=told)).probabilities
        assert (p[told < 0] > 0).all()
        absent = ~np.isin(truth, seen)
        assert score.accuracy(p[absent], truth[absent]) > 0.8
        if len(seen) > 1:
            plain = LR(pseudo_items=1e-6).fit(replace(evidence, truth=told)).probabilities
            assert score.accuracy(plain[absent], truth[absent]) < 0.3


def test_what_was_learned_is_matched_by_name() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(4), 90, 3, 3, models=2, known=0.6, n_options=5, asked=0.9)
    method = LR(own_weights=20)
    learned = method.fit(evidence)
    assert {name for name in learned.parameters if name.startswith("weights of annotator")} == {
        f"weights of annotator {k}" for k in range(3)
    }
    a = evidence.annotations
    renumbered = Annotations.from_frame(
        {
            "item": [a.items[n] for n in a.item[::-1]],
            "annotator": [a.annotators[k] for k in a.annotator[::-1]],
            "label": [a.options[label] for label in a.label[::-1]],
        },
        items=a.items,
        classes=a.classes,
        options=[*a.classes, "new", "unsure1", "unsure0"],
    )
    renumbered = oracles.reordered(Evidence(renumbered), annotators=np.array([2, 0, 1])).annotations
    models = {"unmet": evidence.probabilities["m0"], "m1": evidence.probabilities["m1"]}
    judged = method.apply(Consensus.from_bytes(learned.to_bytes()), Evidence(renumbered, models))
    silenced = {"m0": np.full((90, 3), np.nan), "m1": evidence.probabilities["m1"]}
    expected = method.apply(learned, Evidence(a, silenced))
    np.testing.assert_allclose(judged.probabilities, expected.probabilities, atol=1e-12)
