"""One coin and two coins: every step against enumeration, plain loops or its neighbours; the objective never falls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import beta as beta_distribution

from hitl import score
from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import PL, SP
from hitl.models.coins import PASS, Coins, OneCoin, TwoCoin, tosses
from hitl.models.dawid_skene import DawidSkene
from hitl.models.inference import em
from hitl.models.majority import MajorityVote
from hitl.models.numerics.clamping import clamp
from hitl.models.priors.shares import Shares
from tests import oracles, steps

METHODS = {"one": OneCoin, "two": TwoCoin}
both = pytest.mark.parametrize("which", METHODS)

FIVE = {
    "plain": {},
    "two known truths": {"known": 0.4},
    "everything known": {"known": 1.0},
    "options beyond the classes": {"n_options": 5},
    "an anonymous pool": {"pool": 6},
    "items without labels": {"unlabeled": 2, "known": 0.3},
}
shapes = pytest.mark.parametrize("shape", FIVE.values(), ids=FIVE)


def plain_pi(accuracy_kj: np.ndarray, said_ko: np.ndarray) -> np.ndarray:
    """(K, J, L) cell by cell."""
    n_annotators, n_classes = accuracy_kj.shape
    options = n_classes + said_ko.shape[1] - 1
    pi = np.empty((n_annotators, n_classes, options))
    for k in range(n_annotators):
        for j in range(n_classes):
            for option in range(options):
                if option >= n_classes:
                    pi[k, j, option] = said_ko[k, 1 + option - n_classes]
                else:
                    right = accuracy_kj[k, j] if option == j else (1 - accuracy_kj[k, j]) / (n_classes - 1)
                    pi[k, j, option] = said_ko[k, 0] * right
    return pi


def some_coins(rng: np.random.Generator, annotations: Annotations, one: bool) -> Coins:
    shape = annotations.n_annotators, 1 if one else annotations.n_classes
    accuracy = np.broadcast_to(rng.uniform(0.3, 0.95, shape), (shape[0], annotations.n_classes)).copy()
    extra = annotations.n_options - annotations.n_classes
    said = rng.dirichlet(np.ones(1 + extra), size=shape[0])
    return Coins(one, 3.0, 1.0, accuracy, said)


def log_posterior(evidence: Evidence, people: Coins, share_j: np.ndarray, smoothing: float) -> float:
    """Labels and known truths, truths summed out, plus the log prior; plain sums, one coin counted once."""
    pi = plain_pi(people.accuracy_kj, people.said_ko)
    joint = np.log(share_j)[None] + oracles.messages(evidence.annotations, np.log(pi))
    total = smoothing * np.log(share_j).sum() + PASS * np.log(people.said_ko).sum()
    for n in range(evidence.annotations.n_items):
        truth = int(evidence.truth[n])
        total += joint[n, truth] if truth >= 0 else np.log(np.exp(joint[n]).sum())
    for row in people.accuracy_kj:
        for a in row[:1] if people.one else row:
            total += people.right * np.log(a) + people.wrong * np.log(1 - a)
    return float(total)


# -- M-step --------------------------------------------------------------------------------------------------


def plain_tosses(evidence: Evidence, q_nj: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a = evidence.annotations
    right, wrong = np.zeros((a.n_annotators, a.n_classes)), np.zeros((a.n_annotators, a.n_classes))
    for n, k, said in zip(a.item, a.annotator, a.label, strict=True):
        for j in range(a.n_classes):
            if said < a.n_classes:
                (right if said == j else wrong)[k, j] += q_nj[n, j]
    return right, wrong


@both
@shapes
def test_no_nearby_coins_are_better(which: str, shape: dict[str, float]) -> None:
    rng = np.random.default_rng(22)
    evidence, _ = oracles.crowd(rng, 8, 4, 3, **shape)
    annotations = evidence.annotations
    q_nj = clamp(rng.dirichlet(np.ones(3), size=8), evidence)
    informative = (annotations.labels_per_item > 0) | evidence.known
    start = some_coins(rng, annotations, which == "one")
    counts, people, _ = steps.maximisation(evidence, Shares.even(3), start, q_nj, informative)
    for found, expected in zip(tosses(counts), plain_tosses(evidence, q_nj), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)

    def objective(accuracy_kj: np.ndarray, said_ko: np.ndarray) -> float:
        moved = Coins(people.one, people.right, people.wrong, accuracy_kj, said_ko)
        return float((counts.transpose(0, 2, 1) * np.log(plain_pi(accuracy_kj, said_ko))).sum()) + moved.log_density()

    coin = np.stack((people.accuracy_kj, 1 - people.accuracy_kj), axis=2)
    coin = coin[:, :1] if people.one else coin
    better = oracles.beaten_by_a_neighbour(
        lambda c: objective(np.broadcast_to(c[:, :, 0], people.accuracy_kj.shape), people.said_ko), coin, rng
    )
    assert better is None, better
    better = oracles.beaten_by_a_neighbour(lambda said: objective(people.accuracy_kj, said), people.said_ko, rng)
    assert better is None, better


# -- the loop ------------------------------------------------------------------------------------------------


@both
@shapes
def test_the_trace_ends_at_the_log_posterior_of_the_parameters(which: str, shape: dict[str, float]) -> None:
    rng = np.random.default_rng(23)
    evidence, _ = oracles.crowd(rng, 12, 4, 3, **shape)
    a = evidence.annotations
    people = Coins.unlearned(a, a.n_annotators, which == "one", 0.75, 4.0)
    votes_nj = MajorityVote().fit(evidence).probabilities
    estimate = em.run_em(evidence, Shares.even(3, 0.5), people, votes_nj, tolerance=0.0, max_iterations=3)
    expected = log_posterior(evidence, estimate.annotators, estimate.prior.share_j, 0.5)
    assert estimate.objective[-1] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_one_coin_agrees_with_a_second_plain_implementation(n_classes: int) -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(24), 60, 5, n_classes, known=0.1)
    a = evidence.annotations
    consensus = OneCoin(accuracy=0.7, strength=5.0, share_smoothing=0.5, tolerance=1e-13).fit(evidence)
    q = MajorityVote().fit(evidence).probabilities
    for _ in range(3000):
        share = q.sum(axis=0) + 0.5
        share /= share.sum()
        right = np.full(a.n_annotators, 3.5)
        given_labels = np.full(a.n_annotators, 5.0)
        for n, k, said in zip(a.item, a.annotator, a.label, strict=True):
            right[k] += q[n, said]
            given_labels[k] += 1
        accuracy = right / given_labels
        log_q = np.tile(np.log(share), (a.n_items, 1))
        for n, k, said in zip(a.item, a.annotator, a.label, strict=True):
            for j in range(n_classes):
                log_q[n, j] += np.log(accuracy[k] if said == j else (1 - accuracy[k]) / (n_classes - 1))
        new = np.exp(log_q - log_q.max(axis=1, keepdims=True))
        new /= new.sum(axis=1, keepdims=True)
        new[evidence.known] = np.eye(n_classes)[evidence.truth[evidence.known]]
        if np.abs(new - q).max() < 1e-12:
            break
        q = new
    np.testing.assert_allclose(consensus.probabilities, q, atol=1e-6)
    diagonal = consensus.annotators.confusion[:, np.arange(n_classes), np.arange(n_classes)]
    np.testing.assert_allclose(diagonal, np.tile(accuracy[:, None], n_classes), atol=1e-6)


def test_for_two_classes_two_coins_are_dawid_skene_with_a_prior_on_each_row() -> None:
    """Sensitivity and specificity are all there is to a 2 x 2 confusion matrix."""
    evidence, _ = oracles.crowd(np.random.default_rng(25), 80, 5, 2)
    coin = TwoCoin(accuracy=0.8, strength=5.0, share_smoothing=0.01, tolerance=1e-12).fit(evidence)
    full = DawidSkene(accuracy=0.8, strength=5.0, tolerance=1e-12).fit(evidence)
    np.testing.assert_allclose(coin.probabilities, full.probabilities, atol=1e-5)
    np.testing.assert_allclose(coin.annotators.confusion, full.annotators.confusion, atol=1e-5)


# -- what it finds -------------------------------------------------------------------------------------------


def test_the_interval_is_that_of_the_coin() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(28), 120, 4, 3, known=1.0)
    a = evidence.annotations
    consensus = OneCoin().fit(evidence)
    right = np.bincount(a.annotator, evidence.truth[a.item] == a.label, 4) + 0.75 * 9
    total = a.labels_per_annotator + 9
    low, high = consensus.annotators.interval
    np.testing.assert_allclose(consensus.annotators.accuracy, right / total, atol=1e-9)
    np.testing.assert_allclose(low, beta_distribution.ppf(0.025, right, total - right), atol=0.01)
    np.testing.assert_allclose(high, beta_distribution.ppf(0.975, right, total - right), atol=0.01)


def test_unsure_is_no_mistake_and_says_nothing() -> None:
    rng = np.random.default_rng(29)
    truth = rng.integers(2, size=400)
    said = np.where(rng.random((400, 4)) < 0.85, truth[:, None], 1 - truth[:, None])
    plain = OneCoin().fit(Evidence(Annotations.from_matrix(said)))
    hedged = said.copy()
    hedged[:, 0] = np.where(rng.random(400) < 0.5, 2, said[:, 0])
    annotations = Annotations.from_matrix(hedged, classes=(0, 1, 2))
    table = Annotations(
        annotations.item, annotations.annotator, annotations.label, annotations.items, annotations.annotators,
        (0, 1), (0, 1, 2),
    )  # fmt: skip
    found = OneCoin().fit(Evidence(table))
    confusion = found.annotators.confusion[0]
    assert confusion[0, 2] == pytest.approx(0.5, abs=0.06)
    assert confusion[0, 2] == confusion[1, 2]
    np.testing.assert_allclose(confusion[0, 0] / (1 - confusion[0, 2]), plain.annotators.confusion[0, 0, 0], atol=0.05)
    without = OneCoin().fit(Evidence(table.select(table.label < 2)))
    np.testing.assert_allclose(found.probabilities, without.probabilities, atol=1e-6)


@both
@pytest.mark.parametrize("seed", range(5))
def test_roles_do_not_swap_where_people_are_hardly_better_than_chance(which: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence, truth = oracles.crowd(rng, 200, 7, 2, asked=0.5, accuracy=(0.52, 0.65))
    assert score.accuracy(METHODS[which]().fit(evidence).probabilities, truth) > 0.5


# -- SP: eq. 3 with one accuracy an annotator ------------------------------------------------------------------

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
