"""Isotonic calibration (Zadrozny & Elkan 2002): a rising function per class, then renormalised.

    minimize  sum_n (q_nj - f_j(p_nj))²   over rising f_j            c(p)[j]  ∝  (n f_j(p_j) + doubt p_j) / (n + doubt)

Each class is fitted against the rest by pooling adjacent violators and interpolated between the n items. It follows any
rising shape and needs hundreds of items per class. Its steps would end at exactly 0 and 1, which no data can prove: one
more item of unknown class (1/J each) is added at either end. The model's own probability, worth `doubt` items, keeps
the order of items on the same step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from hitl.annotations import Floats
from hitl.models.calibration.calibrator import checked, known_rows
from hitl.models.numerics.checks import check_settings


@dataclass(frozen=True, eq=False)
class Isotonic:
    """Rising function of the probability of each class.

    Attributes:
        knots: for each class (X,) rising probabilities and the (X,) values of f_j there.
        word: weight of the model's own probability, in (0, 1).
    """

    knots: tuple[tuple[Floats, Floats], ...]
    word: float

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return (N, J) f_j(p_j) mixed with p_j, renormalised."""
        p_nj = checked(probabilities, len(self.knots))
        f_nj = np.stack([np.interp(p_nj[:, j], *knots) for j, knots in enumerate(self.knots)], axis=1)
        f_nj = (1 - self.word) * f_nj + self.word * p_nj
        return np.asarray(f_nj / f_nj.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True)
class IsotonicCalibration:
    """Rising function per class; the model's own probability counts as `doubt` > 0 items.

    Example:
        >>> from hitl.models.calibration import IsotonicCalibration
        >>> IsotonicCalibration().fit([[0.9, 0.1], [0.8, 0.2]], truth=[0, 1]).apply([[0.5, 0.5]]).shape
        (1, 2)
    """

    doubt: float = 10.0

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> Isotonic:
        """See `Calibrator.fit`."""
        p_nj, q_nj = known_rows(probabilities, truth)
        weight_n = q_nj.sum(axis=1)
        knots = tuple(_rising(p_nj[:, j], q_nj[:, j], weight_n, 1 / q_nj.shape[1]) for j in range(q_nj.shape[1]))
        return Isotonic(knots, float(self.doubt / (weight_n.sum() + self.doubt)))


def _rising(p_n: Floats, q_n: Floats, weight_n: Floats, guess: float) -> tuple[Floats, Floats]:
    """Fit the rising function of p nearest to q / weight, with one more item at either end."""
    p, place = np.unique(np.append(p_n, [p_n.min(), p_n.max()]), return_inverse=True)
    weight = np.bincount(place, np.append(weight_n, [1.0, 1.0]))
    mean = np.bincount(place, np.append(q_n, [guess, guess])) / weight
    return p, isotonic_regression(mean, weights=weight).x
