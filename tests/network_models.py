"""Crowds and checks that DBCC and EDBCC share."""

from __future__ import annotations

from typing import Any

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.sampling import network_layout
from tests import network_oracles, oracles
from tests.network_oracles import all_pairs
from tests.oracles import Floats

FOUR: dict[str, dict[str, Any]] = {
    "plain": {},
    "two known truths": {"known": 0.5},
    "everything known": {"known": 1.0},
    "options beyond the classes": {"n_options": 3},
    "an anonymous pool": {"pool": 4},
    "items without labels": {"unlabeled": 1, "known": 0.3},
}


def some_crowd(seed: int, n_items: int = 6, n_annotators: int = 3, **shape: Any) -> Evidence:
    shape = {"n_classes": 2, "asked": 0.7} | shape
    return oracles.crowd(np.random.default_rng(seed), n_items, n_annotators, **shape)[0]


def check_posterior(evidence: Evidence, combiner: Any, hard: float, sd: tuple[float, float, float]) -> None:
    a, rng = evidence.annotations, np.random.default_rng(10)
    groups, shared_kk = network_layout.groups(evidence, combiner.exact_states, combiner.group_states)
    codes = [group.tolist() for group in groups]
    pairs = [[(x, y) for x, y in all_pairs(len(group)) if shared_kk[group[x], group[y]]] for group in codes]
    mean = np.eye(a.n_classes, a.n_options) * np.log(0.7 * (a.n_options - 1) / 0.3)
    easy = np.eye(a.n_classes, a.n_options) * np.log(0.9 * (a.n_options - 1) / 0.1)
    drawn = network_oracles.draw_prior(rng, 150_000, codes, pairs, a.n_options, mean, easy, sd, 0.8)
    exact = network_oracles.weighed_prior(rng, evidence, codes, drawn, hard)
    assert exact.effective > 3000
    found = combiner.fit(evidence)
    assert found.fit.converged
    people = found.annotators
    np.testing.assert_allclose(found.probabilities, exact.q_nj, atol=0.02)
    np.testing.assert_allclose(found.class_shares, exact.share_j, atol=0.02)
    np.testing.assert_allclose(people.confusion, exact.mean_kjl, atol=0.025)
    variance = people.confusion * (1 - people.confusion) / (people.concentration.sum(axis=2, keepdims=True) + 1)
    expected = (exact.square_kjl - exact.mean_kjl**2).sum(axis=2)
    np.testing.assert_allclose(variance.sum(axis=2), expected, atol=0.012)
    assert people.dependence is not None
    np.testing.assert_allclose(people.dependence, exact.correlation_kk, atol=0.05)
    if hard < 1:
        np.testing.assert_allclose(found.difficulty, exact.hard_n, atol=0.02)


def copied(seed: int, n_classes: int, known: int = 0, n_items: int = 600) -> tuple[Evidence, np.ndarray]:
    """Three annotators copy one answer that is right 6 times in 10 (97 copies in 100 exact), three others are right
    8 times in 10, each by themselves.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_items)

    def answers(accuracy: float, people: int) -> np.ndarray:
        wrong = (truth[:, None] + rng.integers(1, n_classes, size=(n_items, people))) % n_classes
        return np.where(rng.random((n_items, people)) < accuracy, truth[:, None], wrong)

    source = answers(0.6, 1)
    slips = rng.random((n_items, 3)) < 0.03
    copies = np.where(slips, rng.integers(n_classes, size=(n_items, 3)), source)
    annotations = Annotations.from_matrix(np.column_stack((copies, answers(0.8, 3))), range(n_classes))
    return Evidence(annotations, truth=np.where(np.arange(n_items) < known, truth, -1)), truth


def accuracies(combiner: Any, n_classes: int, known: int, seeds: int = 5) -> Floats:
    """Share of the other items that are right, for each seed."""
    found = []
    for seed in range(seeds):
        evidence, truth = copied(seed, n_classes, known)
        right = combiner.fit(evidence).codes == truth
        found.append(right[~evidence.known].mean())
    return np.array(found)


def assert_clearly_better(found: Floats, other: Floats) -> None:
    gain = found - other
    assert gain.min() > 0.1, (found, other)
    assert gain.mean() > 0.15
    assert gain.mean() > 6 * gain.std(ddof=1) / np.sqrt(len(gain))
