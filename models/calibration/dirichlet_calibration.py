"""Dirichlet calibration (Kull, Perello-Nieto, Kängsepp, Silva Filho, Song & Flach 2019) with ODIR.

If the probabilities of the items of each class are Dirichlet distributed, the posterior over the classes is

    c(p)  =  softmax(W log p + b)

fitted as published, with off-diagonal and intercept regularization:

    minimize  -1/N sum_nj q_nj log c(p_n)[j]  +  off / (J (J-1)) sum_{i != j} W_ij²  +  intercept / J sum_j b_j²

The mean of the log losses gives the regularization the same weight at every N. That suits thousands of items; with tens
nothing holds the diagonal. `MatrixScaling` is the same family with priors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Floats
from hitl.models.calibration.affine import AffineCalibrator, log_likelihood, off_diagonal
from hitl.models.numerics.checks import require_positive


@dataclass(frozen=True)
class DirichletCalibration(AffineCalibrator):
    """Full matrix of slopes, kept near a diagonal one.

    Attributes:
        off: regularization of the slopes off the diagonal, > 0.
        intercept: regularization of the intercepts, > 0.

    Example:
        >>> from hitl.models.calibration import DirichletCalibration
        >>> DirichletCalibration().fit([[0.9, 0.1], [0.8, 0.2]], truth=[0, 1]).apply([[0.5, 0.5]]).shape
        (1, 2)
    """

    off: float = 10.0
    intercept: float = 10.0

    def __post_init__(self) -> None:
        require_positive(self, "off", "intercept")

    def start(self, n_classes: int) -> Floats:
        """Return the identity map."""
        return np.append(np.eye(n_classes), np.zeros(n_classes))

    def parameters(self, theta: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """Return (J, J) slopes and (J,) intercepts, the two parts of theta."""
        slope, intercept_j = np.split(theta, [n_classes**2])
        return slope.reshape(n_classes, n_classes), intercept_j

    def loss(self, theta: Floats, z_nj: Floats, q_nj: Floats) -> tuple[float, Floats]:
        """Return the regularized mean log loss of (W, b) and its gradient."""
        n_classes = z_nj.shape[1]
        slope_ij, b_j = self.parameters(theta, n_classes)
        off_ij = off_diagonal(slope_ij)
        off, intercept = self.off / (n_classes * (n_classes - 1)), self.intercept / n_classes
        value, by_slope_ij, by_intercept_j = log_likelihood(z_nj, q_nj, slope_ij, b_j)
        n = q_nj.sum()
        gradient = np.append(2 * off * off_ij - by_slope_ij / n, 2 * intercept * b_j - by_intercept_j / n)
        return float(off * (off_ij**2).sum() + intercept * b_j @ b_j - value / n), gradient
