"""Matrix scaling (Guo, Pleiss, Sun & Weinberger 2017) with a ridge off the diagonal, maximum a posteriori.

    c(p)  =  softmax(W log p + b)        W_jj = 1 / T_j        W_ij ~ N(0, off²)  for i != j

T and b are as in vector scaling. Slopes off the diagonal let the probability of one class inform another: "cat" at 0.3
may mean a dog more often than "truck" at 0.3 does. J² numbers need data; as `off` goes to 0 this is `VectorScaling`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Floats
from hitl.models.calibration.affine import off_diagonal
from hitl.models.calibration.vector_scaling import VectorScaling
from hitl.models.numerics.checks import require_positive


@dataclass(frozen=True)
class MatrixScaling(VectorScaling):
    """Full matrix of slopes; `off` > 0 is the standard deviation of those off the diagonal.

    The other settings are those of `VectorScaling`.

    Example:
        >>> from hitl.models.calibration import MatrixScaling
        >>> MatrixScaling().fit([[0.9, 0.1], [0.8, 0.2]], truth=[0, 1]).apply([[0.5, 0.5]]).shape
        (1, 2)
    """

    off: float = 0.01

    def __post_init__(self) -> None:
        VectorScaling.__post_init__(self)
        require_positive(self, "off")

    def start(self, n_classes: int) -> Floats:
        """Return zeros: the theta of `VectorScaling`, then W in units of `off`, whose diagonal is unused."""
        return np.zeros(1 + 2 * n_classes + n_classes * n_classes)

    def parameters(self, theta: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """Return (J, J) slopes and (J,) shifts."""
        slope_ij, shift_j = VectorScaling.parameters(self, theta, n_classes)
        return slope_ij + self.off * off_diagonal(theta[1 + 2 * n_classes :].reshape(n_classes, n_classes)), shift_j

    def _by_theta(self, slope_ij: Floats, by_slope_ij: Floats, by_intercept_j: Floats) -> Floats:
        by_vector = VectorScaling._by_theta(self, slope_ij, by_slope_ij, by_intercept_j)
        return np.append(by_vector, self.off * off_diagonal(by_slope_ij))
