"""The ranking model: derivatives and maxima beside plain loops, evalica, and what simulations get back."""

from __future__ import annotations

import math

import evalica
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.stats import norm

from hitl.annotations import Floats
from hitl.models.preferences.comparisons import Comparisons
from hitl.models.preferences.davidson import Davidson, Posterior, Ranking
from tests.models.preferences.crowds import Tournament

GOOD_AND_GUESSING = [0.95, 0.9, 0.85, 0.1]


def log_posterior(x: Floats, given: Comparisons, settings: Davidson) -> float:
    """The formulas of the module in loops, for strengths that sum to 0."""
    n = len(given.items)
    t, u = x[n], x[n + 1 :]
    a, b = settings.reliability
    ties = sum(w for w, o in zip(given.weight, given.outcome, strict=True) if o == 0) / sum(given.weight)
    total = -sum(s**2 for s in x[: n + 1]) / 2 / settings.scale**2
    for log_odds in u:
        r = 1 / (1 + math.exp(-log_odds))
        total += a * math.log(r) + b * math.log(1 - r)
    for m in range(len(given.left)):
        one, other = math.exp(x[given.left[m]]), math.exp(x[given.right[m]])
        tie = math.exp(t) * math.sqrt(one * other)
        p = {1: one, -1: other, 0: tie}[int(given.outcome[m])] / (one + other + tie)
        guess = {1: (1 - ties) / 2, -1: (1 - ties) / 2, 0: ties}[int(given.outcome[m])]
        r = 1 / (1 + math.exp(-u[given.annotator[m]]))
        total += given.weight[m] * math.log(r * p + (1 - r) * guess)
    return total


def weighted(given: Comparisons) -> Comparisons:
    weight = np.random.default_rng(0).uniform(0.3, 1, len(given.left))
    return Comparisons(given.items, given.left, given.right, given.outcome, given.annotators, given.annotator, weight)


def test_derivatives_are_those_of_the_formulas() -> None:
    given = weighted(Tournament.drawn(0, 5, GOOD_AND_GUESSING).compared(60))
    posterior = Posterior(Davidson(), given)
    points = np.random.default_rng(1).normal(0, 0.7, (3, len(posterior.start)))
    points[:, :5] -= points[:, :5].mean(axis=1, keepdims=True)
    told = [posterior.value(x) - log_posterior(x, given, Davidson()) for x in points]
    assert np.ptp(told) < 1e-9
    for x in points + 0.1:
        gradient, hessian = posterior.derivatives(x)
        assert gradient == pytest.approx(approx_fprime(x, posterior.value, 1e-6), abs=2e-4)
        assert hessian == pytest.approx(approx_fprime(x, lambda y: posterior.derivatives(y)[0], 1e-6), abs=2e-4)


def test_the_fit_is_the_maximum_and_its_curvature() -> None:
    given = weighted(Tournament.drawn(2, 4, GOOD_AND_GUESSING).compared(120))
    found = Davidson().fit(given)
    to_sum_0 = np.zeros((9, 8))  # free parameters -> s with sum 0, t, u
    to_sum_0[:3, :3], to_sum_0[3, :3], to_sum_0[4:, 3:] = np.eye(3), -1, np.eye(5)
    best = minimize(lambda y: -log_posterior(to_sum_0 @ y, given, Davidson()), np.full(8, 0.1), options={"gtol": 1e-7})
    x = to_sum_0 @ best.x
    assert found.converged
    assert found.strengths == pytest.approx(x[:4], abs=1e-4)
    assert found.tie == pytest.approx(x[4], abs=1e-4)
    assert found.reliability == pytest.approx(1 / (1 + np.exp(-x[5:])), abs=1e-4)

    def slope(y: Floats) -> Floats:
        return to_sum_0.T @ Posterior(Davidson(), given).derivatives(to_sum_0 @ y)[0]

    covariance = to_sum_0 @ np.linalg.inv(-approx_fprime(best.x, slope, 1e-6)) @ to_sum_0.T
    assert found.covariance == pytest.approx(covariance[:4, :4], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("tie", [-np.inf, -0.5])
def test_without_guesses_and_prior_it_is_evalicas_model(tie: float) -> None:
    """Bradley-Terry without ties; with them, Davidson's model as Newman (2023) fits it."""
    for seed in range(5):
        given = Tournament.drawn(seed, 15, [1.0], tie=tie).compared(1_500)
        found = Davidson(scale=math.inf).fit(given)
        left, right = ([given.items[n] for n in side] for side in (given.left, given.right))
        winners = [(evalica.Winner.Draw, evalica.Winner.X, evalica.Winner.Y)[one] for one in given.outcome]
        fit = evalica.bradley_terry if tie == -np.inf else evalica.newman
        theirs = fit(left, right, winners, tolerance=1e-12, limit=10_000)
        scores = np.log(theirs.scores[list(given.items)].to_numpy())
        assert np.abs(found.strengths - (scores - scores.mean())).max() < 1e-6
        if tie > -np.inf:
            assert np.exp(found.tie) / 2 == pytest.approx(theirs.v, abs=1e-6)


def test_the_prior_keeps_unbeaten_items_finite() -> None:
    left, right, ones = np.array([0, 0, 1]), np.array([1, 2, 2]), np.ones(3, int)
    given = Comparisons(("a", "b", "c"), left, right, ones, ("",), 0 * ones, ones.astype(float))
    found = Davidson().fit(given)
    assert found.order.tolist() == [0, 1, 2]
    assert np.abs(found.strengths).max() < 4
    assert found.reliability.tolist() == [1.0]


@pytest.mark.parametrize("people", [[1.0], [0.9] * 4 + [0.1] * 2])
def test_intervals_cover_and_guessers_are_found(people: list[float]) -> None:
    """60 tournaments of 20 items with 30 or 150 comparisons of each; strengths are narrower than the prior says."""
    covered, reliability = [], []
    for seed in range(60):
        game = Tournament.drawn(seed, 20, people)
        found = Davidson().fit(game.compared(300 if seed % 2 else 1_500))
        low, high = found.interval()
        covered.append(np.mean((low <= game.strengths) & (game.strengths <= high)))
        reliability.append(found.reliability)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.025)
    assert np.mean(reliability[::2], axis=0) == pytest.approx(np.array(people), abs=0.1)


def test_ranks_follow_from_the_posterior() -> None:
    strengths, deviation = np.array([0.3, -0.3]), 0.5
    covariance = deviation**2 / 4 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    two = Ranking(strengths, covariance, -np.inf, 0.0, np.ones(1), True)
    best, ranks = two.ranks(np.random.default_rng(0))
    assert best[0] == pytest.approx(norm.cdf(0.6 / deviation), abs=0.02)
    assert ranks.T.tolist() == [[1, 2], [1, 2]]
    sure = Ranking(strengths, covariance / 100, -np.inf, 0.0, np.ones(1), True)
    assert sure.ranks(np.random.default_rng(0))[1].T.tolist() == [[1, 1], [2, 2]]
    assert two.wins(np.log([1.0, 3.0])) == pytest.approx([0.5, 0.75])
    assert two.interval(0.5)[1] - strengths == pytest.approx(0.67449 * deviation / 2, rel=1e-4)
