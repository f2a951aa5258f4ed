"""Matrix scaling (Guo, Pleiss, Sun & Weinberger 2017) with a ridge off the diagonal, maximum a posteriori.

    c(p)  =  softmax(W log p + b)        W_jj = 1 / T_j        W_ij ~ N(0, off²)  for i != j

and the rest as in vector scaling, T_j = exp(u + d_j), u ~ N(mean, sd²), d_j ~ N(0, spread²), b_j ~ N(0, shift²). What
the model says of one class may tell of another: "cat" at 0.3 means a dog more often than "truck" at 0.3 does. J²
numbers need data; with `off` near 0 this is `VectorScaling`. Priors count once, beside the sum of the log likelihoods.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.calibration.affine import Affine, log_likelihood, minimised
from hitl.models.calibration.calibrator import floored_log, known_rows
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.numerics.checks import require_between


@dataclass(frozen=True, slots=True)
class MatrixScaling:
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

    prior: LogTemperature = LogTemperature()
    spread: float = 0.1
    shift: float = 0.3
    off: float = 0.01

    def __post_init__(self) -> None:
        require_between("spread", self.spread, 0)
        require_between("shift", self.shift, 0)
        require_between("off", self.off, 0)

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> Affine:
        """See `Calibrator.fit`."""
        p_nj, q_nj = known_rows(probabilities, truth)
        z_nj, n_classes = floored_log(p_nj), p_nj.shape[1]
        start = np.zeros(1 + 2 * n_classes + n_classes * n_classes)
        theta = minimised(lambda theta: self.loss(theta, z_nj, q_nj), start)
        return Affine(*self._parameters(theta, n_classes))

    def loss(self, theta: Floats, z_nj: Floats, q_nj: Floats) -> tuple[float, Floats]:
        """Minus the log posterior of the standardised (u, d, b, W off its diagonal), and its gradient.

        The diagonal of the last is there and does nothing.
        """
        slope_ij, intercept_j = self._parameters(theta, z_nj.shape[1])
        value, by_slope_ij, by_intercept_j = log_likelihood(z_nj, q_nj, slope_ij, intercept_j)
        by_log_j = -slope_ij.diagonal() * by_slope_ij.diagonal()
        np.fill_diagonal(by_slope_ij, 0)
        by_common = [self.prior.sd * by_log_j.sum()]
        by_theta = np.concatenate(
            [by_common, self.spread * by_log_j, self.shift * by_intercept_j, self.off * by_slope_ij.ravel()]
        )
        return float(0.5 * theta @ theta - value), theta - by_theta

    def _parameters(self, theta: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """(J, J) slopes and (J,) shifts."""
        spread_j, shift_j, off = np.split(theta[1:], [n_classes, 2 * n_classes])
        slope_ij = self.off * off.reshape(n_classes, n_classes)
        np.fill_diagonal(slope_ij, np.exp(-self.prior.mean - self.prior.sd * theta[0] - self.spread * spread_j))
        return slope_ij, self.shift * shift_j
