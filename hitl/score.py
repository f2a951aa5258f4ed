"""Score a consensus against the truth, or (N, J) probabilities against the (N,) codes of the true classes.

The truth of a consensus is a dict of item -> label, a Series indexed by item, a table of item and label, or codes.
Items that only one of them has, and items with code -1, do not count. If no item counts, the result is NaN.

Example:
    >>> import hitl
    >>> labels = {"item": ["a", "a", "b"], "annotator": ["ann", "bob", "ann"], "label": ["cat", "cat", "dog"]}
    >>> hitl.score.accuracy(hitl.combine(labels), {"a": "cat", "b": "dog"})
    1.0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from hitl.annotations import Floats, Ints
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.formatting import listed
from hitl.tables.align import filled
from hitl.tables.columns import repeated, require_columns, with_names
from hitl.tables.in_memory import Truth, truth_table

Scored: TypeAlias = Floats | Consensus
Known: TypeAlias = "Ints | Truth"


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


def accuracy(probabilities: Scored, truth: Known) -> float:
    """Return the share of items whose most probable class is true, in [0, 1]; k tied classes count 1/k."""
    return _mean(right(probabilities, truth))


def right(probabilities: Scored, truth: Known) -> Floats:
    """Return, per item with a truth, 1 if the most probable class is true, else 0; k tied classes count 1/k."""
    p_nj, codes = known(probabilities, truth)
    top = p_nj >= p_nj.max(axis=1, keepdims=True) - 1e-12
    credit: Floats = top[np.arange(len(codes)), codes] / top.sum(axis=1)
    return credit


def log_loss(probabilities: Scored, truth: Known, floor: float = 1e-15) -> float:
    """Return the mean negative log probability of the truth, in nats. Probabilities below `floor` count as `floor`."""
    p_nj, codes = known(probabilities, truth)
    chosen = p_nj[np.arange(len(codes)), codes]
    return _mean(-np.log(np.maximum(chosen, floor)))


def calibration_error(probabilities: Scored, truth: Known, bins: int = 15) -> float:
    """Return the expected calibration error of the most probable class, in [0, 1]; k tied classes count 1/k.

    The items are divided by confidence into bins with equal numbers of items.
    """
    p_nj, codes = known(probabilities, truth)
    return _equal_mass_gap(p_nj.max(axis=1), right(p_nj, codes), bins)


def reliability(probabilities: Scored, truth: Known, bins: int = 15, level: float = 0.95) -> Reliability:
    """Compute accuracy and confidence of the most probable class in each bin; k tied classes count 1/k.

    The mean of `|accuracy - confidence|` over items equals `calibration_error` with the same `bins`. If there are fewer
    items than `bins`, each item is a bin. `level`: probability that an interval covers the accuracy.
    """
    p_nj, codes = known(probabilities, truth)
    sure, credit = p_nj.max(axis=1), right(p_nj, codes)
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


def bootstrap_interval(
    measure: Callable[[Floats, Ints], float],
    probabilities: Scored,
    truth: Known,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return low and high ends of the percentile interval of a measure, over `draws` resamples of the items.

    Resamples in which the measure is NaN do not count. The interval of a calibration error is too high if calibration
    is good, because such an error is never negative and tends to be larger in a resample than in the data.
    """
    p_nj, codes = known(probabilities, truth)
    if not len(codes):
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    rows = (rng.integers(len(codes), size=len(codes)) for _ in range(draws))
    values = [measure(p_nj[row], codes[row]) for row in rows]
    low, high = np.nanquantile(values, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def classwise_calibration_error(probabilities: Scored, truth: Known, bins: int = 15) -> float:
    """Return the mean over classes j of the calibration error of "the item is of class j", in [0, 1]."""
    p_nj, codes = known(probabilities, truth)
    gaps = [_equal_mass_gap(p_nj[:, j], (codes == j).astype(float), bins) for j in range(p_nj.shape[1])]
    return float(np.mean(gaps))


def known(probabilities: Scored, truth: Known) -> tuple[Floats, Ints]:
    """Return the probabilities and codes of the items whose truth is known. Raise BadInput for unusable truth."""
    codes: Any = truth
    if isinstance(probabilities, Consensus):
        if not isinstance(truth, np.ndarray):
            codes = _codes_in(probabilities, truth)
        probabilities = probabilities.probabilities
    codes, (n, j) = np.asarray(codes), probabilities.shape
    if codes.shape != (n,) or (n and (codes.dtype.kind not in "iu" or codes.max() >= j)):
        raise BadEvidence(
            f"truth: expected the code of a class for each of {n} items, from 0 to {j - 1}, or -1 where unknown; to "
            "give labels by item name, score the consensus instead of its probabilities"
        )
    rows = codes >= 0
    return (probabilities, codes) if rows.all() else (probabilities[rows], codes[rows])


def _codes_in(consensus: Consensus, truth: Truth) -> Ints:
    """Return (N,) codes of the true classes, -1 where unknown."""
    table = with_names(truth_table(truth, "item", "label"), ["item", "label"])
    require_columns(table, ["item", "label"], "truth")
    table = filled(table, "label")
    row_of, code_of = ({str(name): n for n, name in enumerate(names)} for names in (consensus.items, consensus.classes))
    items, labels = table["item"].to_pylist(), table["label"].to_pylist()
    twice, strange = repeated(items), next((label for label in labels if label not in code_of), None)
    if twice is not None:
        raise BadEvidence(f"truth: item {twice!r} appears twice; expected one label for each item")
    if strange is not None:
        raise BadEvidence(
            f"truth: {strange!r} is none of the classes {listed(consensus.classes)}; expected one of them"
        )
    codes = np.full(len(consensus), -1, np.int32)
    for item, label in zip(items, labels, strict=True):
        if item in row_of:
            codes[row_of[item]] = code_of[label]
    if (codes < 0).all():
        raise BadEvidence(f"truth: none of its {len(items)} items is in the consensus; expected the same item names")
    return codes


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


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
