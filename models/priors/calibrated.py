"""Calibrated model probabilities as the prior of each item (Kerrigan 2021, eq. 3), for one or several models.

    p(z_n = j)  ∝  exp( sum_m  w_nm log p_m[n, j] )        w_nm = D_n / (S_n T_m)

a log-linear pool of the S_n models that speak on item n. Model m has temperature T_m (> 1: it was over-confident), and
D_n says how many independent ones they are worth: with R the correlation of the models' errors and v_m = 1 / T_m,

    D_n = (sum_m v_m)^2 / sum_mm' v_m R_mm' v_m'           over the models that speak,

1 for copies of one model, S_n for equally good ones that err independently. Where all are silent, the class shares are
the prior. How probabilities are read before (a model that gives labels only, a class it does not know): `readings`.

Temperatures are learned from known truth here (maximum a posteriori; R is then all ones: what several models are worth
together is in their temperatures); without truth see `calibration.untold`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import LogTemperature, map_temperatures, pool_weights
from hitl.models.numerics import kernels
from hitl.models.priors.model_outputs import Readings
from hitl.models.priors.shares import Shares

CORRELATION, CERTAINTY, KNOWS = "model correlation", "model certainty", "model knows"
CAUTION = "model caution"
"""Names of what a consensus keeps of its models beside their temperatures."""


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A log-linear pool of models, one temperature each.

    Attributes:
        models: M names.
        readings: how their probabilities are read.
        log_p_mnj: (M, N, J) log probabilities, 0 where the model is silent.
        speaks_nm: (N, M) whether model m has a prediction for item n.
        temperature_m: (M,) temperatures, > 0.
        correlation_mm: (M, M) correlation of the models' errors.
        shares: prior of items on which all models are silent.
        prior: of each log temperature.
        held: whether `learn` leaves the temperatures as they are.
        caution: by how much more a belief of the models alone should be tempered, >= 1; see `calibration.untold`.
    """

    models: tuple[str, ...]
    readings: Readings
    log_p_mnj: Floats
    speaks_nm: npt.NDArray[np.bool_]
    temperature_m: Floats
    correlation_mm: Floats
    shares: Shares
    prior: LogTemperature
    held: bool = False
    caution: float = 1.0

    @classmethod
    def from_evidence(cls, evidence: Evidence, prior: LogTemperature, learned: Consensus | None = None) -> Calibrated:
        """The pool of all models in the evidence, as `learned`; models not met have the prior's mode, like copies."""
        models, n_classes = tuple(evidence.probabilities), evidence.annotations.n_classes
        readings, temperature_m, correlation_mm = _learned(
            models, Readings.of(models, evidence.probabilities, _used(evidence)), prior, learned
        )
        return cls(
            models,
            readings,
            *_log_predictions(models, readings, evidence.probabilities),
            temperature_m,
            correlation_mm,
            Shares.even(n_classes, smoothing=1.0),
            prior,
        )

    @property
    def temperatures(self) -> dict[str, float]:
        """Model name -> temperature."""
        return {name: float(t) for name, t in zip(self.models, self.temperature_m, strict=True)}

    @property
    def parameters(self) -> dict[str, Floats]:
        """What a consensus keeps beside the temperatures, in their order."""
        return {
            CORRELATION: self.correlation_mm,
            CERTAINTY: self.readings.certainty_m,
            KNOWS: self.readings.knows_mj.astype(np.float64),
            CAUTION: np.array(self.caution),
        }

    def at(self, temperature_m: Floats, correlation_mm: Floats, caution: float = 1.0) -> Calibrated:
        """The same pool held at these temperatures."""
        return replace(self, temperature_m=temperature_m, correlation_mm=correlation_mm, caution=caution, held=True)

    def with_shares(self, shares: Shares) -> Calibrated:
        """The same pool with other class shares for the items on which all models are silent."""
        return replace(self, shares=shares)

    def over(self, probabilities: Mapping[str, Floats]) -> Calibrated:
        """The same pool, with what it has learned, over other items: for each of its models (N, J), NaN silent."""
        log_p_mnj, speaks_nm = _log_predictions(self.models, self.readings, probabilities)
        return replace(self, log_p_mnj=log_p_mnj, speaks_nm=speaks_nm)

    def reported_shares(self, q_nj: Floats) -> Floats:
        """(J,) class shares of a consensus: the prior of the items on which all are silent, else of all beliefs.

        Where a model is silent the shares were the prior: these are then what judges other items again.
        """
        everything = np.ones(len(q_nj), dtype=bool)
        shares = self.shares if self.silent_n.any() else self.shares.learn(q_nj, everything)
        return shares.share_j

    def log_prior(self) -> Floats:
        """(N, J) log probabilities of the pool; rows sum to 1 after exp."""
        weight_nm = pool_weights(self.speaks_nm, self.temperature_m, self.correlation_mm)
        log_p = kernels.pooled(self.log_p_mnj, weight_nm)
        log_p[self.silent_n] = self.shares.log_prior()
        return log_p

    def beliefs(self, message_nj: Floats) -> tuple[Floats, Floats]:
        """(N, J) posterior and (N,) log evidence."""
        return kernels.beliefs(message_nj, self.log_prior(), out=message_nj)

    def learn(self, q_nj: Floats, informative_n: npt.NDArray[np.bool_]) -> Self:
        """Temperatures at their posterior mode given these classes (or held); shares from items without predictions."""
        rows = np.flatnonzero(informative_n & ~self.silent_n)
        shares = self.shares.learn(q_nj, informative_n & self.silent_n)
        if self.held:
            return replace(self, shares=shares)
        temperature_m = map_temperatures(
            self.log_p_mnj[:, rows],
            q_nj[rows],
            self.prior,
            speaks_nm=self.speaks_nm[rows],
            start_m=self.temperature_m,
        )
        return replace(self, temperature_m=temperature_m, shares=shares)

    def log_density(self) -> float:
        """Log density of the shares, and of temperatures that are learned."""
        return self.shares.log_density() + (0.0 if self.held else self.prior.log_density(self.temperature_m))

    @property
    def silent_n(self) -> npt.NDArray[np.bool_]:
        """(N,) items on which all models are silent."""
        return np.logical_not(np.asarray(self.speaks_nm.any(axis=1)))


