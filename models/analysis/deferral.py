"""How many items could skip annotators: the model decides where it is surest, annotators (and the model) the rest.

Items are sorted by the model's calibrated confidence, surest first. For every share that skips annotators

    accuracy(s) = ( sum over the surest s N items of right_model  +  sum over the rest of right_both ) / N

where "right" is a chance by the consensus, or 0 and 1 where the truth is known. Items of equal confidence cannot be
told apart, so they skip together; between such points the curve is what a random choice among them would give.

At a target accuracy a the largest number of items skip that are on average right at least that often: by the model's
own calibrated confidence, which takes no label but is only as good as the calibration; or by what annotators say of
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.analysis.proportions import wilson

POINTS = 101
"""Shares that are reported: 0, 1 %, ..., 100 %."""


@dataclass(frozen=True, eq=False)
class DeferralCurve:
    """Accuracy when the items the model is surest of skip annotators.

    Attributes:
        share: (P,) share of the items that skip, rising from 0 to 1.
        confidence: (P,) the least confidence among them; NaN where nothing skips.
        accuracy, low, high: (P,) of all items together, with its 95 % interval.
        skipped: (P,) accuracy of those that skip; NaN where nothing does.
    """

    share: Floats
    confidence: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    skipped: Floats


@dataclass(frozen=True)
class Skip:
    """What can skip annotators at a target.

    Attributes:
        target: mean accuracy wanted of the labels that the model gives alone.
        items: how many can skip.
        share: of all items.
        confidence: the least calibrated confidence among them; NaN where none can.
        right: how often they are right on average, >= target; NaN where none can.
    """

    target: float
    items: int
    share: float
    confidence: float
    right: float


def deferral_curve(confidence_n: Floats, alone_n: Floats, both_n: Floats, points: int = POINTS) -> DeferralCurve:
    """The curve of N items: the model's confidence, how right it is alone and with annotators, in [0, 1]."""
    n = len(confidence_n)
    order, ends = _from_the_surest(confidence_n)
    model = np.append(0.0, np.cumsum(alone_n[order]))[ends]
    people = both_n.sum() - np.append(0.0, np.cumsum(both_n[order]))[ends]
    share: Floats = np.linspace(0.0, 1.0, points, dtype=np.float64)
    by_model = np.interp(share * n, ends, model)
    right = by_model + np.interp(share * n, ends, people)
    low, high = wilson(np.clip(right, 0, n), np.full(points, n))
    with np.errstate(divide="ignore", invalid="ignore"):
        accuracy, skipped = right / n, by_model / (share * n)
    least = (
        np.append(np.nan, confidence_n[order])[np.ceil(share * n - 1e-9).astype(int)] if n else np.full(points, np.nan)
    )
    return DeferralCurve(share, least, accuracy, low, high, skipped)


def can_skip(confidence_n: Floats, right_n: Floats, target: float) -> Skip:
    """The largest number of items, surest first, that are on average right at least as often as `target`.

    `right_n`: how likely each model's label is right, in [0, 1]: the confidence itself, or by another account.
    """
    n = len(confidence_n)
    order, ends = _from_the_surest(confidence_n)
    total = np.append(0.0, np.cumsum(right_n[order]))[ends]
    enough = ends[(total >= target * ends - 1e-12 * n) & (ends > 0)]
    many = int(enough.max(initial=0))
    if not many:
        return Skip(target, 0, 0.0, float("nan"), float("nan"))
    chosen = order[:many]
    return Skip(target, many, many / n, float(confidence_n[chosen[-1]]), float(right_n[chosen].mean()))


def _from_the_surest(confidence_n: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Items by falling confidence, and the numbers of items after which the confidence changes (0 and N too)."""
    order = np.argsort(-confidence_n, kind="stable")
    falls = np.flatnonzero(np.diff(confidence_n[order]) < 0) + 1
    return order, np.unique(np.concatenate(([0], falls, [len(order)])))
