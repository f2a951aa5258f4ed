"""Moment matching: exact moments give the exact matrices; each step against plain loops; a start for Dawid-Skene."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitl import score
from hitl.annotations import Annotations
from hitl.errors import MissingExtra
from hitl.evidence import Evidence
from hitl.models import moment_matching
from hitl.models.dawid_skene import DawidSkene
from hitl.models.inference import moment_triples
from hitl.models.majority import MajorityVote
from hitl.models.moment_matching import (
    MomentMatching,
    Part,
    in_one_order,
    moment_equations,
    on_simplex,
    simplex_least_squares,
)
from tests import oracles
from tests.reference_data import crowd, without_truth

Floats = np.ndarray

THREE_CLASSES = np.array(  # (K, J, L) in tenths; the last option is no class
    [
        [[7, 1, 1, 1], [1, 8, 1, 0], [2, 0, 6, 2]],
        [[6, 2, 0, 2], [0, 9, 1, 0], [1, 1, 8, 0]],
        [[8, 0, 1, 1], [2, 6, 1, 1], [0, 3, 7, 0]],
        [[5, 2, 1, 2], [1, 7, 0, 2], [1, 0, 9, 0]],
    ]
)
TWO_CLASSES = np.array([[[7, 3], [2, 8]], [[9, 1], [4, 6]], [[6, 4], [1, 9]]])


def exact(pi_kjl: Floats, share_j: Floats, people: int) -> tuple[Evidence, Floats]:
    """A table in which every combination of answers occurs exactly as often as the model says, and its truth.

    `pi_kjl` in tenths, `share_j` in tenths.
    """
    rows, truth = [], []
    for j, answers in product(range(len(share_j)), product(range(pi_kjl.shape[2]), repeat=people)):
        times = share_j[j] * np.prod([pi_kjl[k, j, answer] for k, answer in enumerate(answers)])
        rows += [answers] * int(times)
        truth += [j] * int(times)
    matrix = np.array(rows)
    n, k = np.indices(matrix.shape)
    classes = oracles.names("j", len(share_j))
    options = (*classes, *oracles.names("unsure", pi_kjl.shape[2] - len(classes)))
    annotations = Annotations(
        n.ravel(), k.ravel(), matrix.ravel(), tuple(range(len(rows))), oracles.names("k", people), classes, options
    )
    return Evidence(annotations), np.array(truth)


EXACT = MomentMatching(strength=1e-9, share_smoothing=1e-9, tolerance=1e-13, max_iterations=5000)


# -- exact moments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [0, 3])
def test_exact_moments_of_two_classes_give_the_exact_matrices(rounds: int) -> None:
    evidence, _ = exact(TWO_CLASSES, np.array([3, 7]), 3)
    consensus = replace(EXACT, rounds=rounds).fit(evidence)
    np.testing.assert_allclose(consensus.annotators.confusion, TWO_CLASSES / 10, atol=1e-4)
    np.testing.assert_allclose(consensus.class_shares, [0.3, 0.7], atol=1e-4)


def test_exact_moments_of_three_classes_and_four_options_give_the_exact_matrices() -> None:
    evidence, _ = exact(THREE_CLASSES, np.array([5, 2, 3]), 3)
    found = EXACT.fit(evidence)
    np.testing.assert_allclose(found.annotators.confusion, THREE_CLASSES[:3] / 10, atol=1e-4)
    np.testing.assert_allclose(found.class_shares, [0.5, 0.2, 0.3], atol=1e-4)
    joint = np.log(found.class_shares) + oracles.messages(
        evidence.annotations, np.log(np.maximum(THREE_CLASSES[:3] / 10, 1e-12))
    )
    expected = np.exp(joint) / np.exp(joint).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-3)


# -- the moments, by plain loops -----------------------------------------------------------------------------


def answers(annotations: Annotations) -> dict[tuple[int, int], int]:
    return {
        (int(n), int(k)): int(label)
        for n, k, label in zip(annotations.item, annotations.annotator, annotations.label, strict=True)
    }


def test_the_third_moment_of_three_people_counts_what_they_say_together() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(1), 40, 4, 2, 3, asked=0.6)
    a = evidence.annotations
    said = answers(a)
    moment, items = moment_triples.triple_moment(a, (3, 0, 2))
    expected, together = np.zeros((3, 3, 3)), 0
    for n in range(40):
        if all((n, k) in said for k in (3, 0, 2)):
            expected[said[n, 3], said[n, 0], said[n, 2]] += 1
            together += 1
    assert items == together > 3
    np.testing.assert_allclose(moment, expected / together)


def test_the_third_moment_of_three_groups_is_that_of_their_averages() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(2), 30, 7, 2, 3, asked=0.5, pool=9)
    a = evidence.annotations
    group_k = np.array([0, 1, 2, 2, 1, 0, 0, 1])
    moment, items = moment_triples.group_moment(a, group_k)
    expected, together = np.zeros((3, 3, 3)), 0
    for n in range(30):
        voice = np.zeros((3, 3))
        for m in np.flatnonzero(a.item == n):
            voice[group_k[a.annotator[m]], a.label[m]] += 1
        if (voice.sum(axis=1) > 0).all():
            voice /= voice.sum(axis=1, keepdims=True)
            expected += np.einsum("a,b,c->abc", *voice)
            together += 1
    assert items == together > 3
    np.testing.assert_allclose(moment, expected / together, atol=1e-12)


def distance(annotations: Annotations, me: int, mine_jl: Floats, pi_kjl: Floats, share_j: Floats) -> float:
    """The objective of one person as the docstring has it: means and cross-moments, pair by pair of answers."""
    size = annotations.n_options
    rows = list(zip(annotations.item, annotations.annotator, annotations.label, strict=True))
    own = [(i, n, label) for i, (n, k, label) in enumerate(rows) if k == me]
    mean = np.bincount([label for _, _, label in own], minlength=size) / len(own)
    total = len(own) * ((mean - mine_jl.T @ share_j) ** 2).sum()
    for other in range(len(pi_kjl)):
        pairs = [
            (x, y) for i, n, x in own for r, (item, k, y) in enumerate(rows) if r != i and item == n and k == other
        ]
        if pairs:
            cross = np.zeros((size, size))
            for x, y in pairs:
                cross[x, y] += 1 / len(pairs)
            total += len(pairs) * ((cross - mine_jl.T @ np.diag(share_j) @ pi_kjl[other]) ** 2).sum()
    return float(total)


@pytest.mark.parametrize("shape", [{}, {"pool": 9}, {"n_options": 4}], ids=["plain", "pool", "unsure"])
def test_the_equations_of_a_sweep_are_the_distance_from_means_and_cross_moments(shape: dict[str, int]) -> None:
    rng = np.random.default_rng(3)
    evidence, _ = oracles.crowd(rng, 12, 4, 2, asked=0.6, **shape)
    a = evidence.annotations
    pi = rng.dirichlet(np.ones(a.n_options), size=(a.n_annotators, 2))
    share = np.array([0.3, 0.7])
    quadratic, linear = moment_equations(a, pi, share)
    for me in range(a.n_annotators):
        gaps = []
        for _ in range(4):  # the same up to a constant
            x = rng.dirichlet(np.ones(a.n_options), size=2)
            gaps.append(
                distance(a, me, x, pi, share) - np.trace(x.T @ quadratic[me] @ x) + 2 * np.trace(x.T @ linear[me])
            )
        np.testing.assert_allclose(gaps, gaps[0], atol=1e-10)


def test_no_nearby_matrices_are_closer_to_the_moments() -> None:
    rng = np.random.default_rng(4)
    root = rng.normal(size=(5, 3, 4))
    quadratic, linear = root @ root.transpose(0, 2, 1), rng.normal(size=(5, 3, 4))
    best = simplex_least_squares(quadratic, linear, np.full((5, 3, 4), 0.25), iterations=5000, tolerance=1e-12)
    np.testing.assert_allclose(best.sum(axis=2), 1)
    assert (best >= 0).all()

    def closeness(x: Floats) -> float:
        return float(-np.einsum("kjl,kji,kil->", x, quadratic, x) + 2 * np.sum(linear * x))

    better = oracles.beaten_by_a_neighbour(closeness, np.maximum(best, 1e-9), rng, trials=200, slack=1e-6)
    assert better is None, better


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(2, 6))
def test_the_nearest_point_of_the_simplex(seed: int, size: int) -> None:
    """Optimal if and only if all positive entries have moved by the same, and no zero one would have to move less."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=size) * 2
    p = on_simplex(x)
    assert p.sum() == pytest.approx(1)
    assert (p >= 0).all()
    moved = (x - p)[p > 1e-12]
    np.testing.assert_allclose(moved, moved[0], atol=1e-12)
    assert (x[p <= 1e-12] <= moved[0] + 1e-12).all()


