"""Vector scaling (Guo, Pleiss, Sun & Weinberger 2017), maximum a posteriori.

    c(p)[j]  ∝  exp( log p_j / T_j + b_j )        T_j = exp(u + d_j)

    u ~ N(mean, sd²)        d_j ~ N(0, spread²)        b_j ~ N(0, shift²)

A temperature and a shift for every class: for models that see one class too often, or are sure of some classes with
less reason than of others. Maximum likelihood sends b_j to minus infinity where a class is missing from the truth;
the prior does not, and draws the temperatures together where there is little data, so that with `spread` and
`shift` near 0 this is `TemperatureScaling`. Priors count once, beside the sum of the log likelihoods.
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
    """A temperature and a shift for every class.

    Attributes:
        prior: of the log temperature that the classes have in common.
        spread: standard deviation of a class's log temperature around it, > 0.
        shift: standard deviation of a class's shift, in nats, > 0.

    Example:
        >>> from hitl.models.calibration import VectorScaling
        >>> too_sure = [[0.99, 0.01], [0.98, 0.02], [0.97, 0.03], [0.02, 0.98]]
        >>> calibration = VectorScaling().fit(too_sure, truth=[0, 1, 0, 1])
        >>> bool(calibration.apply([[0.99, 0.01]])[0, 0] < 0.99)
        True
    """

    prior: LogTemperature = LogTemperature()
    spread: float = 0.1
    shift: float = 0.3

    def __post_init__(self) -> None:
        require_positive(self, "spread", "shift")

    def start(self, n_classes: int) -> Floats:
        """The prior's mode: the standardised (u, d, b) are 0."""
        return np.zeros(1 + 2 * n_classes)

    def parameters(self, theta: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """(J, J) slopes, 1 / T_j on the diagonal, and (J,) shifts b."""
        common_and_class = self.prior.sd * theta[0] + self.spread * theta[1 : 1 + n_classes]
        slope_j = np.exp(-self.prior.mean - common_and_class)
        return np.diag(slope_j), self.shift * theta[1 + n_classes : 1 + 2 * n_classes]

    def loss(self, theta: Floats, z_nj: Floats, q_nj: Floats) -> tuple[float, Floats]:
        """Minus the log posterior of the standardised theta, up to a constant, and its gradient."""
        slope_ij, intercept_j = self.parameters(theta, z_nj.shape[1])
        value, by_slope_ij, by_intercept_j = log_likelihood(z_nj, q_nj, slope_ij, intercept_j)
        return float(0.5 * theta @ theta - value), theta - self._by_theta(slope_ij, by_slope_ij, by_intercept_j)

    def _by_theta(self, slope_ij: Floats, by_slope_ij: Floats, by_intercept_j: Floats) -> Floats:
        """The gradient by theta, from those by the slopes and shifts."""
        by_log_j = -slope_ij.diagonal() * by_slope_ij.diagonal()
        by_common = [self.prior.sd * by_log_j.sum()]
        return np.concatenate([by_common, self.spread * by_log_j, self.shift * by_intercept_j])
