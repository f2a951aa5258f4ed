"""Calibrated model probabilities as the prior of each item (Kerrigan 2021, eq. 3), for one or several models.

    p(z_n = j)  ∝  exp( sum_m  w_nm log p_m[n, j] )        w_nm = 1 / (T_m S_n)

a log-linear pool of the S_n models that speak on item n, in which model m has temperature T_m (> 1: it was
over-confident), whoever else speaks. Where all are silent, the class shares are the prior. A probability of exactly 0
is read as FLOOR: no model may forbid a class for ever.

The temperatures are maximum a posteriori. Soft labels identify them only weakly (EM alone lets them drift, the
further the more items there are), so what is known for sure, the prior and the items with known truth, is
weighted up to balance the unknown items:

    anchor (sum_{n known} log p(z_n) + log N(log T))  +  sum_{n unknown} sum_j q_nj log p(z_n = j),
    anchor = 1 + unknown / (1 + known).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models import kernels
from hitl.models.calibration.temperature import LogTemperature, map_temperatures, pool_weights
from hitl.models.priors.shares import Shares

FLOOR = 1e-12


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A log-linear pool of models, one temperature each.

    Attributes:
        models: M names.
        log_p_mnj: (M, N, J) floored log probabilities, 0 where the model is silent.
        speaks_nm: (N, M) whether model m has a prediction for item n.
        known_n: (N,) items whose truth is known (their q is one-hot).
        temperature_m: (M,) temperatures, > 0.
        shares: prior of items on which all models are silent.
        prior: of each log temperature.
        anchored: what the anchor adds to the objective, set by `learn`.
        held: whether `learn` leaves the temperatures as they are, which take it most of its time.
    """

    models: tuple[str, ...]
    log_p_mnj: Floats
    speaks_nm: npt.NDArray[np.bool_]
    known_n: npt.NDArray[np.bool_]
    temperature_m: Floats
    shares: Shares
    prior: LogTemperature
    anchored: float = 0.0
    held: bool = False

    @classmethod
    def from_evidence(
        cls, evidence: Evidence, prior: LogTemperature, temperatures: Mapping[str, float] | None = None
    ) -> Calibrated:
        """The pool of all models in the evidence; temperatures start at the prior's mode unless given."""
        models = tuple(evidence.probabilities)
        known = temperatures or {}
        return cls(
            models,
            *_log_predictions(models, evidence.probabilities),
            evidence.known,
            np.array([known.get(name, prior.mode) for name in models]),
            Shares.even(evidence.annotations.n_classes, smoothing=1.0),
            prior,
        )

    @property
    def temperatures(self) -> dict[str, float]:
        """Model name -> temperature."""
        return {name: float(t) for name, t in zip(self.models, self.temperature_m, strict=True)}

    def holding(self) -> Calibrated:
        """The same pool, whose temperatures stay as they are."""
        return replace(self, held=True)

    def with_shares(self, shares: Shares) -> Calibrated:
        """The same pool with other class shares for the items on which all models are silent."""
        return replace(self, shares=shares)

    def over(self, probabilities: Mapping[str, Floats], known_n: npt.NDArray[np.bool_]) -> Calibrated:
        """The same pool, with what it has learned, over other items: for each of its models (N, J), NaN silent."""
        log_p_mnj, speaks_nm = _log_predictions(self.models, probabilities)
        return replace(self, log_p_mnj=log_p_mnj, speaks_nm=speaks_nm, known_n=known_n)

    def reported_shares(self, q_nj: Floats) -> Floats:
        """(J,) class shares of a consensus: the prior of the items on which all are silent, else of all beliefs.

        Where a model is silent the shares were the prior: these are then what judges other items again.
        """
        everything = np.ones(len(q_nj), dtype=bool)
        shares = self.shares if self.silent_n.any() else self.shares.learn(q_nj, everything)
        return shares.share_j

    def log_prior(self) -> Floats:
        """(N, J) log probabilities of the pool; rows sum to 1 after exp."""
        weight_nm = pool_weights(self.speaks_nm, self.temperature_m)
        logits = np.einsum("nm,mnj->nj", weight_nm, self.log_p_mnj)
        log_p: Floats = logits - kernels.log_normalisers(self.log_p_mnj, weight_nm)[:, None]
        log_p[self.silent_n] = self.shares.log_prior()
        return log_p

    def beliefs(self, message_nj: Floats) -> tuple[Floats, Floats]:
        """(N, J) posterior and (N,) log evidence."""
        return kernels.beliefs(message_nj, self.log_prior(), out=message_nj)

    def learn(self, q_nj: Floats, informative_n: npt.NDArray[np.bool_]) -> Self:
        """Temperatures that maximise the anchored objective (or held); shares from the items without predictions."""
        rows = np.flatnonzero(informative_n & ~self.silent_n)
        known = self.known_n[rows]
        anchor = 1 + (~known).sum() / (1 + known.sum())
        temperature_m = self.temperature_m
        if not self.held:
            temperature_m = map_temperatures(
                self.log_p_mnj[:, rows],
                q_nj[rows],
                self.prior,
                weight_n=np.where(known, anchor, 1.0),
                prior_weight=anchor,
                speaks_nm=self.speaks_nm[rows],
                start_m=self.temperature_m,
            )
        shares = self.shares.learn(q_nj, informative_n & self.silent_n)
        learned = replace(self, temperature_m=temperature_m, shares=shares)
        return replace(learned, anchored=learned._anchored(q_nj, rows, anchor))

    def log_density(self) -> float:
        """Log density of temperatures and shares, and the extra weight of the items with known truth."""
        return self.anchored + self.shares.log_density()

    def _anchored(self, q_nj: Floats, rows: npt.NDArray[np.intp], anchor: float) -> float:
        known = rows[self.known_n[rows]]
        extra = (anchor - 1) * np.sum(q_nj[known] * self.log_prior()[known])
        return float(extra + anchor * self.prior.log_density(self.temperature_m))

    @property
    def silent_n(self) -> npt.NDArray[np.bool_]:
        """(N,) items on which all models are silent."""
        return np.logical_not(np.asarray(self.speaks_nm.any(axis=1)))


def _log_predictions(
    models: tuple[str, ...], probabilities: Mapping[str, Floats]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """(M, N, J) floored log probabilities, 0 where a model is silent, and (N, M) where it speaks."""
    stacked = np.stack([probabilities[name] for name in models])
    speaks = ~np.isnan(stacked[:, :, 0])
    log_p_mnj = np.log(np.maximum(np.where(speaks[:, :, None], stacked, 1.0), FLOOR))
    return log_p_mnj, np.ascontiguousarray(speaks.T)