def _used(evidence: Evidence) -> npt.NDArray[np.bool_]:
    """(J,) classes that somebody has said or that are true of a known item."""
    assert evidence.truth is not None
    annotations = evidence.annotations
    said = np.bincount(annotations.label, minlength=annotations.n_options)[: annotations.n_classes]
    told = np.bincount(evidence.truth[evidence.known], minlength=annotations.n_classes)
    return np.asarray(said + told > 0)


def _learned(
    models: tuple[str, ...], readings: Readings, prior: LogTemperature, learned: Consensus | None
) -> tuple[Readings, Floats, Floats]:
    """How the models are read, their temperatures (M,) and the correlation of their errors (M, M)."""
    temperature_m, correlation_mm = np.full(len(models), prior.mode), np.ones((len(models), len(models)))
    if learned is None:
        return readings, temperature_m, correlation_mm
    place = {name: m for m, name in enumerate(learned.temperatures)}
    here = [m for m, name in enumerate(models) if name in place]
    there = [place[models[m]] for m in here]
    temperature_m[here] = np.array(list(learned.temperatures.values()))[there]
    kept = learned.parameters
    if CORRELATION in kept:
        correlation_mm[np.ix_(here, here)] = kept[CORRELATION][np.ix_(there, there)]
        readings.certainty_m[here] = kept[CERTAINTY][there]
        readings.knows_mj[here] = kept[KNOWS][there] > 0
    return readings, temperature_m, correlation_mm


def _log_predictions(
    models: tuple[str, ...], readings: Readings, probabilities: Mapping[str, Floats]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """(M, N, J) log probabilities as they are read, 0 where the model is silent, and (N, M) where it speaks."""
    log_p_mnj = np.stack([readings.log_p(m, probabilities[name]) for m, name in enumerate(models)])
    speaks_nm = np.stack([~np.isnan(probabilities[name][:, 0]) for name in models], axis=1)
    return log_p_mnj, speaks_nm
