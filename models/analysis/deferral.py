"""Deferral: how many items could skip annotators if the model's most certain labels are accepted.

Items are sorted by the model's calibrated confidence. For every share s that skips annotators

    accuracy(s) = ( sum over the s N most certain items of right_model  +  sum over the rest of right_both ) / N

where "right" is a probability by the consensus, or 0 and 1 if the truth is known. Items of equal confidence skip
together; between such points the curve is that of a random choice among them.

For a target accuracy, the largest number of items skips whose average accuracy reaches it: by the model's own
confidence, which needs no label but relies on the calibration, or by the consensus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.analysis.proportions import wilson

if TYPE_CHECKING:
    import pandas as pd

POINTS = 101
"""Number of shares in a curve: 0, 1 %, ..., 100 %."""


def deferral_curve(confidence_n: Floats, alone_n: Floats, both_n: Floats, points: int = POINTS) -> pd.DataFrame:
    """Return the curve of N items from the model's confidence, and how right it is alone and with annotators.

    Columns: share that skips; the lowest confidence among them; accuracy (low, high) of all items together; accuracy of
    the items skipped. NaN where nothing skips.
    """
    import pandas as pd

    n = len(confidence_n)
    order, ends = _most_certain_first(confidence_n)
    model = np.append(0.0, np.cumsum(alone_n[order]))[ends]
    people = both_n.sum() - np.append(0.0, np.cumsum(both_n[order]))[ends]
    share: Floats = np.linspace(0.0, 1.0, points, dtype=np.float64)
    by_model = np.interp(share * n, ends, model)
    right = by_model + np.interp(share * n, ends, people)
    low, high = wilson(np.clip(right, 0, n), np.full(points, n))
    with np.errstate(divide="ignore", invalid="ignore"):
        accuracy, skipped = right / n, by_model / (share * n)
    least = np.append(np.nan, confidence_n[order])[np.ceil(share * n - 1e-9).astype(int)]
    columns = {"share": share, "confidence": least, "accuracy": accuracy, "low": low, "high": high, "skipped": skipped}
    return pd.DataFrame(columns)


def can_skip(confidence_n: Floats, right_n: Floats, target: float) -> tuple[int, float]:
    """Return the largest number of items, most certain first, that are right on average at least as often as `target`.

    `right_n` are chances that the model's labels are right, in [0, 1]. The second number is the lowest confidence among
    the items; NaN if none can skip.
    """
    order, ends = _most_certain_first(confidence_n)
    total = np.append(0.0, np.cumsum(right_n[order]))[ends]
    enough = ends[(total >= target * ends - 1e-12 * len(confidence_n)) & (ends > 0)]
    many = int(enough.max(initial=0))
    return many, float(confidence_n[order[many - 1]]) if many else float("nan")


def _most_certain_first(confidence_n: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return items by falling confidence, and the numbers of items after which it changes (0 and N too)."""
    order = np.argsort(-confidence_n, kind="stable")
    falls = np.flatnonzero(np.diff(confidence_n[order]) < 0) + 1
    return order, np.unique(np.concatenate(([0], falls, [len(order)])))
