"""Matrix scaling (Guo, Pleiss, Sun & Weinberger 2017) with a ridge off the diagonal, maximum a posteriori.

    c(p)  =  softmax(W log p + b)        W_jj = 1 / T_j        W_ij ~ N(0, off²)  for i != j

and the rest as in vector scaling, T_j = exp(u + d_j), u ~ N(mean, sd²), d_j ~ N(0, spread²), b_j ~ N(0, shift²). What
the model says of one class may tell of another: "cat" at 0.3 means a dog more often than "truck" at 0.3 does. J²
numbers need data; with `off` near 0 this is `VectorScaling`. Priors count once, beside the sum of the log likelihoods.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Floats
from hitl.models.calibration.vector_scaling import VectorScaling
from hitl.models.numerics.checks import require_positive


@dataclass(frozen=True)
class MatrixScaling(VectorScaling):
    """A full matrix of slopes.

    Attributes:
        prior, spread, shift: as in `VectorScaling`.
        off: standard deviation of a slope off the diagonal, > 0.

    Example:
        >>> from hitl.models.calibration import MatrixScaling
        >>> too_sure = [[0.99, 0.01], [0.98, 0.02], [0.97, 0.03], [0.02, 0.98]]
        >>> calibration = MatrixScaling().fit(too_sure, truth=[0, 1, 0, 1])
        >>> bool(calibration.apply([[0.99, 0.01]])[0, 0] < 0.99)
        True
    """

    off: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "off")

    def start(self, n_classes: int) -> Floats:
        """Zeros: what `VectorScaling` has, and the standardised W; its diagonal is there and does nothing."""
        return np.zeros(1 + 2 * n_classes + n_classes * n_classes)

    def parameters(self, theta: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """(J, J) slopes and (J,) shifts."""
        slope_ij, shift_j = super().parameters(theta, n_classes)
        return slope_ij + self.off * _off_diagonal(theta[1 + 2 * n_classes :].reshape(n_classes, n_classes)), shift_j

    def _by_theta(self, slope_ij: Floats, by_slope_ij: Floats, by_intercept_j: Floats) -> Floats:
        by_vector = super()._by_theta(slope_ij, by_slope_ij, by_intercept_j)
        return np.append(by_vector, self.off * _off_diagonal(by_slope_ij))


def _off_diagonal(matrix: Floats) -> Floats:
    return matrix - np.diag(matrix.diagonal())
