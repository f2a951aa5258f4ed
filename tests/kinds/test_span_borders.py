"""Borders of spans, and what was overlooked: against enumeration, plain loops and simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from hitl.kinds.span_borders import NEAR, learn_borders, shrink_shares
from hitl.kinds.span_fit import without_overlap
from hitl.models.inference.missed_objects import chance_of_none


def simulated(seed: int, clusters: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Marked borders (M, 3), the true ones, and how often each of four annotators is right; r = .4."""
    rng = np.random.default_rng(seed)
    right_k, true_c = np.array([0.95, 0.8, 0.6, 0.4]), 100 + 50 * np.arange(clusters)
    rows = []
    for c, truth in enumerate(true_c):
        for k in range(4):
            if rng.random() < 0.7:
                away = 0 if rng.random() < right_k[k] else int(rng.geometric(0.6)) * int(rng.choice([-1, 1]))
                rows.append((c, k, truth + away))
    return np.array(rows), true_c, right_k


def test_annotators_and_decay_are_found_again() -> None:
    member_m3, true_c, right_k = simulated(0, 3_000)
    found = learn_borders(member_m3, np.ones(len(true_c)), np.full(len(true_c), -1), 4)
    np.testing.assert_allclose(found.right_k, right_k, atol=0.04)
    assert found.decay == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("side_k", [(-1, -1, 1, 1), (-1, -1, -1, -1)], ids=["own", "same"])
def test_annotators_who_only_err_to_one_side_are_found(side_k: tuple[int, ...]) -> None:
    """Four in ten borders are one place off, so that a vote is often a tie."""
    rng, true_c = np.random.default_rng(2), 100 + 50 * np.arange(1_500)
    wrong_ck = rng.random((1_500, 4)) < 0.4
    rows = [(c, k, true_c[c] + wrong_ck[c, k] * side_k[k]) for c in range(1_500) for k in range(4)]
    found = learn_borders(np.array(rows), np.ones(1_500), np.full(1_500, -1), 4)
    np.testing.assert_allclose(found.early_k, np.array(side_k) < 0, atol=0.05)
    np.testing.assert_allclose(found.right_k, 0.6, atol=0.06)
    assert found.at(np.arange(1_500), true_c).mean() > 0.85


def test_shares_are_shrunk_as_far_as_annotators_are_alike() -> None:
    rng, all_k = np.random.default_rng(0), np.full(40, 50.0)
    alike_k = rng.binomial(50, 0.3, 40).astype(float)
    assert np.ptp(shrink_shares(alike_k, all_k)) < np.ptp(alike_k / all_k) / 2
    apart_k = rng.binomial(50, np.repeat([0.05, 0.9], 20)).astype(float)
    np.testing.assert_allclose(shrink_shares(apart_k, all_k), apart_k / all_k, atol=0.03)


def test_the_posterior_is_that_of_plain_products() -> None:
    member_m3, _, _ = simulated(1, 20)
    found = learn_borders(member_m3, np.ones(20), np.full(20, -1), 4)
    for c in np.unique(member_m3[:, 0]):
        own = member_m3[member_m3[:, 0] == c]
        places = sorted({int(x) + near for x in own[:, 2] for near in range(-NEAR, NEAR + 1)})
        weight = []
        for b in places:
            product = 1.0
            for _, k, x in own.tolist():
                far, a, e, r = abs(x - b), found.right_k[k], found.early_k[k], found.decay
                product *= a if far == 0 else (1 - a) * (e if x < b else 1 - e) * (1 - r) * r ** (far - 1)
            weight.append(product)
        ours = found.at(np.full(len(places), c), np.array(places))
        np.testing.assert_allclose(ours, np.array(weight) / np.sum(weight), atol=1e-9)
    assert found.at(np.array([0]), np.array([10**6])).tolist() == [0.0]


