"""MACE: posterior and bound against enumeration of truths and spam, its own crowds, and public figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from hitl import score
from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import MACE, MajorityVote
from hitl.models.inference import em
from hitl.models.mace import Spamming
from hitl.models.priors.shares import Fixed
from tests import oracles
from tests.models.published.test_ptbcc import divergence, everywhere, expected_logs
from tests.oracles import Floats
from tests.reference_data import crowd, without_truth


def enumerated(evidence: Evidence, log_theta_k2: Floats, log_xi_kj: Floats) -> tuple[Floats, float]:
    """(N, J) posterior and the log evidence, from every truth of an item with every choice of spam among its labels."""
    a, q_nj, total = evidence.annotations, [], 0.0
    n_classes = a.n_classes
    for n in range(a.n_items):
        labels = np.flatnonzero((a.item == n) & (a.label < n_classes))
        log_j = np.full(n_classes, -np.inf)
        for j in range(n_classes) if evidence.truth[n] < 0 else [int(evidence.truth[n])]:
            each = []
            for spams in product((False, True), repeat=len(labels)):
                term = -np.log(n_classes)
                for m, spam in zip(labels, spams, strict=True):
                    k, said = a.annotator[m], a.label[m]
                    term += log_theta_k2[k, int(spam)]
                    term += log_xi_kj[k, said] if spam else (0.0 if said == j else -np.inf)
                each.append(term)
            log_j[j] = logsumexp(each)
        total += logsumexp(log_j)
        q_nj.append(np.exp(log_j - logsumexp(log_j)))
    return np.array(q_nj), float(total)


def run(evidence: Evidence, tolerance: float, iterations: int) -> em.EMResult[Fixed, Spamming]:
    n_classes = evidence.annotations.n_classes
    even = Fixed(np.full((1, n_classes), -np.log(n_classes)))
    people = Spamming.unlearned(evidence.annotations, 0.7, 2.0)
    votes_nj = MajorityVote().fit(evidence).probabilities
    return em.run_em(evidence, even, people, votes_nj, tolerance=tolerance, max_iterations=iterations)


def bound(evidence: Evidence, theta_k2: Floats, xi_kj: Floats) -> float:
    """Items without labels add log 1."""
    gained = enumerated(evidence, expected_logs(theta_k2), expected_logs(xi_kj))[1]
    gained -= divergence(theta_k2, np.full_like(theta_k2, 0.7))
    return gained - divergence(xi_kj, np.full_like(xi_kj, 2.0))


@everywhere
def test_beliefs_and_bound_are_those_of_enumeration(shape: dict[str, Any]) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(1), 6, **({"n_annotators": 3} | shape))
    found = run(evidence, 0.0, 3)
    people = found.annotators
    q_nj, _ = enumerated(evidence, expected_logs(people.theta_k2), expected_logs(people.xi_kj))
    np.testing.assert_allclose(found.q_nj, q_nj, atol=1e-10)
    assert found.objective[-1] == pytest.approx(bound(evidence, people.theta_k2, people.xi_kj), abs=1e-9)


@everywhere
def test_no_nearby_posteriors_have_a_better_bound(shape: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    evidence, _ = oracles.crowd(rng, 7, **({"n_annotators": 3} | shape))
    found = run(evidence, 1e-15, 5000)
    theta_k2, xi_kj = found.annotators.theta_k2, found.annotators.xi_kj
    best = bound(evidence, theta_k2, xi_kj)
    assert np.diff(found.objective).min() > -1e-9
    for _ in range(40):
        size = 10.0 ** -rng.uniform(0.5, 3)
        moved = [each * np.exp(size * rng.normal(size=each.shape)) for each in (theta_k2, xi_kj)]
        assert bound(evidence, *moved) <= best + 1e-8
        assert bound(evidence, moved[0], xi_kj) <= best + 1e-8
        assert bound(evidence, theta_k2, moved[1]) <= best + 1e-8


def drawn(seed: int) -> tuple[Evidence, Any, Floats]:
    """A crowd of the model, a third of it spammers who mostly say one thing: evidence, truth and theta (K,)."""
    rng = np.random.default_rng(seed)
    theta = np.where(np.arange(30) < 10, 0.05, rng.uniform(0.6, 0.95, 30))
    xi_kj = rng.dirichlet(np.full(4, 0.3), size=30)
    truth = rng.integers(4, size=500)
    said_nk = np.full((500, 30), -1)
    for n, t in enumerate(truth):
        for k in rng.choice(30, 5, replace=False):
            said_nk[n, k] = t if rng.random() < theta[k] else rng.choice(4, p=xi_kj[k])
    return Evidence(Annotations.from_matrix(said_nk, classes=tuple("abcd"))), truth, theta


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_the_spammers_of_its_own_crowds(seed: int) -> None:
    evidence, truth, theta = drawn(seed)
    found = MACE().fit(evidence)
    vote = score.accuracy(MajorityVote().fit(evidence).probabilities, truth)
    assert score.accuracy(found.probabilities, truth) > vote + 0.02
    np.testing.assert_allclose(found.parameters["theta"], theta, atol=0.25)
    assert np.corrcoef(found.parameters["theta"], theta)[0, 1] > 0.97
    assert set(found.annotators.accuracy.argsort()[:10]) == set(range(10))


def test_an_unsure_answer_is_not_spam_and_carries_no_information() -> None:
    evidence, _, _ = drawn(0)
    a = evidence.annotations
    unsure = np.random.default_rng(1).random(len(a)) < 0.2
    hedged = replace(a, label=np.where(unsure, 4, a.label).astype(np.int32), options=(*a.classes, "unsure"))
    found, without = MACE().fit(Evidence(hedged)), MACE().fit(Evidence(a.select(~unsure)))
    np.testing.assert_allclose(found.probabilities, without.probabilities, atol=1e-6)
    np.testing.assert_allclose(found.parameters["theta"], without.parameters["theta"], atol=1e-6)
    share = np.bincount(a.annotator, unsure, 30) / a.labels_per_annotator
    np.testing.assert_allclose(found.annotators.confusion[:, :, 4], np.tile(share[:, None], 4), atol=0.01)


@pytest.mark.filterwarnings("ignore::hitl.errors.ConflictingLabels")
@pytest.mark.parametrize(
    ("name", "crowd_kit", "ours"),
    [("tweet_sentiment", 0.950, 0.957), ("relevance_trec2010", 0.501, 0.606), ("adult_content", 0.763, 0.784)],
)
def test_accuracy_beside_that_of_crowd_kit(name: str, crowd_kit: float, ours: float) -> None:
    """crowd-kit's table has less: its code sorts the spam counts by annotators' names and reads them in the order in
    which the annotators appear. Where both orders agree, the two are one: tests/peers/test_field.py.
    """
    evidence = crowd(name)
    found = MACE().fit(without_truth(evidence)).probabilities[evidence.known]
    accuracy = score.accuracy(found, evidence.truth[evidence.known])
    assert accuracy == pytest.approx(ours, abs=0.002)
    assert accuracy > crowd_kit
