"""How good a consensus is, against known truth. Pure functions of (N, J) probabilities and (N,) truth codes."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from hitl.annotations import Floats, Ints


def accuracy(probabilities: Floats, truth: Ints) -> float:
    """Share of items whose most probable class is the truth, in [0, 1]; k tied classes count 1/k."""
    return float(right(probabilities, truth).mean())


def right(probabilities: Floats, truth: Ints) -> Floats:
    """(N,) whether the most probable class is the truth, in [0, 1]; k tied classes count 1/k."""
    top = probabilities >= probabilities.max(axis=1, keepdims=True) - 1e-12
    credit: Floats = top[np.arange(len(truth)), truth] / top.sum(axis=1)
    return credit


def log_loss(probabilities: Floats, truth: Ints, floor: float = 1e-15) -> float:
    """Mean negative log probability of the truth, in nats; probabilities below `floor` count as `floor`."""
    chosen = probabilities[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(chosen, floor)).mean())


def brier(probabilities: Floats, truth: Ints) -> float:
    """Mean squared distance to the one-hot truth, in [0, 2]."""
    one_hot = np.eye(probabilities.shape[1])[truth]
    return float(((probabilities - one_hot) ** 2).sum(axis=1).mean())


def calibration_error(probabilities: Floats, truth: Ints, bins: int = 15) -> float:
    """Expected calibration error of the top class over equal-mass bins, in [0, 1]; k tied classes count 1/k."""
    return _equal_mass_gap(probabilities.max(axis=1), right(probabilities, truth), bins)


def area_under_curve(probabilities: Floats, truth: Ints) -> float:
    """Mean over classes of the chance that an item of the class is ranked above one of another, in [0, 1].

    Classes that the truth never or always is do not count; nan where none is left.
    """
    areas = []
    for j in range(probabilities.shape[1]):
        is_j = truth == j
        positive = int(is_j.sum())
        if 0 < positive < len(truth):
            rank = rankdata(probabilities[:, j])
            areas.append((rank[is_j].sum() - positive * (positive + 1) / 2) / (positive * (len(truth) - positive)))
    return float(np.mean(areas)) if areas else float("nan")


def classwise_calibration_error(probabilities: Floats, truth: Ints, bins: int = 15) -> float:
    """Mean over classes of the calibration error of "is it class j", equal-mass bins, in [0, 1]."""
    gaps = [
        _equal_mass_gap(probabilities[:, j], (truth == j).astype(float), bins) for j in range(probabilities.shape[1])
    ]
    return float(np.mean(gaps))


def _equal_mass_gap(predicted: Floats, happened: Floats, bins: int) -> float:
    order = np.argsort(predicted, kind="stable")
    gap = 0.0
    for part in np.array_split(order, min(bins, len(order))):
        gap += len(part) * abs(predicted[part].mean() - happened[part].mean())
    return gap / len(order)