def test_borders_are_as_probable_as_they_are_often_right() -> None:
    member_m3, true_c, _ = simulated(3, 3_000)
    found = learn_borders(member_m3, np.ones(len(true_c)), np.full(len(true_c), -1), 4)
    top = np.lexsort((-found.probability_b, found.cluster_b))
    first = top[np.flatnonzero(np.diff(found.cluster_b[top], prepend=-1))]
    right = found.place_b[first] == true_c[found.cluster_b[first]]
    assert right.mean() == pytest.approx(found.probability_b[first].mean(), abs=0.02)
    assert right.mean() > 0.85


def test_known_borders_are_certain_and_teach() -> None:
    member_m3, true_c, _ = simulated(4)
    found = learn_borders(member_m3, np.ones(len(true_c)), true_c, 4)
    np.testing.assert_allclose(found.at(np.arange(len(true_c)), true_c), 1.0)
    hit = [
        float((member_m3[member_m3[:, 1] == k, 2] == true_c[member_m3[member_m3[:, 1] == k, 0]]).mean())
        for k in range(4)
    ]
    np.testing.assert_allclose(found.right_k, hit, atol=0.02)


@pytest.mark.parametrize("seed", range(20))
def test_of_spans_that_overlap_the_best_set_is_kept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = rng.integers(20, size=8)
    end, gain = start + rng.integers(1, 8, size=8), rng.uniform(0.1, 3, size=8)

    def apart(some: tuple[int, ...]) -> bool:
        return all(end[a] <= start[b] or end[b] <= start[a] for a, b in combinations(some, 2))

    sets = [some for size in range(9) for some in combinations(range(8), size) if apart(some)]
    best = max(sets, key=lambda some: gain[list(some)].sum())
    kept = without_overlap(start.tolist(), end.tolist(), gain.tolist())
    assert gain[kept].sum() == pytest.approx(gain[list(best)].sum())
    assert apart(tuple(kept))


def test_overlooked_spans_are_as_many_as_in_simulated_texts() -> None:
    """Texts of different size, two or three annotators who miss a share of all spans: how many have one overlooked?"""
    rng = np.random.default_rng(0)
    n, miss_k = 20_000, np.array([0.3, 0.5, 0.6])
    size_d = rng.integers(5, 40, size=n).astype(float)
    looked_dk = rng.random((n, 3)) < 0.8
    count_d = rng.poisson(0.1 * size_d)
    chance_d = np.where(looked_dk, miss_k, 1.0).prod(axis=1)
    unseen_d = rng.binomial(count_d, chance_d)
    answer_a2 = np.argwhere(looked_dk)
    none_d = chance_of_none((count_d - unseen_d).astype(float), size_d, np.zeros(n, bool), answer_a2, miss_k)
    assert none_d.mean() == pytest.approx((unseen_d == 0).mean(), abs=0.005)
    for low, high in ((0, 0.1), (0.1, 0.2), (0.2, 0.4)):
        some = (chance_d > low) & (chance_d <= high)
        assert none_d[some].mean() == pytest.approx((unseen_d[some] == 0).mean(), abs=0.02)


def test_where_nothing_was_seen_yet_a_text_may_still_hold_something() -> None:
    size_d, seen_d, known_d = np.array([10.0, 10.0, 0.0]), np.zeros(3), np.array([False, False, False])
    none = chance_of_none(seen_d, size_d, known_d, np.array([[0, 0]]), np.array([0.2]))
    np.testing.assert_allclose(none, [8 / 10, 8 / 18, 1.0])  # L = 8: L / (L + 2), L / (L + 10), no word
    assert chance_of_none(seen_d, size_d, known_d, np.empty((0, 2), int), np.empty(0))[0] == 0
    known = np.array([True, False, False])
    told = chance_of_none(seen_d, size_d, known, np.empty((0, 2), int), np.empty(0))
    np.testing.assert_allclose(told, [1.0, 0.5, 1.0])
