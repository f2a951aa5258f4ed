"""Temperature scaling (Guo, Pleiss, Sun & Weinberger 2017), by maximum likelihood or a posteriori.

    c(p)[j]  ∝  p_j^(1/T)        maximize  sum_nj q_nj log c(p_n)[j]  +  log N(log T; mean, sd²)

T > 1: the model was overconfident. The order of the classes never changes. The prior counts once, added to the sum of
the log likelihoods; without it ten items that the model has right make it certain (T at its bound, 0.02).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from hitl.annotations import Floats
from hitl.models.calibration.calibrator import checked, floored_log, known_rows
from hitl.models.calibration.temperature import LogTemperature, map_temperatures


@dataclass(frozen=True, slots=True)
class Temperature:
    """Temperature, > 0."""

    temperature: float

    def apply(self, probabilities: npt.ArrayLike) -> Floats:
        """Return (N, J) probabilities to the power 1/T, renormalised."""
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
    (temperature,) = map_temperatures(
        log_p_nj[None],
        q_nj / weight_n[:, None],
        prior or LogTemperature(),
        weight_n=weight_n,
        prior_weight=0.0 if prior is None else 1.0,
        tolerance=1e-5,
    )
    return float(temperature)


def tempered(log_p_nj: Floats, temperature: float) -> Floats:
    """Return (N, J) softmax(log p / T)."""
    p_nj: Floats = softmax(log_p_nj * (1 / np.float64(temperature)), axis=1)
    return p_nj
