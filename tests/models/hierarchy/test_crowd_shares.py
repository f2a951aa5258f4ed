"""Shares averaged over explanations of the votes: plain EM, an integral, and crowds whose shares are known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize

from hitl.models.hierarchy import crowd_shares
from hitl.models.hierarchy.crowd_shares import averaged_shares

Floats = NDArray[np.float64]


def crowd(seed: int, items: int, labels: int, share_j: list[float], pi_jl: list[list[float]]) -> tuple[Floats, Floats]:
    """Votes (n, L) of annotators who all answer alike, and vote fractions (n, J)."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(len(share_j), items, p=share_j)
    votes_nl = np.array([rng.multinomial(labels, pi_jl[j]) for j in truth], dtype=float)
    return votes_nl, (votes_nl[:, : len(share_j)] + 0.5) / (votes_nl[:, : len(share_j)] + 0.5).sum(axis=1)[:, None]


OVERLOOKED = [[0.99, 0.01], [0.5, 0.5]]


@pytest.mark.parametrize("positive", [0.2, 0.35, 0.5])
def test_three_labels_tell_rare_items_from_overlooked_ones(positive: float) -> None:
    """Of the votes, half as many are positive."""
    votes_nl, q_nj = crowd(0, 3000, 3, [1 - positive, positive], OVERLOOKED)
    voted = np.bincount(votes_nl.argmax(axis=1), minlength=2) / len(votes_nl)
    found = averaged_shares(votes_nl, q_nj, voted)
    assert found[1] == pytest.approx(positive, abs=0.06)
    assert abs(voted[1] - positive) > 2 * abs(found[1] - positive)


def test_with_two_labels_shares_stay_between_explanations() -> None:
    """Two answers per item are explained about as well by a rare class as by an overlooked one."""
    votes_nl, q_nj = crowd(1, 3000, 2, [0.5, 0.5], OVERLOOKED)
    voted = np.array([0.75, 0.25])
    assert 0.2 < averaged_shares(votes_nl, q_nj, voted)[1] < 0.4


def test_a_rare_class_stays_rare() -> None:
    votes_nl, q_nj = crowd(2, 4000, 3, [0.97, 0.03], [[0.97, 0.03], [0.2, 0.8]])
    voted = np.bincount(votes_nl.argmax(axis=1), minlength=2) / len(votes_nl)
    assert averaged_shares(votes_nl, q_nj, voted)[1] < 0.07


def test_items_may_come_in_any_order_and_answers_need_not_be_classes() -> None:
    pi_jl = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.6, 0.2]]
    votes_nl, q_nj = crowd(3, 400, 3, [0.5, 0.3, 0.2], pi_jl)
    share_j = np.array([0.4, 0.4, 0.2])
    order = np.random.default_rng(0).permutation(400)
    found = averaged_shares(votes_nl, q_nj, share_j)
    np.testing.assert_allclose(averaged_shares(votes_nl[order], q_nj[order], share_j), found, atol=1e-9)
    np.testing.assert_allclose(found, [0.5, 0.3, 0.2], atol=0.1)


def plain_evidence(votes_nl: Floats, rows_jl: Floats, share_j: Floats) -> float:
    """Log evidence of a point of the ridge, item by item; the density of recalls by quadrature."""
    total = 0.0
    for votes in votes_nl:
        likelihood = sum(p * np.prod(row**votes) for p, row in zip(share_j, rows_jl, strict=True))
        total += np.log(likelihood) / (1 + 0.2 * votes.sum())
    recalls = rows_jl.diagonal()

    def density(c: float, g: float) -> float:
        return float(stats.beta.pdf(c, 7.5, 2.5) * np.prod(stats.beta.pdf(recalls, g * c, g * (1 - c))))

    return total + float(np.log(np.mean([quad(density, 0, 1, args=(g,))[0] for g in (4, 8, 16, 32)])))


