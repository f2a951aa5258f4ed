"""Interface of calibrators: learn a map of probabilities from ground truth or soft labels, then apply it.

Of the items with a calibrated probability of 0.8 for a class, eight in ten belong to it. Most calibrators maximize

    sum_n sum_j q_nj log c(p_n)[j]

where q is one-hot at the truth, or soft: the probabilities of a consensus (see `CalibrateFromAnnotators`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.errors import BadEvidence
from hitl.tables.matrices import sum_to_one

FLOOR = 1e-12
"""Smallest probability, so that no model can rule out a class forever."""


class Calibration(Protocol):
    """Learned calibration.

    Example:
        >>> from hitl.models.calibration import Calibration, TemperatureScaling
        >>> learned: Calibration = TemperatureScaling().fit([[0.99, 0.01], [0.98, 0.02]], truth=[0, 1])
        >>> learned.apply([[0.5, 0.5]]).tolist()
        [[0.5, 0.5]]
    """

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return (N, J) calibrated probabilities; rows sum to 1, a row of NaN stays NaN."""
        ...


class Calibrator(Protocol):
    """Calibration method: a frozen dataclass of settings whose `fit` keeps no state.

    Example:
        >>> from hitl.models.calibration import Calibrator, IMax, TemperatureScaling
        >>> calibrators: list[Calibrator] = [TemperatureScaling(), IMax(bins=5)]
        >>> [c.fit([[0.9, 0.1], [0.4, 0.6]], truth=[0, 1]).apply([[0.5, 0.5]]).shape for c in calibrators]
        [(1, 2), (1, 2)]
    """

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> Calibration:
        """Learn from (N, J) probabilities and (N,) class codes, -1 where unknown, or (N, J) soft labels.

        Soft labels are at least 0. A row sums to 1 or to the weight of the item, and to 0 if its truth is unknown.
        Rows of NaN and rows without ground truth are skipped. Raise BadEvidence if no row is left.
        """
        ...


def known_rows(probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return (n, J) normalized probabilities and (n, J) soft labels of the rows that have both.

    Raise BadEvidence, naming the row, for invalid distributions or class codes, and if no row is left.
    """
    p_nj = checked(probabilities)
    q_nj = _soft_labels(np.asarray(truth), *p_nj.shape)
    counts_n = ~np.isnan(p_nj[:, 0]) & (q_nj.sum(axis=1) > 0)
    if not counts_n.any():
        raise BadEvidence("calibration needs items with both probabilities and labels; found none")
    return p_nj[counts_n], q_nj[counts_n]


def checked(probabilities: npt.ArrayLike, n_classes: int | None = None) -> Floats:
    """Return (N, J) exactly normalized distributions, NaN without a prediction. Raise BadEvidence for other rows or J.

    `n_classes`: the expected J; None: any above 1.
    """
    p_nj = np.array(probabilities, dtype=np.float64)
    if p_nj.ndim != 2 or p_nj.shape[1] < 2 or n_classes not in (None, p_nj.shape[1]):
        columns = "J > 1" if n_classes is None else str(n_classes)
        raise BadEvidence(f"probabilities: expected shape (N, {columns}), got {p_nj.shape}")
    total_n = p_nj.sum(axis=1)
    wrong_n = ~((p_nj >= 0).all(axis=1) & sum_to_one(p_nj)) & ~np.isnan(p_nj).all(axis=1)
    if wrong_n.any():
        row = int(np.flatnonzero(wrong_n)[0])
        raise BadEvidence(f"probabilities: row {row} is {p_nj[row]}; expected a distribution, or NaN for no prediction")
    p_nj /= total_n[:, None]
    return p_nj


def floored_log(p_nj: Floats) -> Floats:
    """Return ln max(p, FLOOR); NaN stays NaN."""
    log_p_nj: Floats = np.log(np.maximum(p_nj, FLOOR))
    return log_p_nj


def _soft_labels(truth: npt.NDArray[np.generic], n_items: int, n_classes: int) -> Floats:
    if truth.shape == (n_items, n_classes) and n_items > 0:
        q_nj = truth.astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(q_nj) & (q_nj >= 0)).all(axis=1))
        if wrong.size:
            raise BadEvidence(f"truth: row {wrong[0]} is {truth[wrong[0]]}; expected soft labels of at least 0")
        return q_nj
    if truth.shape != (n_items,) or not np.issubdtype(truth.dtype, np.integer):
        shapes = f"({n_items},) class codes or ({n_items}, {n_classes}) soft labels"
        raise BadEvidence(f"truth: expected {shapes}, got {truth.dtype} {truth.shape}")
    codes = truth.astype(np.int64)
    wrong = np.flatnonzero((codes < -1) | (codes >= n_classes))
    if wrong.size:
        raise BadEvidence(f"truth: row {wrong[0]} is {codes[wrong[0]]}; expected -1 <= code < {n_classes}")
    one_hot: Floats = np.vstack([np.eye(n_classes), np.zeros(n_classes)])[codes]
    return one_hot