# -- who is heard together -----------------------------------------------------------------------------------


def test_triples_are_people_who_share_enough_items_those_with_most_first() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(5), 60, 7, 2, asked=0.5, pool=200)
    a = evidence.annotations
    said = answers(a.select(a.annotator != a.anonymous))
    support = {
        triple: sum(all((n, k) in said for k in triple) for n in range(60)) for triple in combinations(range(7), 3)
    }
    everything = moment_triples.triples(a, 8, 1000, seed=0)
    found = [tuple(sorted(triple)) for triple in everything]
    assert len(set(found)) == len(found)
    assert all(support[triple] >= 8 for triple in found)
    assert {triple for triple, items in support.items() if items >= 8} == set(found)
    assert support[found[0]] == max(support.values())
    some = moment_triples.triples(a, 8, 4, seed=0)
    assert some == everything[:4]
    assert len({k for triple in some for k in triple}) >= 6  # spread over people
    assert moment_triples.triples(a, 61, 10, seed=0) == []
    assert moment_triples.triples(a, 8, 0, seed=0) == []


def test_parts_come_into_one_order_of_the_classes_even_one_of_liars() -> None:
    good = np.array([[0.9, 0.1], [0.2, 0.8]])
    liar = good[::-1]

    def part(members: tuple[int, ...], matrices: list[Floats], share: list[float], items: int = 10) -> Part:
        return Part(tuple(np.array([k]) for k in members), np.stack(matrices), np.array(share), True, items)

    parts = [
        part((0, 1, 2), [liar, liar, liar], [0.3, 0.7]),  # classes swapped: everybody would be wrong
        part((0, 3, 4), [good, liar, good], [0.7, 0.3]),
        part((1, 4, 5), [good, good, liar], [0.7, 0.3]),
        part((0, 2, 3), [good, good, liar], [0.7, 0.3], 50),
        # By themselves they seem right: two liars and one who is good, of whom others know better.
        part((3, 5, 0), [good, good, liar], [0.3, 0.7]),
    ]
    ordered = in_one_order(parts, 6)
    for found in ordered:
        np.testing.assert_allclose(found.share_j, [0.7, 0.3])
    merged = moment_matching.average(ordered, 6)
    np.testing.assert_allclose(merged, np.stack([good, good, good, liar, good, liar]))


