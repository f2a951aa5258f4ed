"""Simulated labels whose errors are known, with beliefs about them that are right, over-confident, useless or traps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats

Wrong = npt.NDArray[np.bool_]
Project = tuple[Floats, Wrong]
"""Believed chances that each label is wrong, and whether it is."""

POLAR, EASY = 0.06, 0.1
"""Share of the labels with most of the errors, and share of the errors that the others have."""


def good(size: int, rate: float, rng: np.random.Generator, easy: float = EASY) -> Project:
    """Calibrated and polarised: nine in ten errors are among the doubted labels."""
    hard = rng.random(size) < POLAR
    mean = min((1 - easy) * rate / POLAR, 0.7)
    doubt = np.where(hard, rng.beta(4 * mean, 4 * (1 - mean), size), rng.gamma(1.0, easy * rate / (1 - POLAR), size))
    return _exact(np.clip(doubt, 1e-4, 0.9), size, rate, rng)


def moderate(size: int, rate: float, rng: np.random.Generator) -> Project:
    """Calibrated and polarised, but only six in ten errors are among the doubted labels."""
    return good(size, rate, rng, easy=0.4)


def faint(size: int, rate: float, rng: np.random.Generator) -> Project:
    """Calibrated, without a group of doubted labels."""
    return _exact(np.clip(rng.beta(0.5, 0.5 / rate - 0.5, size), 1e-4, 0.9), size, rate, rng)


def over_confident(size: int, rate: float, rng: np.random.Generator) -> Project:
    """Polarised, at a fifth of the odds."""
    doubt, wrong = good(size, rate, rng)
    odds = doubt / (1 - doubt) / 5
    return odds / (1 + odds), wrong


def useless(size: int, rate: float, rng: np.random.Generator) -> Project:
    """Polarised, and independent of the errors."""
    doubt, wrong = good(size, rate, rng)
    return doubt, rng.permutation(wrong)


def trap(size: int, rate: float, rng: np.random.Generator) -> Project:
    """Polarised, but half of the errors are where confidence is highest."""
    doubt, wrong = good(size, rate, rng)
    moved = rng.permutation(np.flatnonzero(wrong))[: int(wrong.sum()) // 2]
    wrong[moved] = False
    sure = np.argsort(doubt + 1e-9 * rng.random(size))
    wrong[sure[~wrong[sure]][: len(moved)]] = True
    return doubt, wrong


KINDS: dict[str, Callable[[int, float, np.random.Generator], Project]] = {
    "good": good,
    "moderate": moderate,
    "faint": faint,
    "over-confident": over_confident,
    "useless": useless,
    "trap": trap,
}


def _exact(doubt: Floats, size: int, rate: float, rng: np.random.Generator) -> Project:
    """Place exactly `rate` x `size` errors, by chances proportional to the odds of the belief."""
    number = max(round(rate * size), 1)
    race = rng.exponential(size=size) * (1 - doubt) / doubt
    wrong = np.zeros(size, bool)
    wrong[np.argpartition(race, number - 1)[:number]] = True
    return doubt, wrong
