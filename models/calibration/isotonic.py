"""Isotonic calibration (Zadrozny & Elkan 2002): for each class a rising step function, then renormalised.

    minimise  sum_n (q_nj - f_j(p_nj))²   over rising f_j            c(p)[j]  ∝  (n f_j(p_j) + doubt p_j) / (n + doubt)

one-vs-rest, by scikit-learn's pool-adjacent-violators, interpolated between the n items. It bends any way the data do
and needs hundreds of items a class. The steps end at exactly 0 and 1, which no data can prove: one more item is
thought to lie at either end, whose class is anybody's guess (1/J each). The model's own word, as `doubt` items, keeps
the order of what lies on one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.calibration.calibrator import checked, known_rows
from hitl.models.numerics.checks import require_positive


@dataclass(frozen=True, eq=False)
class Isotonic:
    """A rising function of the probability of each class.

    Attributes:
        functions: J fitted `sklearn.isotonic.IsotonicRegression`.
        word: weight of the model's own word, in (0, 1).
    """

    functions: tuple[Any, ...]
    word: float

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """(N, J) f_j(p_j) and the model's own word, renormalised."""
        p_nj = checked(probabilities, len(self.functions))
        predicts_n = ~np.isnan(p_nj[:, 0])
        if predicts_n.any():
            by_class = [function.predict(p_nj[predicts_n, j]) for j, function in enumerate(self.functions)]
            f_nj = (1 - self.word) * np.stack(by_class, axis=1) + self.word * p_nj[predicts_n]
            p_nj[predicts_n] = f_nj / f_nj.sum(axis=1, keepdims=True)
        return p_nj


@dataclass(frozen=True, slots=True)
class IsotonicCalibration:
    """A rising function for each class; `doubt`: how many items the model's own word counts as, > 0.

    Example:
        >>> from hitl.models.calibration import IsotonicCalibration
        >>> too_sure = [[0.99, 0.01], [0.98, 0.02], [0.97, 0.03], [0.02, 0.98]]
        >>> calibration = IsotonicCalibration().fit(too_sure, truth=[0, 1, 0, 1])
        >>> bool(calibration.apply([[0.99, 0.01]])[0, 0] < 0.99)
        True
    """

    doubt: float = 10.0

    def __post_init__(self) -> None:
        require_positive(self, "doubt")

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> Isotonic:
        """See `Calibrator.fit`."""
        p_nj, q_nj = known_rows(probabilities, truth)
        weight_n = q_nj.sum(axis=1)
        functions = tuple(_rising(p_nj[:, j], q_nj[:, j], weight_n, 1 / q_nj.shape[1]) for j in range(q_nj.shape[1]))
        return Isotonic(functions, float(self.doubt / (weight_n.sum() + self.doubt)))


def _rising(p_n: Floats, q_n: Floats, weight_n: Floats, guess: float) -> Any:
    """The rising function of p nearest to q / weight, with one more item at either end."""
    from sklearn.isotonic import IsotonicRegression  # half a second that nothing else here has to wait for

    function = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    x = np.append(p_n, [p_n.min(), p_n.max()])
    return function.fit(x, np.append(q_n / weight_n, [guess, guess]), np.append(weight_n, [1.0, 1.0]))