def test_averages_weigh_items_and_groups_speak_only_for_those_not_heard_alone() -> None:
    a, b, c = np.eye(2), np.full((2, 2), 0.5), np.array([[0.8, 0.2], [0.4, 0.6]])
    share = np.array([0.5, 0.5])
    alone = [
        Part((np.array([0]), np.array([1]), np.array([2])), np.stack([a, a, a]), share, True, 30),
        Part((np.array([0]), np.array([1]), np.array([2])), np.stack([b, b, b]), share, True, 10),
    ]
    group = Part((np.array([0, 3]), np.array([1]), np.array([2])), np.stack([c, c, c]), share, True, 1000)
    merged = moment_matching.average([*alone, group], 5)
    np.testing.assert_allclose(merged[0], 0.75 * a + 0.25 * b)
    np.testing.assert_allclose(merged[3], c)
    np.testing.assert_allclose(merged[4], 0.5)


# -- as a method ---------------------------------------------------------------------------------------------


def simulated(n_items: int, seed: int, asked: float = 0.8, **shape: object) -> tuple[Evidence, Floats]:
    return oracles.crowd(np.random.default_rng(seed), n_items, 9, 3, asked=asked, accuracy=(0.45, 0.9), **shape)


def test_all_truth_known_counts_answers() -> None:
    evidence, truth = simulated(60, 11)
    told = Evidence(evidence.annotations, truth=truth)
    consensus = MomentMatching(accuracy=0.7, strength=3.0).fit(told)
    counts = oracles.counts(evidence.annotations, np.eye(3)[truth]) + 0.45 + 1.65 * np.eye(3)
    np.testing.assert_allclose(consensus.annotators.concentration, counts, atol=1e-9)


def test_too_little_for_moments_is_left_to_the_votes() -> None:
    evidence, truth = oracles.crowd(np.random.default_rng(12), 40, 2, 3, accuracy=(0.7, 0.9), asked=1.0)
    consensus = MomentMatching().fit(evidence)  # two people make no three voices
    counts = oracles.counts(evidence.annotations, MajorityVote().fit(evidence).probabilities)
    prior = MomentMatching()._pseudo_counts(evidence.annotations)
    np.testing.assert_allclose(consensus.annotators.concentration, counts + prior, atol=1e-9)
    assert score.accuracy(consensus.probabilities, truth) > 0.6


def test_without_tensorly_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorly.decomposition", None)
    evidence, _ = oracles.crowd(np.random.default_rng(13), 5, 2, 2)
    with pytest.raises(MissingExtra, match=r"hitl-toolkit\[moments\]"):
        MomentMatching().fit(evidence)


# -- as a start for Dawid-Skene ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "accuracy", "likelihood"),
    [("bluebirds", 0.88, 0.01), ("rte", 0.92, 1.0), ("sentence_polarity", 0.905, 0.01), ("music_genre", 0.75, 10.0)],
)
def test_on_real_crowds(name: str, accuracy: float, likelihood: float) -> None:
    """How far below that from the votes the log posterior of Dawid-Skene may end: on sparse crowds there are many."""
    evidence = without_truth(crowd(name))
    known, truth = crowd(name).known, crowd(name).truth
    start = MomentMatching().fit(evidence)
    assert score.accuracy(start.probabilities[known], truth[known]) >= accuracy
    votes, moments = DawidSkene().fit(evidence), DawidSkene().fit(evidence, start=start)
    assert moments.fit.objective[-1] >= votes.fit.objective[-1] - likelihood
