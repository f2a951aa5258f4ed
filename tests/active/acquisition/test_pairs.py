"""Which pairs to compare next: gains beside quadrature, updates beside an inverse, and fewer comparisons."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import kendalltau

from hitl.active.acquisition.pairs import information, next_pairs, order_gain
from hitl.annotations import Floats
from hitl.models.preferences.davidson import Davidson, Ranking
from tests.models.preferences.crowds import Tournament


def ranking(items: int = 5, reliability: tuple[float, ...] = (0.9, 0.6), tie: float = -0.5) -> Ranking:
    rng = np.random.default_rng(0)
    half = rng.normal(0, 0.5, (items, items))
    people = np.array(reliability)
    return Ranking(rng.normal(0, 1, items), half @ half.T, tie, 0.2, people, True)


def entropy(p: Floats) -> Floats:
    return -p * np.log(p) - (1 - p) * np.log1p(-p)


def test_the_gain_of_a_faint_answer_is_the_entropy_it_takes() -> None:
    """Over the order of each two items, by quadrature over the posterior means that the answer may lead to."""
    given, w = ranking(), 1e-5
    c, s = given.covariance, given.strengths
    gain = order_gain(np.subtract.outer(s, s), c, np.full((5, 5), w))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    for i, j in combinations(range(5), 2):
        x = np.eye(5)[i] - np.eye(5)[j]
        after = c - np.outer(c @ x, c @ x) * w / (1 + w * x @ c @ x)
        taken = 0.0
        for one, other in combinations(range(5), 2):
            y = np.eye(5)[one] - np.eye(5)[other]
            moved = y @ s + np.sqrt(y @ (c - after) @ y) * nodes
            later = weights @ entropy(ndtr(moved / np.sqrt(y @ after @ y))) / weights.sum()
            taken += entropy(ndtr(y @ s / np.sqrt(y @ c @ y))) - later
        assert gain[i, j] == pytest.approx(taken, rel=1e-3)


@pytest.mark.parametrize(("reliability", "tie"), [(1.0, -np.inf), (0.7, -0.5), (0.0, -0.5)])
def test_information_is_the_variance_of_the_score(reliability: float, tie: float) -> None:
    def answers(d: float) -> Floats:
        p = np.array([np.exp(d / 2), np.exp(-d / 2), np.exp(tie)])
        return np.asarray(reliability * p / p.sum() + (1 - reliability) * np.array([0.4, 0.4, 0.2]))

    given = ranking(tie=tie)
    for d in (-2.0, 0.0, 0.7):
        p, slope = answers(d), (answers(d + 1e-5) - answers(d - 1e-5)) / 2e-5
        assert information(given, np.array(d), reliability) == pytest.approx(
            (slope[p > 0] ** 2 / p[p > 0]).sum(), abs=1e-8
        )


def test_each_choice_counts_those_before() -> None:
    given = ranking()
    chosen = next_pairs(given, 4, 4)
    precision = np.linalg.inv(given.covariance)
    d = np.subtract.outer(given.strengths, given.strengths)
    w = information(given, d, 0.9)
    for pair in chosen:
        gain = order_gain(d, np.linalg.inv(precision), w)
        assert gain[pair.left, pair.right] == pytest.approx(pair.gain, rel=1e-6)
        x = np.eye(5)[pair.left] - np.eye(5)[pair.right]
        precision = precision + w[pair.left, pair.right] * np.outer(x, x)
    assert chosen[0].gain == pytest.approx(order_gain(d, given.covariance, w).max())


def test_nobody_is_asked_twice_or_more_than_they_can() -> None:
    given = ranking()
    asked = {(0, 1, 2), (0, 3, 1)}
    chosen = next_pairs(given, 100, 6, asked)
    assert [one.annotator for one in chosen] == [0] * 6 + [1] * 6
    pairs = [(one.annotator, *sorted((one.left, one.right))) for one in chosen]
    assert len(set(pairs)) == 12
    assert not {(0, 1, 2), (0, 1, 3)} & set(pairs)
    assert len(next_pairs(given, 100, 100, asked)) == 8 + 10
    assert len(next_pairs(given, 7, 6, asked)) == 7
    assert next_pairs(given, 0, 5) == []


def test_chosen_pairs_order_items_with_fewer_comparisons() -> None:
    """A short form of tests.bench.preferences.rankings: four tournaments of 15 items; two of five people guess."""
    evenly = chosen = 0
    for seed in range(4):
        for choose in (False, True):
            game = Tournament.drawn(seed, 15, [0.95, 0.9, 0.9, 0.1, 0.1], scale=2.0)
            seen = [*game.random_pairs(20)]
            answers = game.outcomes(*seen)
            while True:
                fit = Davidson().fit(game.comparisons(*seen, answers))
                if kendalltau(fit.strengths, game.strengths).statistic >= 0.85 or len(answers) > 3_000:
                    break
                more = game.random_pairs(20)
                if choose:
                    pairs = next_pairs(fit, 20, 8)
                    left, right, who = ([getattr(p, name) for p in pairs] for name in ("left", "right", "annotator"))
                    more = (np.array(left), np.array(right), np.array(who))
                seen = [np.append(*both) for both in zip(seen, more, strict=True)]
                answers = np.append(answers, game.outcomes(*more))
            chosen, evenly = (chosen + len(answers), evenly) if choose else (chosen, evenly + len(answers))
    assert chosen < 0.7 * evenly
