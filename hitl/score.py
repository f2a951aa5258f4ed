"""Score (N, J) probabilities against the (N,) codes of the true classes.

Example:
    >>> import numpy as np
    >>> import hitl
    >>> labels = {"item": ["a", "a", "b"], "annotator": ["ann", "bob", "ann"], "label": ["cat", "cat", "dog"]}
    >>> hitl.score.accuracy(hitl.combine(labels).probabilities, np.array([0, 1]))
    1.0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtri

from hitl.annotations import Floats, Ints


@dataclass(frozen=True, eq=False)
class Reliability:
    """Data of a reliability diagram: B bins with equal numbers of items, from the least to the most confident items.

    Attributes:
        confidence: (B,) mean probability of the most probable class, in [0, 1].
        accuracy: (B,) share of items whose most probable class is true, in [0, 1].
        count: (B,) number of items, > 0, equal up to one item.
        low, high: (B,) ends of the Wilson interval of the accuracy.
    """

    confidence: Floats
    accuracy: Floats
    count: Ints
    low: Floats
    high: Floats


def accuracy(probabilities: Floats, truth: Ints) -> float:
    """Return the share of items whose most probable class is true, in [0, 1]; k tied classes count 1/k."""
    return float(right(probabilities, truth).mean())


def right(probabilities: Floats, truth: Ints) -> Floats:
    """Return (N,) 1 if the most probable class is true, else 0; k tied classes count 1/k."""
    top = probabilities >= probabilities.max(axis=1, keepdims=True) - 1e-12
    credit: Floats = top[np.arange(len(truth)), truth] / top.sum(axis=1)
    return credit


def log_loss(probabilities: Floats, truth: Ints, floor: float = 1e-15) -> float:
    """Return the mean negative log probability of the truth, in nats. Probabilities below `floor` count as `floor`."""
    chosen = probabilities[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(chosen, floor)).mean())


def calibration_error(probabilities: Floats, truth: Ints, bins: int = 15) -> float:
    """Return the expected calibration error of the most probable class, in [0, 1]; k tied classes count 1/k.

    The items are divided by confidence into bins with equal numbers of items.
    """
    return _equal_mass_gap(probabilities.max(axis=1), right(probabilities, truth), bins)


def reliability(probabilities: Floats, truth: Ints, bins: int = 15, level: float = 0.95) -> Reliability:
    """Compute accuracy and confidence of the most probable class in each bin; k tied classes count 1/k.

    The mean of |accuracy - confidence| over items equals `calibration_error` with the same `bins`. If there are fewer
    items than `bins`, each item is a bin. `level`: probability that an interval covers the accuracy.
    """
    sure, credit = probabilities.max(axis=1), right(probabilities, truth)
    parts = _equal_mass(sure, bins)
    count = np.array([len(part) for part in parts], dtype=np.int32)
    hit = np.array([credit[part].mean() for part in parts])
    return Reliability(np.array([sure[part].mean() for part in parts]), hit, count, *wilson_interval(hit, count, level))


def wilson_interval(share: Floats, count: Ints | Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return low and high ends, in [0, 1], of Wilson's interval for a probability of success.

    `share`: share of successes among `count` > 0 trials. `level`: probability that the interval covers the probability.
    """
    z = ndtri(0.5 + level / 2)
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def beta_interval(mean: Floats, variance: Floats, answers: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return low and high ends of the central 95 % intervals of Beta distributions with these moments.

    A Beta interval never contains 0 or 1, even for an annotator with only right answers. So an end within half of one
    of these `answers` from 0 or 1 is set to 0 or 1.
    """
    half = 0.5 / np.asarray(answers)
    strength = np.maximum(mean * (1 - mean) / np.maximum(variance, 1e-12) - 1, 1e-6)
    a, b = mean * strength, (1 - mean) * strength
    low, high = betaincinv(a, b, 0.025), betaincinv(a, b, 0.975)
    return np.where(low < half, 0.0, low), np.where(high > 1 - half, 1.0, high)


def bootstrap_interval(
    measure: Callable[[Floats, Ints], float],
    probabilities: Floats,
    truth: Ints,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return low and high ends of the percentile interval of a measure, over `draws` resamples of the items.

    Resamples in which the measure is NaN do not count. The interval of a calibration error is too high if calibration
    is good, because such an error is never negative and tends to be larger in a resample than in the data.
    """
    rng = np.random.default_rng(seed)
    rows = (rng.integers(len(truth), size=len(truth)) for _ in range(draws))
    values = [measure(probabilities[row], truth[row]) for row in rows]
    low, high = np.nanquantile(values, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def classwise_calibration_error(probabilities: Floats, truth: Ints, bins: int = 15) -> float:
    """Return the mean over classes j of the calibration error of "the item is of class j", in [0, 1]."""
    gaps = [
        _equal_mass_gap(probabilities[:, j], (truth == j).astype(float), bins) for j in range(probabilities.shape[1])
    ]
    return float(np.mean(gaps))


def _equal_mass_gap(predicted: Floats, happened: Floats, bins: int) -> float:
    if not len(predicted):
        return float("nan")
    parts = _equal_mass(predicted, bins)
    gaps = [len(part) * abs(predicted[part].mean() - happened[part].mean()) for part in parts]
    return float(sum(gaps) / len(predicted))


def _equal_mass(predicted: Floats, bins: int) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each bin, lowest predictions first."""
    order = np.argsort(predicted, kind="stable")
    return np.array_split(order, min(bins, len(order))) if len(order) else []
