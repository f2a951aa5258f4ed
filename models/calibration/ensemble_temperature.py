"""Ensemble temperature scaling (Zhang, Kailkhura & Han 2020).

    c(p)[j]  =  w_1 p_T[j]  +  w_2 p[j]  +  w_3 / J            w on the simplex

T is fitted first, as in `TemperatureScaling`. Then the weights maximize sum_nj q_nj log c(p_n)[j], a concave
problem in three numbers. The uniform part puts a floor under every class, for items on which a good model is entirely
wrong. The order of the classes never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from hitl.annotations import Floats
from hitl.models.calibration.calibrator import checked, floored_log, known_rows
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.calibration.temperature_scaling import best_temperature, tempered


@dataclass(frozen=True, slots=True)
class TemperatureEnsemble:
    """Temperature, > 0, and the weights of the tempered, the given and the uniform distribution (sum 1)."""

    temperature: float
    weights: tuple[float, float, float]

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return the (N, J) weighted mean of the three distributions."""
        mixed: Floats = _parts(checked(probabilities), self.temperature) @ np.array(self.weights)
        return mixed


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
