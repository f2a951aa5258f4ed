"""Vector scaling (Guo, Pleiss, Sun & Weinberger 2017), maximum a posteriori.

    c(p)[j]  ∝  exp( log p_j / T_j + b_j )        T_j = exp(u + d_j)

    u ~ N(mean, sd²)        d_j ~ N(0, spread²)        b_j ~ N(0, shift²)

One temperature and one shift per class: for models that predict a class too often, or are over-confident about some
classes only. Maximum likelihood sends b_j to minus infinity if a class is missing from the truth; the prior does not.
With little data it pulls the temperatures together: as `spread` and `shift` go to 0 this becomes `TemperatureScaling`.
The prior counts once, beside the sum of the log likelihoods.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Floats
from hitl.models.calibration.affine import AffineCalibrator, log_likelihood
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.numerics.checks import require_positive


@dataclass(frozen=True)
class VectorScaling(AffineCalibrator):
    """One temperature and one shift per class.

    Attributes:
        prior: of the log temperature u that all classes share.
        spread: standard deviation of a class's log temperature around u, > 0.
        shift: standard deviation of a class's shift, in nats, > 0.

    Example:
        >>> from hitl.models.calibration import VectorScaling
        >>> VectorScaling().fit([[0.9, 0.1], [0.8, 0.2]], truth=[0, 1]).apply([[0.5, 0.5]]).shape
        (1, 2)
    """

    prior: LogTemperature = LogTemperature()
    spread: float = 0.1
    shift: float = 0.3

    def __post_init__(self) -> None:
        require_positive(self, "spread", "shift")

    def start(self, n_classes: int) -> Floats:
        """Return the prior's mode: theta holds u, d and b in units of their standard deviations."""
        return np.zeros(1 + 2 * n_classes)

    def parameters(self, theta: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """Return (J, J) slopes, 1 / T_j on the diagonal, and (J,) shifts b."""
        common_and_class = self.prior.sd * theta[0] + self.spread * theta[1 : 1 + n_classes]
        slope_j = np.exp(-self.prior.mean - common_and_class)
        return np.diag(slope_j), self.shift * theta[1 + n_classes : 1 + 2 * n_classes]

    def loss(self, theta: Floats, z_nj: Floats, q_nj: Floats) -> tuple[float, Floats]:
        """Return minus the log posterior of theta, up to a constant, and its gradient."""
        slope_ij, intercept_j = self.parameters(theta, z_nj.shape[1])
        value, by_slope_ij, by_intercept_j = log_likelihood(z_nj, q_nj, slope_ij, intercept_j)
        return float(0.5 * theta @ theta - value), theta - self._by_theta(slope_ij, by_slope_ij, by_intercept_j)

    def _by_theta(self, slope_ij: Floats, by_slope_ij: Floats, by_intercept_j: Floats) -> Floats:
        by_log_j = -slope_ij.diagonal() * by_slope_ij.diagonal()
        by_common = [self.prior.sd * by_log_j.sum()]
        return np.concatenate([by_common, self.spread * by_log_j, self.shift * by_intercept_j])
