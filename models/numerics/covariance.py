"""Covariance of a Gaussian process over features: squared exponential, and a constant that all items share.

    k(x, x') = s^2 exp( -1/2 sum_d (x_d - x'_d)^2 / l_d^2 )  +  1 + s^2

Isotropic: one length l; automatic relevance determination (ARD): one length per feature, long if it is irrelevant.

The constant is the latent mean c ~ N(0, 1 + s^2). With a probit link the share of the class is then
Phi(c / sqrt(1 + s^2)), which has a uniform prior for every s.

An item without features (NaN) shares the constant only: its exponential with all others is 0.

Lengths and scale have log-normal priors: ln s ~ N(0, 1), ln l_d ~ N(ln sqrt(D), 1). Features are standardized, so two
random items are sqrt(2 D) apart and l = sqrt(D) correlates them by exp(-1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hitl.annotations import Floats


@dataclass(frozen=True, eq=False, slots=True)
class SquaredExponential:
    """Kernel; `log_length` is (1,) if isotropic, (D,) for ARD."""

    log_scale: float
    log_length: Floats
    n_features: int

    @classmethod
    def expected(cls, n_features: int, ard: bool) -> SquaredExponential:
        """Build the kernel at the mode of its prior."""
        middle = 0.5 * np.log(max(n_features, 1))
        return cls(0.0, np.full(n_features if ard else 1, middle), n_features)

    @property
    def theta(self) -> Floats:
        """(1 + lengths,) logarithms of scale and lengths."""
        return np.append(self.log_scale, self.log_length)

    def at(self, theta: Floats) -> SquaredExponential:
        """Return the kernel with these logarithms."""
        return replace(self, log_scale=float(theta[0]), log_length=np.array(theta[1:]))

    @property
    def variance(self) -> float:
        """Variance k(x, x) of an item."""
        return 1 + 2 * float(np.exp(2 * self.log_scale))

    def between(self, x_md: Floats, x_nd: Floats) -> Floats:
        """Return (M, N) covariances between different items; rows of NaN are items without features."""
        k_mn = self._exponential(x_md, x_nd)
        scale = float(np.exp(2 * self.log_scale))
        k_mn *= scale
        k_mn += 1 + scale
        return k_mn

    def over(self, x_nd: Floats) -> Floats:
        """Return (N, N) covariances of these items."""
        k_nn = self.between(x_nd, x_nd)
        np.fill_diagonal(k_nn, self.variance)
        return k_nn

    def gradient(self, x_nd: Floats, k_nn: Floats, weight_nn: Floats) -> Floats:
        """Return (1 + lengths,) gradient sum_nm weight_nm dk_nm / dtheta, given `over(x_nd)` and symmetric weights."""
        scale = float(np.exp(2 * self.log_scale))
        of_scale = 2 * (float(np.vdot(weight_nn, k_nn)) - float(weight_nn.sum()))
        part_nn = k_nn - (1 + scale)
        part_nn *= weight_nn
        z_nd = np.where(np.isnan(x_nd), 0.0, x_nd) / np.exp(self.log_length)
        of_length = 2 * (part_nn.sum(axis=1) @ z_nd**2 - np.sum(z_nd * (part_nn @ z_nd), axis=0))
        return np.append(of_scale, of_length if self.log_length.size == z_nd.shape[1] else of_length.sum())

    def log_density(self) -> float:
        """Return the log density of scale and lengths, up to a constant."""
        return -0.5 * float(np.sum((self.theta - self._middle) ** 2))

    def log_density_gradient(self) -> Floats:
        """Return (1 + lengths,) gradient of the log density in theta."""
        return self._middle - self.theta

    @property
    def _middle(self) -> Floats:
        return np.append(0.0, np.full(self.log_length.size, 0.5 * np.log(max(self.n_features, 1))))

    def _exponential(self, x_md: Floats, x_nd: Floats) -> Floats:
        absent_m, absent_n = np.isnan(x_md).any(axis=1), np.isnan(x_nd).any(axis=1)
        length = np.exp(self.log_length)
        left, right = (np.where(np.isnan(x), 0.0, x) / length for x in (x_md, x_nd))
        half: Floats = left @ right.T
        half -= 0.5 * np.sum(left**2, axis=1)[:, None]
        half -= 0.5 * np.sum(right**2, axis=1)
        np.minimum(half, 0.0, out=half)
        np.exp(half, out=half)
        half[absent_m] = 0.0
        half[:, absent_n] = 0.0
        return half
