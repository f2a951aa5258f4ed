"""The null of the likelihood ratio is the nearest one, and no placement of errors can make the wealth grow."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from hitl.active.guarantees import likelihood_ratio as ratio
from hitl.annotations import Floats


def divergence(bet_s: Floats, theta_s: Floats, chance_s: Floats) -> float:
    """Expected log of the factor if the bet is right."""
    right = (1 - bet_s) * np.log((1 - bet_s) / (1 - theta_s))
    return float(np.sum(chance_s * (bet_s * np.log(bet_s / theta_s) + right)))


def case(rng: np.random.Generator) -> tuple[Floats, Floats, np.ndarray, float]:
    """Draw a bet, chances, labels left, and a total above the bet's."""
    size = int(rng.integers(1, 6))
    left_s = rng.integers(1, 60, size)
    bet_s = rng.beta(0.5, 4, size).clip(1e-4, 0.9)
    chance_s = rng.dirichlet(np.ones(size)) * 0.7 + 0.3 * left_s / left_s.sum()
    total = rng.uniform(bet_s @ left_s, left_s.sum())
    return bet_s, chance_s, left_s, float(total)


@pytest.mark.parametrize("seed", range(20))
def test_no_null_is_nearer(seed: int) -> None:
    bet_s, chance_s, left_s, total = case(np.random.default_rng(seed))
    theta_s = ratio.nearest_null(bet_s, chance_s, left_s, total)
    assert theta_s @ left_s == pytest.approx(total, rel=1e-9)
    found = minimize(
        lambda theta: divergence(bet_s, theta, chance_s),
        np.full(len(bet_s), total / left_s.sum()),
        bounds=[(1e-9, 1 - 1e-9)] * len(bet_s),
        constraints={"type": "eq", "fun": lambda theta: theta @ left_s - total},
        method="SLSQP",
    )
    assert divergence(bet_s, theta_s.clip(1e-12, 1 - 1e-12), chance_s) <= found.fun + 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_the_mean_factor_is_at_most_one_wherever_the_errors_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(20):
        bet_s, chance_s, left_s, total = case(rng)
        theta_s = ratio.nearest_null(bet_s, chance_s, left_s, total)
        wrong, right = bet_s / theta_s, (1 - bet_s) / np.maximum(1 - theta_s, 1e-300)
        for _ in range(20):  # as many errors as the null asks for, or more, in any strata
            order, share_s = rng.permutation(len(left_s)), np.zeros(len(left_s))
            missing = int(np.ceil(total)) + int(rng.integers(0, 3))
            for s in order:
                number = min(missing, left_s[s])
                share_s[s], missing = number / left_s[s], missing - number
            mean = chance_s @ (share_s * wrong + np.where(share_s < 1, (1 - share_s) * right, 0))
            assert mean <= 1 + 1e-9


@pytest.mark.parametrize("mended", [False, True])
@pytest.mark.parametrize(("wrong_s", "needed"), [((2, 0), 2), ((0, 2), 2), ((1, 1), 2), ((1, 2), 2), ((2, 1), 2)])
def test_the_wealth_of_a_false_promise_is_below_one_in_the_mean_of_all_audits(
    wrong_s: tuple[int, int], needed: int, mended: bool
) -> None:
    """All audits of six labels in two strata, enumerated with their chances; mended: those that leave it false."""
    size_s, depth, chances, alpha = np.array([2, 4]), 4, np.array([0.6, 0.4]), 0.3
    mu_cs = ratio.components(np.array([0.3, 0.05]), 0.2)
    mean, false, total = 0.0, 0.0, 0.0
    for sequence in product(range(2), range(2), repeat=depth):
        stratum, wrong = np.array(sequence[::2]), np.array(sequence[1::2])
        left, bad, chance = size_s.copy(), np.array(wrong_s), 1.0
        for s, is_wrong in zip(stratum, wrong, strict=True):
            open_s = chances * (left > 0)
            share = bad[s] / left[s] if left[s] else 0.0
            chance *= open_s[s] / open_s.sum() * (share if is_wrong else 1 - share)
            left[s] -= 1
            bad[s] -= is_wrong
        if chance <= 0:
            continue
        state = np.zeros(len(mu_cs)), size_s.copy(), *np.zeros((2, 2), np.int64), np.zeros(len(ratio.WEIGHTS))
        path = ratio.advance(0, stratum, wrong, np.tile(chances, (depth, 1)), mu_cs, *state, needed, mended)
        # Errors that are mended make the promise true, so only audits that end with as many left are false.
        still = [sum(wrong_s) - int(wrong[: t + 1].sum()) for t in range(depth)]
        stop = next((t for t in range(depth) if path[t] >= -np.log(alpha)), None)
        is_false = stop is not None and (not mended or still[stop] >= needed)
        total, false = total + chance, false + chance * is_false
        if not mended or still[-1] >= needed:
            mean += chance * (0 if np.isinf(path[-1]) else np.exp(path[-1]))
    assert total == pytest.approx(1)
    assert false <= alpha
    assert mean <= 1 + 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_no_nearby_chances_let_the_wealth_grow_faster_where_errors_hide_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    share_s, left_s = rng.beta(0.7, 12, 4).clip(1e-3, 0.5), rng.integers(50, 400, 4)
    total = 1.5 * float(share_s @ left_s)

    def growth(chance_s: Floats) -> float:
        theta_s = ratio.nearest_null(bet_s, chance_s, left_s, total)
        return divergence(bet_s, theta_s.clip(1e-12, 1 - 1e-12), chance_s)

    bet_s = share_s * min(1.0, 0.8 * total / float(share_s @ left_s))
    best_s = ratio.growth_chances(share_s, left_s, total, False, 3.0, 0.0)
    for _ in range(30):
        other_s = best_s * rng.uniform(0.8, 1.25, 4)
        assert growth(best_s) >= growth(other_s / other_s.sum()) - 1e-9
