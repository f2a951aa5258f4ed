"""Intervals of shares cover as they promise, with a proxy that is good, useless or wrong, and never for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from hitl.active.guarantees.intervals import (
    FEW,
    Interval,
    chances,
    clopper_pearson,
    draw,
    drawn_share,
    share_of,
)
from hitl.annotations import Floats
from tests.bench.guarantees.projects import KINDS


def drawn(doubt: Floats, wrong: np.ndarray, known: int, rng: np.random.Generator) -> Interval:
    """Estimate the error from `known` items drawn at random."""
    rows = rng.choice(len(doubt), known, replace=False)
    return share_of(wrong[rows].astype(float), doubt[rows], float(doubt.mean()), len(doubt))


@pytest.mark.parametrize(("successes", "known"), [(0, 30), (1, 30), (17, 30), (30, 30), (99, 300)])
def test_the_exact_interval_is_that_of_scipy(successes: int, known: int) -> None:
    exact = binomtest(successes, known).proportion_ci(0.95, method="exact")
    own = clopper_pearson(successes, known)
    assert (own.low, own.high) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [FEW, 300])
def test_the_interval_covers_whatever_the_proxy_is(kind: str, known: int) -> None:
    rng = np.random.default_rng(1)
    doubt, wrong = KINDS[kind](2_000, 0.08, rng)
    intervals = [drawn(doubt, wrong, known, rng) for _ in range(600)]
    covers = [one.low <= wrong.mean() <= one.high for one in intervals]
    assert np.mean(covers) >= 0.935 - 2 * np.sqrt(0.05 * 0.95 / 600)


def test_a_good_proxy_makes_it_narrower_and_a_useless_one_hardly_wider() -> None:
    rng, width = np.random.default_rng(2), {}
    for kind in ("good", "useless"):
        doubt, wrong = KINDS[kind](5_000, 0.1, rng)
        width[kind] = np.mean([drawn(doubt, wrong, 300, rng).width for _ in range(100)])
        exact = clopper_pearson(30, 300).width
    assert width["good"] < 0.85 * exact
    assert width["useless"] < 1.05 * exact


def test_the_estimate_is_the_regression_on_the_proxy() -> None:
    rng = np.random.default_rng(3)
    f_n = rng.random(200)
    y_n = (rng.random(200) < f_n).astype(float)
    design = np.column_stack([np.ones(200), f_n])
    at = design @ np.linalg.lstsq(design, y_n, rcond=None)[0]
    shift = np.linalg.lstsq(design, y_n, rcond=None)[0] @ [1, 0.4]
    assert share_of(y_n, f_n, 0.4, 10_000).share == pytest.approx(shift)
    assert share_of(y_n, f_n, float(f_n.mean()), 10_000).share == pytest.approx(at.mean())


def test_few_answers_of_a_kind_have_the_exact_interval() -> None:
    rng = np.random.default_rng(4)
    assert share_of(np.zeros(300), rng.random(300), 0.1, 10_000) == clopper_pearson(0, 300)
    assert share_of(np.repeat([1.0, 0.0], [9, 291]), rng.random(300), 0.1, 10_000) == clopper_pearson(9, 300)
    assert share_of(np.repeat([1.0, 0.0], [50, 49]), rng.random(99), 0.1, 10_000) == clopper_pearson(50, 99)
    assert share_of(np.repeat([1.0, 0.0], [10, 290]), rng.random(300), 0.5, 10_000) != clopper_pearson(10, 300)


def test_all_items_known_leave_no_doubt() -> None:
    y_n, f_n = np.repeat([1.0, 0.0], [100, 200]), np.linspace(0, 1, 300)
    assert share_of(y_n, f_n, 0.5, 400).width < 0.6 * share_of(y_n, f_n, 0.5, 40_000).width
    everything = share_of(np.array([1.0, 0.0] * 100), np.full(200, 0.5), 0.5, 200)
    assert (everything.share, everything.width) == (0.5, 0.0)
    with pytest.raises(ValueError, match="no known items"):
        share_of(np.zeros(0), np.zeros(0), 0.5, 10)


# -- items drawn by doubt ------------------------------------------------------------------------------------


def by_doubt(doubt: Floats, wrong: np.ndarray, known: int, rng: np.random.Generator) -> Interval:
    """Estimate the error from `known` items, half of them drawn by doubt."""
    chance_n = chances(doubt, known)
    rows = draw(chance_n, rng)
    return drawn_share(wrong[rows].astype(float), doubt[rows], chance_n[rows], float(doubt.mean()), len(doubt))


@pytest.mark.parametrize("kind", KINDS)
def test_an_interval_of_items_drawn_by_doubt_covers_whatever_the_doubt_is(kind: str) -> None:
    rng = np.random.default_rng(1)
    doubt, wrong = KINDS[kind](2_000, 0.08, rng)
    intervals = [by_doubt(doubt, wrong, 300, rng) for _ in range(600)]
    covers = [one.low <= wrong.mean() <= one.high for one in intervals]
    assert np.mean(covers) >= 0.935 - 2 * np.sqrt(0.05 * 0.95 / 600)
    assert np.mean([one.share for one in intervals]) == pytest.approx(wrong.mean(), abs=0.004)


def test_good_doubts_make_it_much_narrower_than_even_draws() -> None:
    rng = np.random.default_rng(2)
    doubt = rng.beta(0.1, 1.5, 5_000)
    wrong = rng.random(5_000) < doubt
    width = np.mean([by_doubt(doubt, wrong, 300, rng).width for _ in range(100)])
    evenly = np.mean([drawn(doubt, wrong, 300, rng).width for _ in range(100)])
    assert width < 0.85 * evenly


def test_every_item_is_drawn_with_its_chance() -> None:
    rng = np.random.default_rng(3)
    doubt = rng.beta(0.2, 2, 80)
    doubt[:2] = 0.5
    chance_n = chances(doubt, 60)
    assert chance_n.sum() == pytest.approx(60)
    assert chance_n.max() == 1
    drawn_n = np.zeros(80)
    for _ in range(4_000):
        rows = draw(chance_n, rng)
        assert len(rows) == len(set(rows.tolist())) == 60
        drawn_n[rows] += 1
    assert np.abs(drawn_n / 4_000 - chance_n).max() < 4 * np.sqrt(0.25 / 4_000)
    assert chances(np.zeros(50), 10) == pytest.approx(np.full(50, 0.2))


def test_with_equal_chances_it_is_the_interval_of_even_draws() -> None:
    rng = np.random.default_rng(4)
    f_n = rng.random(200)
    y_n = (rng.random(200) < f_n).astype(float)
    even = share_of(y_n, f_n, 0.5, 1_000)
    own = drawn_share(y_n, f_n, np.full(200, 0.2), 0.5, 1_000)
    assert own.share == pytest.approx(even.share)
    assert own.width == pytest.approx(even.width, rel=0.01)  # n - 1 in the place of n - 2
    with pytest.raises(ValueError, match="at least 100"):
        drawn_share(y_n[:50], f_n[:50], np.full(50, 0.2), 0.5, 1_000)
