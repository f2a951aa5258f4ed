"""Dawid-Skene with a hierarchy of priors: what counts how much, the climb, and crowds that label little and much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp

from hitl import score
from hitl.annotations import Annotations
from hitl.crew import EXPECTED_ACCURACY
from hitl.evidence import Evidence
from hitl.models import HierarchicalDawidSkene, MajorityVote
from hitl.models.annotators.confusion import Confusion
from hitl.models.hierarchy.counted import SHARES, Counted, Reading, spread
from hitl.models.hierarchy.skills import Skills
from hitl.models.inference import em
from hitl.models.inference.engine import Table
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.numerics.votes import voted
from tests import oracles
from tests.dependent_labels import compared, table

Floats = oracles.Floats
Ints = NDArray[np.int32]

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "two classes": {"n_classes": 2},
    "some known truth": {"known": 0.3},
    "everything known": {"known": 1.0},
    "options beyond the classes": {"n_options": 5},
    "an anonymous pool": {"pool": 20},
    "items without labels": {"unlabeled": 5, "known": 0.2},
    "sparse": {"asked": 0.2},
}
everywhere = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def some(shape: dict[str, Any], seed: int = 0) -> Evidence:
    return oracles.crowd(np.random.default_rng(seed), 30, 5, **{"asked": 0.5, "n_classes": 3} | shape)[0]


# -- what counts, and how much -------------------------------------------------------------------------------


def plain_weights(evidence: Evidence) -> Floats:
    a = evidence.annotations
    labels_n = [int(((a.item == n) & (a.label < a.n_classes)).sum()) for n in range(a.n_items)]
    several = [m for m in labels_n if m >= 2]
    alike = sum(m - 1 for m in several) / sum(several) if several else 0.0
    counted = [1.0 if known else alike * compared(evidence, n) for n, known in enumerate(evidence.known)]
    return np.array(counted)


def weights(evidence: Evidence, anchor: float) -> Floats:
    return Counted.of(Table(evidence), Reading(anchor), Outputs.of(evidence)).weighed(evidence).weight_n


def plain_votes(evidence: Evidence) -> Floats:
    a = evidence.annotations
    votes_nj = np.zeros((a.n_items, a.n_classes))
    for n, option in zip(a.item, a.label, strict=True):
        if option < a.n_classes:
            votes_nj[n, option] += 1
    return votes_nj


def plain_agreement(evidence: Evidence) -> Floats:
    """Share of the pairs that agree which agree on each class; the truth where it is known."""
    agreed_nj = np.zeros_like(plain_votes(evidence))
    for n, row in enumerate(plain_votes(evidence)):
        pairs = [v * (v - 1) / 2 for v in row]
        if evidence.known[n]:
            agreed_nj[n, evidence.truth[n]] = 1
        elif sum(pairs):
            agreed_nj[n] = np.array(pairs) / sum(pairs)
    return agreed_nj


@everywhere
def test_counts_are_weighed_and_anchored_at_agreeing_votes(shape: dict[str, Any]) -> None:
    evidence = some(shape)
    counted, weight_n = Counted.of(Table(evidence), Reading(0.3), Outputs.of(evidence)), plain_weights(evidence)
    np.testing.assert_allclose(weights(evidence, 0.3), weight_n)
    q_nj = np.random.default_rng(1).dirichlet(np.ones(evidence.annotations.n_classes), size=30)
    by_beliefs = oracles.counts(evidence.annotations, q_nj * weight_n[:, None]).transpose(0, 2, 1)
    by_votes = oracles.counts(evidence.annotations, plain_agreement(evidence) * weight_n[:, None]).transpose(0, 2, 1)
    np.testing.assert_allclose(counted.weighed(evidence).by(q_nj), by_beliefs, atol=1e-12)
    np.testing.assert_allclose(counted.tally.votes_klj, by_votes, atol=1e-12)
    np.testing.assert_allclose(counted.anchored(by_beliefs), 0.7 * by_beliefs + 0.3 * by_votes, atol=1e-12)


@everywhere
def test_pseudo_counts_and_counts_make_the_posterior_that_is_reported(shape: dict[str, Any]) -> None:
    """Rows learned from beliefs beside the pseudo-counts are those of prior and anchored counts."""
    evidence = some(shape)
    counted = Counted.of(Table(evidence), Reading(0.3), Outputs.of(evidence))
    counts_klj = counted.weighed(evidence).by(voted(evidence))
    skills = counted.skills(counts_klj, 0.75)
    found = np.exp(Confusion.expected(counted.pseudo_counts(skills)).learn(counts_klj).log_pi_klj)
    alpha_klj = skills.prior_klj + 0.7 * counts_klj + 0.3 * counted.tally.votes_klj
    np.testing.assert_allclose(found, alpha_klj / alpha_klj.sum(axis=1, keepdims=True))


@everywhere
def test_shares_begin_near_even_over_the_classes_in_use(shape: dict[str, Any]) -> None:
    evidence = some(shape)
    weight_n, votes_nj = plain_weights(evidence), plain_votes(evidence)
    for n in np.flatnonzero(evidence.known):
        votes_nj[n] = np.eye(votes_nj.shape[1])[evidence.truth[n]]
    labeled = sum(1 for n, row in enumerate(votes_nj) if evidence.known[n] or (evidence.annotations.item == n).any())
    expected = np.full(votes_nj.shape[1], 1 / votes_nj.shape[1])
    for j in range(votes_nj.shape[1]):
        expected[j] += SHARES * labeled / weight_n.sum() / votes_nj.shape[1]
        for u, row in zip(weight_n, votes_nj, strict=True):
            expected[j] += (1 - u) * row[j] / max(row.sum(), 1)
    assert votes_nj.any(axis=0).all()
    np.testing.assert_allclose(
        Counted.of(Table(evidence), Reading(0.3), Outputs.of(evidence)).shares().smoothing, expected
    )


def test_known_truth_counts_in_full_and_lone_labels_at_most_as_much_as_compared_ones() -> None:
    said = np.array([[0, -1, -1, -1], [1, 1, -1, -1], [2, 2, 0, -1], [1, -1, -1, -1], [-1] * 4])
    lone = np.array([[-1, -1, 0, -1], [-1, -1, 1, -1], [-1, -1, -1, 2]])
    evidence = Evidence(table(np.vstack((said, lone)), 3, 3), truth=np.array([-1, -1, -1, 2, 0, -1, -1, -1], np.int32))
    np.testing.assert_allclose(weights(evidence, 0.4), [3 / 5, 3 / 5, 3 / 5, 1, 1, 3 / 10, 3 / 10, 0])


@everywhere
def test_the_hierarchy_is_learned_from_anchored_counts(shape: dict[str, Any]) -> None:
    evidence = some(shape)
    counted = Counted.of(Table(evidence), Reading(0.3), Outputs.of(evidence))
    q_nj = np.random.default_rng(2).dirichlet(np.ones(evidence.annotations.n_classes), size=30)
    counts_klj = counted.weighed(evidence).by(q_nj)
    expected = Skills.learned(counted.anchored(counts_klj), 0.7)
    np.testing.assert_allclose(counted.skills(counts_klj, 0.7).prior_klj, expected.prior_klj)


# -- the climb -----------------------------------------------------------------------------------------------


def weighed_log_posterior(
    evidence: Evidence, pi_kjl: Floats, share_j: Floats, pseudo_kjl: Floats, pseudo_j: Floats
) -> float:
    """Labels and known truths given the parameters, items weighed, plus the log priors; plain sums."""
    joint = np.log(share_j) + oracles.messages(evidence.annotations, np.log(pi_kjl))
    total = (pseudo_kjl * np.log(pi_kjl)).sum() + pseudo_j @ np.log(share_j)
    for n, (row, u) in enumerate(zip(joint, plain_weights(evidence), strict=True)):
        total += u * (row[evidence.truth[n]] if evidence.known[n] else logsumexp(row))
    return float(total)


def climbed(evidence: Evidence, anchor: float, iterations: int) -> tuple[Any, Floats, Floats]:
    """One climb from the votes with the hierarchy held, (K, J, L) pseudo-counts of the rows and (J,) of the shares."""
    counted = Counted.of(Table(evidence), Reading(anchor), Outputs.of(evidence))
    weighed = counted.weighed(evidence)
    skills = counted.skills(weighed.by(voted(evidence)), 0.75)
    pseudo_klj, prior = counted.pseudo_counts(skills), replace(counted.shares(), weight_n=weighed.weight_n)
    found = em.run_em(
        evidence,
        prior,
        Confusion.expected(pseudo_klj),
        voted(evidence),
        tolerance=0.0,
        max_iterations=iterations,
        least_labels=2,
        counts=lambda _annotations, q_nj, _among_n, _log_pi_klj: weighed.by(q_nj),
    )
    return found, pseudo_klj.transpose(0, 2, 1), prior.smoothing


@everywhere
@pytest.mark.parametrize("iterations", [1, 30])
def test_the_trace_ends_at_the_weighed_log_posterior(shape: dict[str, Any], iterations: int) -> None:
    evidence = some(shape)
    found, pseudo_kjl, pseudo_j = climbed(evidence, 0.4, iterations)
    pi_kjl = np.exp(found.annotators.log_pi_klj).transpose(0, 2, 1)
    expected = weighed_log_posterior(evidence, pi_kjl, found.prior.share_j, pseudo_kjl, pseudo_j)
    assert found.objective[-1] == pytest.approx(expected, rel=1e-9)


@everywhere
def test_no_nearby_rows_or_shares_are_better_at_the_top(shape: dict[str, Any]) -> None:
    evidence, rng = some(shape), np.random.default_rng(1)
    found, pseudo_kjl, pseudo_j = climbed(evidence, 0.4, 2000)
    pi_kjl, share_j = np.exp(found.annotators.log_pi_klj).transpose(0, 2, 1), found.prior.share_j
    for value, objective in (
        (pi_kjl, lambda pi: weighed_log_posterior(evidence, pi, share_j, pseudo_kjl, pseudo_j)),
        (share_j, lambda share: weighed_log_posterior(evidence, pi_kjl, share, pseudo_kjl, pseudo_j)),
    ):
        better = oracles.beaten_by_a_neighbour(objective, value, rng, slack=1e-6)
        assert better is None, better


# -- the whole -----------------------------------------------------------------------------------------------


def thin(
    seed: int, labels: int, shares: tuple[float, ...] = (0.9, 0.05, 0.05), n_items: int = 1000
) -> tuple[Evidence, Ints]:
    """People right eight times of ten who err independently, `labels` an item."""
    rng = np.random.default_rng(seed)
    classes = len(shares)
    truth = rng.choice(classes, p=shares, size=n_items).astype(np.int32)
    who = np.argsort(rng.random((n_items, 40)), axis=1)[:, :labels]
    right = rng.random(who.shape) < rng.beta(8, 2, 40)[who]
    wrong = (truth[:, None] + rng.integers(1, classes, size=who.shape)) % classes
    said = np.full((n_items, 40), -1)
    np.put_along_axis(said, who, np.where(right, truth[:, None], wrong), axis=1)
    return Evidence(table(said, classes, classes)), truth


@everywhere
@pytest.mark.parametrize("seed", [0, 1])
def test_a_start_from_its_own_answer_gives_the_same_answer(shape: dict[str, Any], seed: int) -> None:
    """To as much as a round may move them: beliefs rest at a mean change of 1e-4."""
    evidence = some(shape, seed)
    first = HierarchicalDawidSkene().fit(evidence)
    again = HierarchicalDawidSkene().fit(evidence, start=first)
    np.testing.assert_allclose(again.probabilities, first.probabilities, atol=1e-3)
    np.testing.assert_array_equal(again.codes, first.codes)
    assert first.fit.converged
    assert again.fit.converged


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("labels", [2, 3])
def test_few_labels_of_skewed_classes_are_judged_no_worse_than_by_a_vote(seed: int, labels: int) -> None:
    """Ties of two votes are broken by who is better and what is common."""
    evidence, truth = thin(seed, labels)
    found, vote = (
        score.accuracy(method.fit(evidence).probabilities, truth)
        for method in (HierarchicalDawidSkene(), MajorityVote())
    )
    assert found >= vote - 0.01
    assert found > 0.9


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("items", [1, 5, 100])
def test_lone_labels_do_not_tell_that_there_is_no_other_class(items: int, classes: int) -> None:
    """Else the first answer of a project would be certain, and so would every item that nobody has seen."""
    answers = np.full((items + 2, 3), -1)
    answers[np.arange(items), np.arange(items) % 3] = 0
    names = [f"c{j}" for j in range(classes)]
    found = HierarchicalDawidSkene().fit(Evidence(Annotations.from_matrix(answers, classes=names)))
    assert found.confidence[:items].max() <= EXPECTED_ACCURACY + 1e-9
    np.testing.assert_allclose(found.probabilities[items:], 1 / classes)
    answers[items] = 1, -1, -1
    other = HierarchicalDawidSkene().fit(Evidence(Annotations.from_matrix(answers, classes=names)))
    np.testing.assert_allclose(other.confidence[:items], found.confidence[:items])


@pytest.mark.parametrize(
    ("named", "compared", "expected"),
    [
        ((True, True, False, False), 0, (1 / 4, 1 / 4, 1 / 4, 1 / 4)),
        ((True, True, False, False), 3, (3 / 8, 3 / 8, 1 / 8, 1 / 8)),
        ((True, False), 9, (9 / 10, 1 / 10)),
        ((True, True, True), 5, (1 / 3, 1 / 3, 1 / 3)),
        ((False, False), 0, (1 / 2, 1 / 2)),
        ((True, True, True, False), 1, (1 / 4, 1 / 4, 1 / 4, 1 / 4)),
    ],
)
def test_even_shares_leave_some_to_classes_that_may_still_come(
    named: tuple[bool, ...], compared: int, expected: tuple[float, ...]
) -> None:
    np.testing.assert_allclose(spread(np.array(named), compared), expected)


@pytest.mark.parametrize("seed", range(6))
def test_people_seem_as_good_as_they_are_where_contested_items_are_asked_about_again(seed: int) -> None:
    """Two labels an item, and up to five more while they disagree: nothing of it depends on who is good."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=1500).astype(np.int32)
    right_k = rng.uniform(0.65, 0.9, 30)
    said = np.full((1500, 30), -1)
    for n, who in enumerate(np.argsort(rng.random((1500, 30)), axis=1)):
        for turn in range(7):
            votes = np.bincount(said[n][said[n] >= 0], minlength=2)
            if turn >= 2 and abs(votes[0] - votes[1]) >= 2:
                break
            said[n, who[turn]] = truth[n] if rng.random() < right_k[who[turn]] else 1 - truth[n]
    found = HierarchicalDawidSkene().fit(Evidence(table(said, 2, 2)))
    assert found.annotators.accuracy.mean() == pytest.approx(right_k.mean(), abs=0.025)
    assert score.accuracy(found.probabilities, truth) > 0.85


# -- other items ---------------------------------------------------------------------------------------------


def test_other_items_are_judged_by_what_was_learned_and_strangers_as_the_crowd() -> None:
    evidence = some({"known": 0.2})
    a, learned = evidence.annotations, HierarchicalDawidSkene().fit(evidence)
    new = Annotations([0, 0, 1], [0, 1, 2], [1, 1, 2], ("x", "y"), ("k3", "k0", "stranger"), a.classes, a.options)
    found = HierarchicalDawidSkene().apply(learned, Evidence(new)).probabilities
    pi, crowd = learned.annotators.confusion, learned.annotators.prior / learned.annotators.prior.sum(axis=1)[:, None]
    expected = np.stack((learned.class_shares * pi[3, :, 1] * pi[0, :, 1], learned.class_shares * crowd[:, 2]))
    np.testing.assert_allclose(found, expected / expected.sum(axis=1, keepdims=True))
    concentration = HierarchicalDawidSkene().concentration(learned, new)
    np.testing.assert_allclose(concentration[[0, 1]], learned.annotators.concentration[[3, 0]])
    np.testing.assert_allclose(concentration[2], learned.annotators.prior)
