"""Affine maps of log probabilities: what vector, matrix and Dirichlet scaling have in common.

    c(p)  =  softmax(W log p + b)        W (J, J), b (J,)

    L(W, b) = sum_n sum_j q_nj log c(p_n)[j]        dL/dW = R' Z        dL/db = R' 1
    R = q - (sum_j q_nj) c(p_n)                     Z = log p

Concave in (W, b). They differ in which W they allow and in what they ask of it.
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

MAX_ITERATIONS = 1000


@dataclass(frozen=True, eq=False)
class Affine:
    """An affine map of log probabilities.

    Attributes:
        slope_ij: (J, J) W; the identity times 1/T is temperature scaling.
        intercept_j: (J,) b.
    """

    slope_ij: Floats
    intercept_j: Floats

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """(N, J) softmax(W log p + b)."""
        z_nj = floored_log(checked(probabilities, self.intercept_j.size))
        mapped: Floats = softmax(z_nj @ self.slope_ij.T + self.intercept_j, axis=1)
        return mapped


class AffineCalibrator(ABC):
    """A family of affine maps, each a vector theta, and a smooth loss that says which one fits."""

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> Affine:
        """See `Calibrator.fit`; the loss is minimised by L-BFGS."""
        p_nj, q_nj = known_rows(probabilities, truth)
        z_nj, n_classes = floored_log(p_nj), p_nj.shape[1]
        options = {"maxiter": MAX_ITERATIONS, "maxfun": 2 * MAX_ITERATIONS, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-7}
        found = minimize(self.loss, self.start(n_classes), (z_nj, q_nj), jac=True, method="L-BFGS-B", options=options)
        return Affine(*self.parameters(found.x, n_classes))

    @abstractmethod
    def start(self, n_classes: int) -> Floats:
        """The theta from which the search begins."""

    @abstractmethod
    def parameters(self, theta: Floats, n_classes: int) -> tuple[Floats, Floats]:
        """(J, J) slopes W and (J,) intercepts b."""

    @abstractmethod
    def loss(self, theta: Floats, z_nj: Floats, q_nj: Floats) -> tuple[float, Floats]:
        """The loss of theta and its gradient, given log probabilities and soft labels."""


def log_likelihood(z_nj: Floats, q_nj: Floats, slope_ij: Floats, intercept_j: Floats) -> tuple[float, Floats, Floats]:
    """L, and its gradients by W (J, J) and b (J,)."""
    log_c_nj = log_softmax(z_nj @ slope_ij.T + intercept_j, axis=1)
    residual_nj = q_nj - q_nj.sum(axis=1, keepdims=True) * np.exp(log_c_nj)
    return float((q_nj * log_c_nj).sum()), residual_nj.T @ z_nj, residual_nj.sum(axis=0)
