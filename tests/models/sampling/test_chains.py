"""Chains: R-hat and effective sample size against a second plain implementation and against what theory says."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hitl.annotations import Floats
from hitl.models.gibbs_ibcc import GibbsIBCC
from hitl.models.sampling import sampler

# -- the same again, in plain loops ---------------------------------------------------------------------------


def plain_scores(halves: list[list[float]]) -> list[list[float]]:
    """Normal scores of mean ranks, by counting."""
    pooled = [x for half in halves for x in half]
    size = len(pooled)

    def score(x: float) -> float:
        below = sum(y < x for y in pooled)
        equal = sum(y == x for y in pooled)
        return float(norm.ppf((below + (equal + 1) / 2 - 3 / 8) / (size + 1 / 4)))

    return [[score(x) for x in half] for half in halves]


def plain_halves(draws: Floats) -> list[list[float]]:
    half = draws.shape[1] // 2
    return [list(chain[:half]) for chain in draws] + [list(chain[-half:]) for chain in draws]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def plain_rhat_of(scores: list[list[float]]) -> float:
    n, m = len(scores[0]), len(scores)
    means = [mean(half) for half in scores]
    within = mean([sum((x - mean(half)) ** 2 for x in half) / (n - 1) for half in scores])
    between = n * sum((x - mean(means)) ** 2 for x in means) / (m - 1)
    return sqrt(((n - 1) / n * within + between / n) / within)


def plain_rhat(draws: Floats) -> float:
    middle = sorted(draws.ravel())
    median = (middle[(len(middle) - 1) // 2] + middle[len(middle) // 2]) / 2
    return max(
        plain_rhat_of(plain_scores(plain_halves(draws))),
        plain_rhat_of(plain_scores(plain_halves(np.abs(draws - median)))),
    )


def plain_effective(draws: Floats) -> float:
    scores = plain_scores(plain_halves(draws))
    m, n = len(scores), len(scores[0])

    def covariance(half: list[float], lag: int) -> float:
        centre = mean(half)
        return sum((half[s] - centre) * (half[s + lag] - centre) for s in range(n - lag)) / n

    within = mean([covariance(half, 0) for half in scores]) * n / (n - 1)
    means = [mean(half) for half in scores]
    both = within * (n - 1) / n + sum((x - mean(means)) ** 2 for x in means) / (m - 1)
    rho = [1.0] + [1 - (within - mean([covariance(half, lag) for half in scores])) / both for lag in range(1, n)]
    total, least = 0.0, np.inf
    for t in range(0, n - 1, 2):
        pair = rho[t] + rho[t + 1]
        if pair < 0:
            break
        least = min(least, pair)
        total += least
    return m * n / max(-1 + 2 * total, 1 / np.log10(m * n))


def autoregressive(rng: np.random.Generator, chain_count: int, size: int, phi: float) -> Floats:
    draws = np.empty((chain_count, size))
    draws[:, 0] = rng.normal(size=chain_count) / np.sqrt(1 - phi**2)
    for s in range(1, size):
        draws[:, s] = phi * draws[:, s - 1] + rng.normal(size=chain_count)
    return draws


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    chain_count=st.integers(1, 4),
    size=st.integers(4, 25),
    phi=st.sampled_from([-0.7, 0.0, 0.5, 0.95]),
    apart=st.sampled_from([0.0, 1.0, 10.0]),
    ties=st.booleans(),
)
def test_both_agree_with_plain_loops(
    seed: int, chain_count: int, size: int, phi: float, apart: float, ties: bool
) -> None:
    rng = np.random.default_rng(seed)
    draws = autoregressive(rng, chain_count, size, phi) + apart * np.arange(chain_count)[:, None]
    if ties:
        draws = np.round(draws)
        assume(all(len(set(half)) > 1 for half in plain_halves(np.abs(draws - np.median(draws)))))
        assume(all(len(set(half)) > 1 for half in plain_halves(draws)))
    assert sampler.split_rhat(draws) == pytest.approx(plain_rhat(draws), rel=1e-9)
    assert sampler.effective_size(draws) == pytest.approx(plain_effective(draws), rel=1e-9)


# -- what theory says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.6, 0.9])
def test_the_effective_size_of_an_autoregression_is_the_known_one(phi: float) -> None:
    draws = autoregressive(np.random.default_rng(0), 4, 10_000, phi)
    assert sampler.effective_size(draws) == pytest.approx(40_000 * (1 - phi) / (1 + phi), rel=0.1)
    assert sampler.split_rhat(draws) == pytest.approx(1, abs=0.004)


def test_chains_that_disagree_are_seen() -> None:
    rng = np.random.default_rng(3)
    draws = rng.normal(size=(4, 500))
    one_elsewhere = draws + np.array([[0], [0], [0], [2]])
    one_wide = draws * np.array([[1], [1], [1], [5]])
    drifting = rng.normal(size=(1, 500)) + np.linspace(0, 3, 500)
    for wrong in (one_elsewhere, one_wide, drifting):
        assert sampler.split_rhat(wrong) > sampler.MIXED_BELOW
    assert sampler.split_rhat(draws) < sampler.MIXED_BELOW
    assert sampler.effective_size(one_elsewhere) < 30


def test_chains_that_stand_still() -> None:
    same, apart = np.full((4, 7), 0.1), np.tile(np.array([[0.1], [0.1], [0.3], [0.1]]), 7)
    assert sampler.split_rhat(same) == 1.0
    assert sampler.effective_size(same) == 24  # the halves, without the middle draw
    assert sampler.split_rhat(apart) == float("inf")
    assert sampler.effective_size(apart) < 10


# -- how they run ----------------------------------------------------------------------------------------------


def test_each_chain_has_its_own_numbers_and_they_follow_from_the_seed() -> None:
    def run(rng: np.random.Generator) -> float:
        return float(rng.random())

    first = GibbsIBCC(seed=5, chains=8).run(run)
    assert len(set(first)) == 8
    assert GibbsIBCC(seed=5, chains=8).run(run) == first
    assert GibbsIBCC(seed=5, chains=3).run(run) == first[:3]  # more chains leave the first ones as they are
    assert GibbsIBCC(seed=6, chains=8).run(run) != first
    expected = [np.random.default_rng(child).random() for child in np.random.SeedSequence(5).spawn(8)]
    assert first == expected
