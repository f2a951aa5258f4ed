"""Bayesian temperature scaling: integrate over the posterior of log T by quadrature.

    p(u | D)  ∝  N(u; mean, sd²)  prod_nj p_{e^u}(j | n)^q_nj              u = log T
    c(p)[j]   =  integral  p(u | D)  softmax(e^-u log p)[j]  du  =  sum_g v_g softmax(e^-u_g log p)[j]

The integrand is smooth and falls off on both sides, so the trapezoid rule on equidistant u_g, from tail to tail of the
posterior, converges faster than any power of the spacing. With much data this is temperature scaling; with little, the
mean over T stays less certain than the best T does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.calibration.calibrator import checked, floored_log, known_rows
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.calibration.temperature_scaling import best_temperature, tempered
from hitl.models.numerics import kernels

NODES = 41
TAIL = 25.0
"""Fall of the log density, in nats, at which the quadrature ends."""

NEGLIGIBLE = 1e-10
"""Nodes of less weight are left out."""


@dataclass(frozen=True, eq=False)
class TemperaturePosterior:
    """(G,) rising temperatures > 0, and their (G,) weights, which sum to 1."""

    temperature_g: Floats
    weight_g: Floats

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return the (N, J) mean of the tempered probabilities under the posterior."""
        log_p_nj = floored_log(checked(probabilities))
        mean_nj = np.zeros_like(log_p_nj)
        for temperature, weight in zip(self.temperature_g, self.weight_g, strict=True):
            mean_nj += weight * tempered(log_p_nj, temperature)
        return mean_nj

    @property
    def log_mean(self) -> float:
        """Posterior mean of log T."""
        return float(self.weight_g @ np.log(self.temperature_g))

    @property
    def log_sd(self) -> float:
        """Posterior standard deviation of log T."""
        return float(np.sqrt(self.weight_g @ (np.log(self.temperature_g) - self.log_mean) ** 2))


@dataclass(frozen=True, slots=True)
class BayesianTemperature:
    """One temperature for all classes, integrated over; `prior` of log T.

    Example:
        >>> from hitl.models.calibration import BayesianTemperature
        >>> BayesianTemperature().fit([[0.9, 0.1], [0.8, 0.2]], truth=[0, 1]).apply([[0.5, 0.5]]).shape
        (1, 2)
    """

    prior: LogTemperature = LogTemperature()

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> TemperaturePosterior:
        """See `Calibrator.fit`."""
        p_nj, q_nj = known_rows(probabilities, truth)
        log_p_nj = floored_log(p_nj)
        weight_n, linear = q_nj.sum(axis=1), float((q_nj * log_p_nj).sum())

        def log_density(u: float) -> float:
            slope_nm = np.full((len(log_p_nj), 1), np.exp(-u))
            log_likelihood = np.exp(-u) * linear - weight_n @ kernels.log_normalisers(log_p_nj[None], slope_nm)
            return float(log_likelihood + self.prior.log_density(np.array([np.exp(u)])))

        mode = float(np.log(best_temperature(log_p_nj, q_nj, self.prior)))
        u_g = np.linspace(*_support(log_density, mode, self.prior.sd), NODES)
        log_v_g = np.array([log_density(u) for u in u_g])
        v_g = np.exp(log_v_g - log_v_g.max())
        kept = v_g > NEGLIGIBLE * v_g.sum()
        return TemperaturePosterior(np.exp(u_g[kept]), v_g[kept] / v_g[kept].sum())


def _support(log_density: Callable[[float], float], mode: float, widest: float) -> tuple[float, float]:
    """Return the points on either side of the mode where the log density has fallen by about TAIL."""
    top, step = log_density(mode), 0.01
    curvature = (2 * top - log_density(mode - step) - log_density(mode + step)) / step**2
    sd = min(curvature**-0.5, widest) if curvature > 0 else widest
    ends = []
    for side in (-sd, sd):
        end = mode + 4 * side
        while top - log_density(end) < TAIL:
            end += side
        ends.append(end)
    return ends[0], ends[1]
