"""Items that mislead all their annotators: against enumeration, and the truth that made the labels."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp

from hitl import Annotations, Evidence
from hitl.annotations import Floats, Ints
from hitl.models import NetworkDawidSkene, NetworkIBCC
from hitl.models.numerics.potts import Graph
from hitl.models.priors.apparent_classes import ApparentClasses
from hitl.models.priors.graph_field import SWEEPS_ALONE, GraphField

J, N = 3, 4
LINKS = sparse.csr_array(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]))
SHARES, SEEM, CLEAR = np.array([0.2, 0.3, 0.5]), np.array([0.3, 0.5, 0.2]), 0.7
METHODS = (NetworkDawidSkene(), NetworkIBCC())


def prior() -> ApparentClasses[GraphField]:
    field = GraphField(
        Graph.of(LINKS), np.array([0.8, 0.3, 1.2]), SHARES, approximation="belief-propagation", sweeps=SWEEPS_ALONE
    )
    return ApparentClasses(field, SEEM, CLEAR, learned=True)


def enumerated(message_nj: Floats, known: dict[int, int]) -> tuple[Floats, Floats, float, float]:
    """Beliefs about truths and about what items seem to be, expected clear items, and log evidence, by plain loops."""
    strength_j, edges = prior().prior.strength_j, sparse.coo_array(sparse.triu(LINKS, 1))
    truth_nj, seen_nj, clear, logs = np.zeros((N, J)), np.zeros((N, J)), 0.0, []
    terms = []
    for z in product(range(J), repeat=N):
        if any(z[n] != j for n, j in known.items()):
            continue
        log_p = sum(np.log(SHARES[c]) for c in z)
        log_p += sum(strength_j[z[n]] for n, m in zip(edges.row, edges.col, strict=True) if z[n] == z[m])
        for y in product(range(J), repeat=N):
            if any(y[n] != j for n, j in known.items()):
                continue
            seem = [1.0 if n in known else CLEAR * (y[n] == z[n]) + (1 - CLEAR) * SEEM[y[n]] for n in range(N)]
            log_p_y = log_p + sum(np.log(seem)) + sum(message_nj[n, y[n]] for n in range(N))
            own = sum(CLEAR * (y[n] == z[n]) / seem[n] for n in range(N) if n not in known)
            terms.append((log_p_y, z, y, own))
            logs.append(log_p_y)
    whole = float(logsumexp(logs))
    for log_p_y, z, y, own in terms:
        p = np.exp(log_p_y - whole)
        truth_nj[np.arange(N), z] += p
        seen_nj[np.arange(N), y] += p
        clear += p * own
    return truth_nj, seen_nj, clear, whole


@pytest.mark.parametrize("known", [{}, {1: 2}])
def test_beliefs_about_truths_and_looks_are_those_of_enumeration(known: dict[int, int]) -> None:
    message_nj = np.random.default_rng(0).normal(scale=1.5, size=(N, J))
    truth_nj, seen_nj, clear, _ = enumerated(message_nj, known)
    for n, j in known.items():
        message_nj[n, np.arange(J) != j] = -np.inf
    found = prior().posterior(message_nj.copy(), np.ones(N, bool))
    np.testing.assert_allclose(found.q_nj, seen_nj, atol=1e-7)
    np.testing.assert_allclose(prior().truths(message_nj.copy()), truth_nj, atol=1e-7)
    assert found.statistics.clear == pytest.approx(clear, abs=1e-6)
    assert found.statistics.items == N - len(known)


def crowd(seed: int, clear: float, classes: int = 4, items: int = 1500) -> tuple[Evidence, Ints]:
    """Ten annotators, right about what an item seems to be in .45 to .8; its neighbours are mostly of its class."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=items).astype(np.int32)
    ends = rng.integers(items, size=3 * items)
    alike = rng.random(3 * items) < 0.7
    other = rng.integers(items, size=3 * items)
    for j in range(classes):
        chosen = alike & (truth[ends] == j)
        other[chosen] = rng.choice(np.flatnonzero(truth == j), chosen.sum())
    kept = ends != other
    half = sparse.csr_array((np.ones(kept.sum()), (ends[kept], other[kept])), shape=(items, items))
    seems = np.where(rng.random(items) < clear, truth, rng.integers(classes, size=items))
    right = rng.random((items, 10)) < rng.uniform(0.45, 0.8, size=10)
    said = np.where(right, seems[:, None], rng.integers(classes, size=(items, 10)))
    graph = half.maximum(half.T)
    graph.data[:] = 1.0
    return Evidence(Annotations.from_matrix(said, classes=list(range(classes))), graph=graph), truth


def log_loss(found: Any, truth: Ints) -> float:
    return float(-np.log(np.maximum(found.probabilities[np.arange(len(truth)), truth], 1e-9)).mean())


@pytest.mark.parametrize("method", METHODS, ids=lambda one: type(one).__name__)
def test_how_often_items_mislead_is_learned_from_their_neighbours(method: Any) -> None:
    for seed, clear in ((2, 0.7), (3, 0.85)):
        evidence, truth = crowd(seed, clear)
        found, trusting = method.fit(evidence), replace(method, clear=1.0).fit(evidence)
        assert float(found.parameters["clear"]) == pytest.approx(clear, abs=0.04)
        assert (found.codes == truth).mean() > (trusting.codes == truth).mean() + 0.04
        assert log_loss(found, truth) < 0.5 * log_loss(trusting, truth)


@pytest.mark.parametrize("method", METHODS, ids=lambda one: type(one).__name__)
def test_the_report_says_how_often_answers_are_right(method: Any) -> None:
    evidence, truth = crowd(5, 0.7)
    found = method.fit(evidence)
    annotations = evidence.annotations
    right = np.bincount(annotations.annotator, annotations.label == truth[annotations.item]) / len(truth)
    np.testing.assert_allclose(found.annotators.accuracy, right, atol=0.05)
    np.testing.assert_allclose(found.annotators.confusion.sum(axis=2), 1, atol=1e-9)


def test_items_without_labels_tell_nothing_of_how_often_others_mislead() -> None:
    """They repeat what they heard: of a crowd whose items are mostly without labels all are taken for clear."""
    evidence, _ = crowd(8, 0.7)
    labels = evidence.annotations
    thin = replace(evidence, annotations=labels.select(labels.item % 5 == 0))
    assert float(NetworkDawidSkene().fit(evidence).parameters["clear"]) < 0.8
    assert float(NetworkDawidSkene().fit(thin).parameters["clear"]) == 1
