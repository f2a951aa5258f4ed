"""Affine maps of log probabilities, shared by vector, matrix and Dirichlet scaling.

    c(p)  =  softmax(W log p + b)        W (J, J), b (J,)

    L(W, b) = sum_n sum_j q_nj log c(p_n)[j]        dL/dW = R' Z        dL/db = R' 1
    R = q - (sum_j q_nj) c(p_n)                     Z = log p

L is concave in (W, b). The three methods differ in which W they allow and how they regularize it.
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

OPTIONS = {"maxiter": 1000, "maxfun": 2000, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-7}


@dataclass(frozen=True, eq=False)
class Affine:
    """Slopes W (J, J) and intercepts b (J,); W = identity / T is temperature scaling."""

    slope_ij: Floats
    intercept_j: Floats

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return (N, J) softmax(W log p + b)."""
        z_nj = floored_log(checked(probabilities, self.intercept_j.size))
        mapped: Floats = softmax(z_nj @ self.slope_ij.T + self.intercept_j, axis=1)
        return mapped


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
