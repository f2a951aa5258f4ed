"""Intervals for a share of N items, from n of them drawn at random whose answer is known, and a proxy for all.

The answer y is 1 or 0 (the label is wrong; the class is "cat"). The proxy f is what is believed about it, in [0, 1].
The share is estimated by regression on the proxy, which is known for all items (a control variate; Cochran 1977, ch. 7;
the tuned prediction-powered estimate of Angelopoulos, Duchi & Zrnic 2023, with the n items among the N):

    estimate  =  mean y + b (F - mean f)        b = cov(y, f) / var(f),   F = mean of f over all N items
    variance  =  (1 - n / N) (s^2 + FLOOR / n) / n                        s^2 = variance of y - b f

The interval is Student's with n - 2 degrees of freedom. A good proxy makes it narrower, a useless one hardly wider, and
none can make the estimate wrong. Below FEW known items, or with fewer than RARE answers of one kind, the estimate is
not normal, and the interval is the exact one of Clopper & Pearson, which takes no proxy.

Items may also be drawn with unequal chances pi, half by doubt and half evenly (`chances`), which makes the interval
narrower still where the belief knows which items are doubtful (Neyman allocation; Zrnic & Candès 2024). Then, with
weights 1 / pi in all means and in b (Särndal, Swensson & Wretman 1992, eq. 6.5.9 and 7.8.5),

    estimate  =  mean of y - b f, weighted  +  b F
    variance  =  sum over the drawn of (1 - pi) (z - A)^2 / (n (n - 1))  +  (1 - n / N) FLOOR / n^2
                 z = (y - b f - their mean) n / (N pi)        A = mean of z, weighted by 1 - pi
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, t

from hitl.annotations import Floats

FEW = 100
"""Known items below which the interval is exact."""

RARE = 10
"""Answers of each kind below which it is exact: the textbook rule for the normal approximation."""

FLOOR = 0.83
"""Added to n times the variance of an answer, because few answers of one kind may all have the same proxy."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A share in [0, 1] with its interval; `known` is the number n of known items."""

    share: float
    low: float
    high: float
    known: int

    @property
    def width(self) -> float:
        """Length of the interval."""
        return self.high - self.low


def share_of(y_n: Floats, f_n: Floats, mean: float, size: float, confidence: float = 0.95) -> Interval:
    """Estimate the mean of y over `size` items (infinite if the known ones are not among them).

    `y_n` (n,) known answers, 0 or 1, of items drawn at random; `f_n` (n,) their proxies; `mean` of the proxy over all.
    Raises ValueError without known items.
    """
    known = len(y_n)
    if not known:
        raise ValueError("no known items; expected at least one, drawn at random")
    ones = int(np.sum(y_n))
    if known >= size:
        return Interval(ones / known, ones / known, ones / known, known)
    if known < FEW or min(ones, known - ones) < RARE:
        return clopper_pearson(ones, known, confidence)
    spread = float(np.var(f_n))
    slope = float(np.mean((y_n - y_n.mean()) * (f_n - f_n.mean()))) / spread if spread > 0 else 0.0
    share = float(y_n.mean()) + slope * (mean - float(f_n.mean()))
    variance = float(np.sum((y_n - y_n.mean() - slope * (f_n - f_n.mean())) ** 2)) / (known - 2)
    half = t.ppf(0.5 + confidence / 2, known - 2) * np.sqrt((1 - known / size) * (variance + FLOOR / known) / known)
    low, high = max(share - half, 0.0), min(share + half, 1.0)
    return Interval(float(np.clip(share, 0, 1)), float(low), float(high), known)


def chances(doubt_n: Floats, known: int) -> Floats:
    """Return (N,) the chance of each item to be among `known` drawn ones: half by its doubt p, half evenly.

    By doubt means in proportion to sqrt(p (1 - p)), the standard deviation of the error.
    """
    spread = np.sqrt(doubt_n * (1 - doubt_n))
    weight = np.full(len(doubt_n), 0.5 / len(doubt_n))
    weight += 0.5 * spread / spread.sum() if spread.any() else weight
    chance_n, left = np.zeros(len(doubt_n)), np.ones(len(doubt_n), bool)
    while True:  # items that are drawn for certain leave the rest of the draws to the others
        chance_n[left] = (known - (~left).sum()) * weight[left] / weight[left].sum()
        certain = left & (chance_n >= 1)
        if not certain.any():
            return np.minimum(chance_n, 1.0)
        chance_n[certain] = 1.0
        left &= ~certain
        if not left.any():
            return chance_n


def draw(chance_n: Floats, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw as many items as the chances sum up to, each with its chance: systematically, in a random order."""
    order = rng.permutation(len(chance_n))
    steps = np.arange(round(float(chance_n.sum()))) + rng.random()
    return np.sort(order[np.minimum(np.searchsorted(np.cumsum(chance_n[order]), steps), len(order) - 1)])


def drawn_share(
    y_n: Floats, f_n: Floats, chance_n: Floats, mean: float, size: int, confidence: float = 0.95
) -> Interval:
    """Estimate the mean of y over `size` items, of which n >= FEW were drawn with unequal chances.

    Arguments are those of `share_of`; `chance_n` (n,) in (0, 1]. Raises ValueError for fewer than FEW items.
    """
    known, weight_n = len(y_n), 1 / chance_n
    if known < FEW:
        raise ValueError(f"{known} items drawn with unequal chances; expected at least {FEW}")
    f_mean, y_mean = np.average(f_n, weights=weight_n), np.average(y_n, weights=weight_n)
    spread = np.average((f_n - f_mean) ** 2, weights=weight_n)
    slope = np.average((y_n - y_mean) * (f_n - f_mean), weights=weight_n) / spread if spread > 0 else 0.0
    share = float(y_mean + slope * (mean - f_mean))
    z_n = (y_n - y_mean - slope * (f_n - f_mean)) * weight_n * known / size
    rest_n = 1 - chance_n
    centre = np.average(z_n, weights=rest_n) if rest_n.any() else 0.0
    variance = rest_n @ (z_n - centre) ** 2 / (known * (known - 1)) + (1 - known / size) * FLOOR / known**2
    half = float(t.ppf(0.5 + confidence / 2, known - 2) * np.sqrt(variance))
    low, high = max(share - half, 0.0), min(share + half, 1.0)
    return Interval(float(np.clip(share, 0, 1)), low, high, known)


def clopper_pearson(successes: int, known: int, confidence: float = 0.95) -> Interval:
    """Return the exact two-sided interval of a share, given `successes` among `known` answers."""
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, successes, known - successes + 1)) if successes else 0.0
    high = float(beta.ppf(1 - tail, successes + 1, known - successes)) if successes < known else 1.0
    return Interval(successes / known, low, high, known)
