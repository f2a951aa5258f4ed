"""One temperature for all classes: scaling (Guo 2017), an ensemble (Zhang 2020), and the posterior of the temperature.

    scaling     c(p)[j]  ∝  p_j^(1/T) = p_T[j]      maximize  sum_nj q_nj log c(p_n)[j]  +  log N(log T; mean, sd²)
    ensemble    c(p)[j]  =  w_1 p_T[j]  +  w_2 p[j]  +  w_3 / J      w on the simplex, fitted after T
    Bayesian    c(p)[j]  =  sum_g v_g p_{T_g}[j]      v_g ∝ the posterior of u = log T at nodes u_g

If T > 1, the model was overconfident. The order of the classes never changes. Without the prior, ten items that the
model gets right make it certain (T at its lower bound, 0.02). The uniform part of the ensemble puts a floor under every
class. The posterior is smooth and falls off on both sides, so the trapezoid rule on equidistant u_g converges fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import softmax

from hitl.annotations import Floats
from hitl.models.calibration.calibrator import checked, floored_log, known_rows
from hitl.models.calibration.temperature import Likelihood, LogTemperature, best_temperatures
from hitl.models.numerics import kernels

NODES = 41
TAIL = 25.0
"""The quadrature ends where the log density has fallen by this much from its maximum, in nats."""

NEGLIGIBLE = 1e-10
"""Nodes of less weight are left out."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """Temperature, > 0."""

    temperature: float

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return (N, J) probabilities to the power 1/T, renormalized."""
        return tempered(floored_log(checked(probabilities)), self.temperature)


@dataclass(frozen=True, slots=True)
class TemperatureScaling:
    """One temperature for all classes; `prior` of log T, or None for maximum likelihood.

    Example:
        >>> from hitl.models.calibration import TemperatureScaling
        >>> too_sure = [[0.99, 0.01], [0.98, 0.02], [0.97, 0.03], [0.02, 0.98]]
        >>> calibration = TemperatureScaling().fit(too_sure, truth=[0, 1, 0, 1])
        >>> bool(calibration.apply([[0.99, 0.01]])[0, 0] < 0.99)
        True
    """

    prior: LogTemperature | None = LogTemperature()

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> Temperature:
        """See `Calibrator.fit`."""
        p_nj, q_nj = known_rows(probabilities, truth)
        return Temperature(best_temperature(floored_log(p_nj), q_nj, self.prior))


def best_temperature(log_p_nj: Floats, q_nj: Floats, prior: LogTemperature | None) -> float:
    """Return the temperature in [0.02, 100] that maximizes the objective, to 1e-5 in log T."""
    weight_n = q_nj.sum(axis=1)
    items = Likelihood.of(log_p_nj[None], q_nj / weight_n[:, None], weight_n=weight_n)
    weight = 0.0 if prior is None else 1.0
    (temperature,) = best_temperatures(items, 1, prior or LogTemperature(), prior_weight=weight, tolerance=1e-5)
    return float(temperature)


def tempered(log_p_nj: Floats, temperature: float) -> Floats:
    """Return (N, J) softmax(log p / T)."""
    return np.asarray(softmax(log_p_nj * (1 / np.float64(temperature)), axis=1))


@dataclass(frozen=True, slots=True)
class TemperatureEnsemble:
    """Temperature, > 0, and the weights of the tempered, the original and the uniform distribution, which sum to 1."""

    temperature: float
    weights: tuple[float, float, float]

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return the (N, J) weighted mean of the three distributions."""
        return np.asarray(_parts(checked(probabilities), self.temperature) @ np.array(self.weights))


@dataclass(frozen=True, slots=True)
class EnsembleTemperature:
    """Temperature and three weights; `prior` of log T, or None for maximum likelihood, as published.

    Example:
        >>> from hitl.models.calibration import EnsembleTemperature
        >>> EnsembleTemperature().fit([[0.9, 0.1], [0.8, 0.2]], truth=[0, 1]).apply([[0.5, 0.5]]).shape
        (1, 2)
    """

    prior: LogTemperature | None = LogTemperature()

    def fit(self, probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> TemperatureEnsemble:
        """See `Calibrator.fit`."""
        p_nj, q_nj = known_rows(probabilities, truth)
        temperature = best_temperature(floored_log(p_nj), q_nj, self.prior)
        known = q_nj > 0
        return TemperatureEnsemble(temperature, _best_weights(_parts(p_nj, temperature)[known], q_nj[known]))


def _parts(p_nj: Floats, temperature: float) -> Floats:
    """Return (N, J, 3) the three distributions; NaN where the model abstains."""
    uniform_nj = np.where(np.isnan(p_nj), np.nan, 1 / p_nj.shape[1])
    return np.stack([tempered(floored_log(p_nj), temperature), p_nj, uniform_nj], axis=2)


def _best_weights(part_mc: Floats, q_m: Floats) -> tuple[float, float, float]:
    """Return the weights on the simplex that maximize sum_m q_m log(part_m · w)."""

    def loss(w_c: Floats) -> tuple[float, Floats]:
        mixed_m = np.maximum(part_mc @ w_c, np.finfo(float).tiny)
        return float(-(q_m @ np.log(mixed_m)) / q_m.sum()), -(q_m / mixed_m) @ part_mc / q_m.sum()

    best = minimize(
        loss,
        np.full(3, 1 / 3),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-12, "maxiter": 200},
    )
    weight_c = np.clip(best.x, 0, 1)
    w1, w2, w3 = weight_c / weight_c.sum()
    return float(w1), float(w2), float(w3)


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
            log_likelihood = np.exp(-u) * linear - weight_n @ kernels.pooled(log_p_nj[None], slope_nm)[1]
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
