"""Intervals of shares, and of the difference of two shares of the same items, from (expected) counts.

    wilson       (Wilson 1927)             center (p + z²/2n) / (1 + z²/n), half z sqrt(p(1-p)/n + z²/4n²) / (1 + z²/n)
    difference   (Bonett & Price 2012)     d = (w - l) / (n + 2), half z sqrt(w + l - (n + 2) d²) / (n + 2),
                                           w = won + 1, l = lost + 1

`won` items are right only with the second of two methods, `lost` items only with the first. On the same items, their
difference is known far better than either accuracy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.score import wilson_interval

Z95 = 1.959963984540054
"""Half-width of a central 95 % interval, in standard deviations."""


def wilson(right: npt.ArrayLike, total: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the 95 % interval of right / total, in [0, 1]; NaN where the total is 0."""
    right, total = np.asarray(right, float), np.asarray(total, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip(right / total, 0.0, 1.0)
        low, high = wilson_interval(share, total)
    return np.minimum(low, share), np.maximum(high, share)


def difference(won: npt.ArrayLike, lost: npt.ArrayLike, total: npt.ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return (won - lost) / total and its 95 % interval, in [-1, 1]; NaN where the total is 0."""
    won, lost, total = (np.asarray(values, float) for values in (won, lost, total))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (won - lost) / total
        n = np.where(total > 0, total + 2, np.nan)
        shrunk = (won - lost) / n
        half = Z95 * np.sqrt(np.maximum(won + lost + 2 - n * shrunk**2, 0.0)) / n
    return share, np.clip(np.minimum(shrunk - half, share), -1, 1), np.clip(np.maximum(shrunk + half, share), -1, 1)