@pytest.mark.parametrize("seed", range(3))
def test_the_evidence_of_a_point_is_that_of_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.array([[0.8, 0.2], [0.35, 0.65]])
    votes_nl, q_nj = crowd(seed, 60, 3, [0.6, 0.4], rows.tolist())
    share_j = rng.dirichlet([3.0, 3.0])
    found_j, q_nj, evidence = crowd_shares._fitted(votes_nl, np.ones(60), q_nj, share_j, learn=False)
    np.testing.assert_array_equal(found_j, share_j)
    counts = votes_nl.T @ q_nj  # from the last beliefs: EM stands still
    rows_jl = crowd_shares.recalled(counts, 0.75, 8.0).T
    assert evidence == pytest.approx(plain_evidence(votes_nl, rows_jl, share_j), abs=0.02)


@pytest.mark.parametrize("labels", [2, 3])
def test_the_shares_of_all_points_are_weighed_by_their_evidence(labels: int) -> None:
    """Two labels per item do not tell enough for shares to be learned freely."""
    votes_nl, q_nj = crowd(6, 200, labels, [0.5, 0.5], OVERLOOKED)
    p = np.array([0.75, 0.25])
    points = [p ** (1 - t) / (p ** (1 - t)).sum() for t in (0, -0.35, 0.2, 0.4, 0.6, 0.8, 1)]
    found = [crowd_shares._fitted(votes_nl, np.ones(200), q_nj, point, learn=False) for point in points]
    best = max(found, key=lambda one: one[2])
    if labels == 3:
        found.append(crowd_shares._fitted(votes_nl, np.ones(200), best[1], best[0], learn=True))
    weight = np.exp([one[2] - found[-1][2] for one in found])
    expected = sum(w * one[0] for w, one in zip(weight / weight.sum(), found, strict=True))
    np.testing.assert_allclose(averaged_shares(votes_nl, q_nj, p), expected, atol=1e-4)


def test_the_learned_point_is_where_no_other_rows_or_shares_are_likelier() -> None:
    """EM against a search of the same penalised likelihood by another optimiser."""
    votes_nl, q_nj = crowd(5, 500, 4, [0.6, 0.4], [[0.85, 0.15], [0.3, 0.7]])
    found_j, _, _ = crowd_shares._fitted(votes_nl, np.ones(500), q_nj, np.array([0.5, 0.5]), learn=True)

    def loss(theta: Floats) -> float:
        p, *h = 1 / (1 + np.exp(-theta))
        rows_jl = np.array([[h[0], 1 - h[0]], [1 - h[1], h[1]]])
        item_nj = np.exp(votes_nl @ np.log(rows_jl).T) * [1 - p, p]
        prior = sum(6 * np.log(x) + 2 * np.log(1 - x) for x in h) + 0.5 * np.log(p * (1 - p))
        return -float(np.log(item_nj.sum(axis=1)).sum() + prior)

    best = minimize(loss, np.array([0.0, 1.0, 1.0]), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8}).x
    assert found_j[1] == pytest.approx(1 / (1 + np.exp(-best[0])), abs=0.01)


def test_no_class_vanishes_where_most_items_have_one_label() -> None:
    """Similar classes, as animals in small pictures: learned freely, one of them swallowed the other."""
    rng = np.random.default_rng(1)
    pi_jl = 0.02 + 0.78 * np.eye(8) + 0.1 * np.eye(8)[[1, 0, 3, 2, 5, 4, 7, 6]]
    votes_nl = np.array([rng.multinomial(1 + (n % 5 == 0), pi_jl[n % 8] / pi_jl[n % 8].sum()) for n in range(6000)])
    q_nj = (votes_nl + 0.1) / (votes_nl + 0.1).sum(axis=1)[:, None]
    found = averaged_shares(votes_nl.astype(float), q_nj, np.full(8, 1 / 8))
    assert found.min() > 0.1


def test_with_very_many_classes_the_first_shares_are_kept() -> None:
    rng = np.random.default_rng(0)
    share_j = rng.dirichlet(np.ones(200))
    votes_nl = rng.multinomial(3, share_j, size=1500).astype(float)
    np.testing.assert_array_equal(averaged_shares(votes_nl, np.full((1500, 200), 1 / 200), share_j), share_j)
