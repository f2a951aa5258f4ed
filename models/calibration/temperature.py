"""Temperature scaling by maximum a posteriori (Guo 2017; Kerrigan 2021, section 4).

    p_T[n, j] ∝ exp( 1/S_n sum_m log p_m[n, j] / T_m )        log T_m ~ N(mean, sd²)

where S_n models predict item n. The pool is a geometric mean, not a product, because models err together.

    maximize  sum_n w_n sum_j q_nj log p_T[n, j]  +  prior_weight * sum_m log N(log T_m)

The objective has the sum of the log likelihoods: with their mean, the prior would weigh as much as all the data at
every n. It is smooth in each log T, so Brent's method finds the optimum without gradients. Several models are fitted by
coordinate ascent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import require_between

LOWEST, HIGHEST = np.log(0.02), np.log(100.0)
"""Bounds of log T."""

WINDOW = 0.7
"""Half-width of the search interval around the start, in log T. It is doubled until the optimum is inside."""


@dataclass(frozen=True)
class LogTemperature:
    """Gaussian prior on log T; the mode of T is exp(mean) (1.65: networks tend to be over-confident).

    Example:
        >>> from hitl.models.calibration import LogTemperature
        >>> round(LogTemperature(mean=0.5).mode, 2)
        1.65
    """

    mean: float = 0.5
    sd: float = 0.5

    def __post_init__(self) -> None:
        require_between("temperature.mean", self.mean, -math.inf)
        require_between("temperature.sd", self.sd, 0)

    @property
    def mode(self) -> float:
        """exp(mean)."""
        return float(np.exp(self.mean))

    def log_density(self, temperature_m: Floats) -> float:
        """Return the log density of log T summed over models, up to a constant."""
        return float(-0.5 * np.sum(((np.log(temperature_m) - self.mean) / self.sd) ** 2))


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Terms of the likelihood of temperatures: one row per item; `+` appends the items of another shard.

    Attributes:
        log_p_mnj: (M, N, J) log probabilities, 0 where a model abstains.
        linear_nm: (N, M) expected log probability of the true class by each model, times the item's weight.
        predicts_nm: (N, M) True where a model predicts the item.
        weight_n: (N,) weights of the items.
    """

    log_p_mnj: Floats
    linear_nm: Floats
    predicts_nm: npt.NDArray[np.bool_]
    weight_n: Floats

    @classmethod
    def of(
        cls,
        log_p_mnj: Floats,
        q_nj: Floats,
        predicts_nm: npt.NDArray[np.bool_] | None = None,
        weight_n: Floats | None = None,
    ) -> Self:
        """Build the terms of items whose true classes are `q_nj` (N, J), one-hot or expected.

        By default all models predict all items, and weights are 1.
        """
        n_models, n_items, _ = log_p_mnj.shape
        weight_n = np.ones(n_items) if weight_n is None else weight_n
        predicts_nm = np.ones((n_items, n_models), dtype=bool) if predicts_nm is None else predicts_nm
        log_p_mnj = np.ascontiguousarray(log_p_mnj)
        linear_nm = np.einsum("nj,mnj->nm", q_nj, log_p_mnj) * weight_n[:, None]
        return cls(log_p_mnj, linear_nm, predicts_nm, weight_n)

    def __add__(self, other: Self) -> Self:
        log_p_mnj = np.concatenate((self.log_p_mnj, other.log_p_mnj), axis=1)
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("linear_nm", "predicts_nm", "weight_n"))
        return type(self)(log_p_mnj, *(np.concatenate(pair) for pair in pairs))


def best_temperatures(
    items: Likelihood,
    n_models: int,
    prior: LogTemperature,
    *,
    prior_weight: float = 1.0,
    start_m: Floats | None = None,
    tolerance: float = 1e-4,
) -> Floats:
    """Return the (M,) temperatures that maximize the objective above; `tolerance` is in log T."""

    def objective(log_t_m: Floats) -> float:
        weight_nm = pool_weights(items.predicts_nm, np.exp(log_t_m))
        normalisers = items.weight_n @ kernels.pooled(items.log_p_mnj, weight_nm)[1]
        likelihood = float(np.sum(items.linear_nm * weight_nm) - normalisers)
        return float(likelihood + prior_weight * prior.log_density(np.exp(log_t_m)))

    log_t_m = np.clip(np.full(n_models, prior.mean) if start_m is None else np.log(start_m), LOWEST, HIGHEST)
    for _ in range(50 if n_models > 1 else 1):
        before = log_t_m.copy()
        for m in range(n_models):
            log_t_m = _best_coordinate(objective, log_t_m, m, tolerance)
        if np.abs(log_t_m - before).max() < 10 * tolerance:
            break
    return np.asarray(np.exp(log_t_m))


def pool_weights(
    predicts_nm: npt.NDArray[np.bool_], temperature_m: Floats, correlation_mm: Floats | None = None
) -> Floats:
    """Return (N, M) weights D_n / (S_n T_m) of the S_n models that predict an item, 0 for the others.

    D_n is the number of independent models that these are worth, by the correlation (M, M) of their errors. By default
    they count as copies of one model: D_n = 1.
    """
    weight_nm: Floats = predicts_nm / temperature_m
    predicting = np.maximum(predicts_nm.sum(axis=1, keepdims=True), 1)
    if correlation_mm is None:
        weight_nm /= predicting
        return weight_nm
    together = np.einsum("nm,ml,nl->n", weight_nm, correlation_mm, weight_nm, optimize=True)
    independent = weight_nm.sum(axis=1) ** 2 / np.maximum(together, 1e-300)
    weight_nm *= independent[:, None] / predicting
    return weight_nm


def _best_coordinate(objective: Callable[[Floats], float], log_t_m: Floats, m: int, tolerance: float) -> Floats:
    """Return log_t_m with coordinate m optimized; never worse than before."""
    from scipy.optimize import minimize_scalar  # imported late: fits without models save a quarter of a second

    def negative(value: float) -> float:
        moved = log_t_m.copy()
        moved[m] = value
        return -objective(moved)

    width = WINDOW
    while True:
        low, high = max(LOWEST, log_t_m[m] - width), min(HIGHEST, log_t_m[m] + width)
        found = minimize_scalar(negative, bounds=(low, high), method="bounded", options={"xatol": tolerance})
        at_edge = min(found.x - low, high - found.x) < 0.05 * width
        if not at_edge or (low <= LOWEST and high >= HIGHEST):
            break
        width *= 2
    if found.fun > negative(log_t_m[m]):
        return log_t_m
    best = log_t_m.copy()
    best[m] = found.x
    return best
