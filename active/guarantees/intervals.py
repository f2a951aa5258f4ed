"""Intervals for a share of N items, from n of them drawn at random whose answer is known, and a proxy for all.

The answer y is 1 or 0 (the label is wrong; the class is "cat"). The proxy f is what is believed about it, in [0, 1].
The share is estimated by regression on the proxy, which is known for all items (a control variate; Cochran 1977, ch. 7;
the tuned prediction-powered estimate of Angelopoulos, Duchi & Zrnic 2023, with the n items among the N):

    estimate  =  mean y + b (F - mean f)        b = cov(y, f) / var(f),   F = mean of f over all N items
    variance  =  (1 - n / N) (s^2 + FLOOR / n) / n                        s^2 = variance of y - b f

The interval is Student's with n - 2 degrees of freedom. A good proxy makes it narrower, a useless one hardly wider, and
none can make the estimate wrong. Below FEW known items, or with fewer than RARE answers of one kind, the estimate is
not normal, and the interval is the exact one of Clopper & Pearson, which takes no proxy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
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


def clopper_pearson(successes: int, known: int, confidence: float = 0.95) -> Interval:
    """Return the exact two-sided interval of a share, given `successes` among `known` answers."""
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, successes, known - successes + 1)) if successes else 0.0
    high = float(beta.ppf(1 - tail, successes + 1, known - successes)) if successes < known else 1.0
    return Interval(successes / known, low, high, known)
