"""How good a consensus is, against known truth. Pure functions of (N, J) probabilities and (N,) truth codes."""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats, Ints


def accuracy(probabilities: Floats, truth: Ints) -> float:
    """Share of items whose most probable class is the truth, in [0, 1]; k tied classes count 1/k."""
    top = probabilities >= probabilities.max(axis=1, keepdims=True) - 1e-12
    right = top[np.arange(len(truth)), truth] / top.sum(axis=1)
    return float(right.mean())


def log_loss(probabilities: Floats, truth: Ints, floor: float = 1e-15) -> float:
    """Mean negative log probability of the truth, in nats; probabilities below `floor` count as `floor`."""
    chosen = probabilities[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(chosen, floor)).mean())


def brier(probabilities: Floats, truth: Ints) -> float:
    """Mean squared distance to the one-hot truth, in [0, 2]."""
    one_hot = np.eye(probabilities.shape[1])[truth]
    return float(((probabilities - one_hot) ** 2).sum(axis=1).mean())


def calibration_error(probabilities: Floats, truth: Ints, bins: int = 15) -> float:
    """Expected calibration error of the top class over equal-mass bins, in [0, 1]."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == truth
    return _equal_mass_gap(confidence, right.astype(float), bins)


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
