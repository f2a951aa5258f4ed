"""Affine maps of log probabilities: vector and matrix scaling (Guo 2017), Dirichlet calibration (Kull 2019).

    c(p)  =  softmax(W log p + b)        W (J, J), b (J,)

    L(W, b) = sum_n sum_j q_nj log c(p_n)[j]        dL/dW = R' Z        dL/db = R' 1
    R = q - (sum_j q_nj) c(p_n)                     Z = log p

L is concave in (W, b). The methods differ in which W they allow and how they regularize it:

    vector       W = diag(1 / T_j), T_j = exp(u + d_j)     u ~ N(mean, sd²)    d_j ~ N(0, spread²)    b_j ~ N(0, shift²)
    matrix       in addition W_ij ~ N(0, off²) for i != j
    Dirichlet    minimize  -L / N  +  off / (J (J-1)) sum_{i != j} W_ij²  +  intercept / J sum_j b_j²         (ODIR)

Vector and matrix scaling maximize L plus the log priors, and become `TemperatureScaling` as spread, shift and off go to
0. Dirichlet calibration regularizes the mean of the log losses, which suits thousands of items. With only tens of
items, nothing regularizes the diagonal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from hitl.annotations import Floats
from hitl.models.calibration.calibrator import checked, floored_log, known_rows
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.numerics.checks import check_settings

OPTIONS = {"maxiter": 1000, "maxfun": 2000, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-7}


@dataclass(frozen=True, eq=False)
class Affine:
    """Slopes W (J, J) and intercepts b (J,); W = identity / T is temperature scaling."""

    slope_ij: Floats
    intercept_j: Floats

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return (N, J) softmax(W log p + b)."""
        z_nj = floored_log(checked(probabilities, self.intercept_j.size))
        return np.asarray(softmax(z_nj @ self.slope_ij.T + self.intercept_j, axis=1))


class AffineCalibrator(ABC):
    """Family of affine maps with parameters theta, and a smooth loss to choose among them."""

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> Affine:
        """See `Calibrator.fit`; L-BFGS minimizes the loss."""
        p_nj, q_nj = known_rows(probabilities, truth)
        z_nj, n_classes = floored_log(p_nj), p_nj.shape[1]
        best = minimize(self.loss, self.start(n_classes), (z_nj, q_nj), jac=True, method="L-BFGS-B", options=OPTIONS)
        return Affine(*self.parameters(best.x, n_classes))

    @abstractmethod
    def start(self, n_classes: int) -> Floats:
        """Return the first theta."""

    @abstractmethod
    def parameters(self, theta: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """Return (J, J) slopes W and (J,) intercepts b."""

    @abstractmethod
    def loss(self, theta: Floats, z_nj: Floats, q_nj: Floats) -> tuple[float, Floats]:
        """Return the loss and its gradient, given log probabilities and soft labels."""


def log_likelihood(z_nj: Floats, q_nj: Floats, slope_ij: Floats, intercept_j: Floats) -> tuple[float, Floats, Floats]:
    """Return L and its gradients by W (J, J) and b (J,)."""
    log_c_nj = log_softmax(z_nj @ slope_ij.T + intercept_j, axis=1)
    residual_nj = q_nj - q_nj.sum(axis=1, keepdims=True) * np.exp(log_c_nj)
    return float((q_nj * log_c_nj).sum()), residual_nj.T @ z_nj, residual_nj.sum(axis=0)


def off_diagonal(matrix: Floats) -> Floats:
    """Return a square matrix with zeros on its diagonal."""
    return matrix - np.diag(matrix.diagonal())


@dataclass(frozen=True)
class VectorScaling(AffineCalibrator):
    """One temperature and one shift per class.

    Attributes:
        prior: prior of the log temperature u that all classes share.
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
        check_settings(self)

    def start(self, n_classes: int) -> Floats:
        """Return the prior's mode, 0: theta holds u - mean, d and b in units of their standard deviations."""
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

    def start(self, n_classes: int) -> Floats:
        """Return zeros: theta holds that of `VectorScaling`, then W in units of `off`, whose diagonal is unused."""
        return np.zeros(1 + 2 * n_classes + n_classes * n_classes)

    def parameters(self, theta: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """Return (J, J) slopes and (J,) shifts."""
        slope_ij, shift_j = VectorScaling.parameters(self, theta, n_classes)
        return slope_ij + self.off * off_diagonal(theta[1 + 2 * n_classes :].reshape(n_classes, n_classes)), shift_j

    def _by_theta(self, slope_ij: Floats, by_slope_ij: Floats, by_intercept_j: Floats) -> Floats:
        by_vector = VectorScaling._by_theta(self, slope_ij, by_slope_ij, by_intercept_j)
        return np.append(by_vector, self.off * off_diagonal(by_slope_ij))


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
        check_settings(self)

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
