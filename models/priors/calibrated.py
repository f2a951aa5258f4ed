"""Calibrated model probabilities as the prior of each item (Kerrigan 2021, eq. 3), for one or several models.

    p(z_n = j)  ∝  exp( sum_m  w_nm log p_m[n, j] )        w_nm = D_n / (S_n T_m)

a log-linear pool of the S_n models that predict item n. Model m has temperature T_m (> 1: it was overconfident), and
D_n is the number of independent models that they are worth. With R the correlation of the models' errors and
v_m = 1 / T_m,

    D_n = (sum_m v_m)^2 / sum_mm' v_m R_mm' v_m'           over the models that predict

D_n is 1 for copies of one model, and S_n for equally good models that err independently. If all models abstain, the
class shares are the prior.

Temperatures are learned here from ground truth (maximum a posteriori). R is then all ones, because the temperatures
absorb the worth of several models. To learn them without truth see `inference.unsupervised_pool`. Before calibration,

    p~[n, j]  =  c p[n, j] + (1 - p[n, j]) (1 - c) / (J - 1),   at least FLOOR

where c < 1 for a model that returns labels rather than probabilities (all its rows are one-hot). Such a label is
trusted like the label of a new annotator, and the temperature does the rest. For other models c = 1.

If a class is in use and a model gives it exactly 0 on all its items (LEAST_ROWS or more), the model does not know that
class. Each of U such classes gets 1 / (U + 1) of the row's largest probability, and rows are normalized. So annotators
decide between it and the model's choice; without labels the model's choice wins. A model that knows fewer than two
classes is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import Likelihood, LogTemperature, best_temperatures, pool_weights
from hitl.models.inference.engine import Additive
from hitl.models.numerics import kernels
from hitl.models.priors import FactoredPrior, Mask
from hitl.models.priors.shares import Shares

CORRELATION, CERTAINTY, KNOWS = "model correlation", "model certainty", "model knows"
RESIDUAL = "residual temperature"
"""Names under which a consensus stores pool parameters besides temperatures."""


LEAST_SHARE = 1e-6
"""Smallest class share: a class that did not occur in an earlier fit is rare, not impossible."""

LARGEST_STEP = 0.5
"""Largest step of a log temperature, because far from the mode a Newton step may overshoot."""

FLOOR = 1e-12
"""Smallest probability, so that no model rules out a class forever."""

CERTAIN = 1 - 1e-9
LEAST_ROWS = 20
"""Minimum number of predictions of a model for its zeros and one-hot rows to count. With fewer they may be chance."""


@dataclass(frozen=True, eq=False)
class OutputsSeen(Additive):
    """Counts over predictions; they add up over shards.

    Attributes:
        predicted_m: (M,) number of items that each model predicts.
        unsure_m: (M,) number of predicted items without a class of probability 1.
        possible_mj: (M, J) number of predicted items in which class j has a nonzero probability.
    """

    predicted_m: npt.NDArray[np.int64]
    unsure_m: npt.NDArray[np.int64]
    possible_mj: npt.NDArray[np.int64]

    @classmethod
    def of(cls, models: tuple[str, ...], probabilities: Mapping[str, Floats]) -> Self:
        """Count the predictions (N, J) of each model; rows are NaN where it abstains."""
        counted = [_counted(probabilities[name]) for name in models]
        return cls(*(np.array([one[field] for one in counted]) for field in range(3)))

    def read(self, used_j: npt.NDArray[np.bool_]) -> ModelOutputs:
        """Decide how to preprocess each model; `used_j` (J,) marks the classes in use."""
        enough_m = self.predicted_m >= LEAST_ROWS
        knows_mj = (self.possible_mj > 0) | ~used_j | ~enough_m[:, None]
        return ModelOutputs(np.where(enough_m & (self.unsure_m == 0), EXPECTED_ACCURACY, 1.0), knows_mj)


def _counted(p_nj: Floats) -> tuple[int, int, npt.NDArray[np.int64]]:
    """Return the number of predicted items, of those without a certain class, and (J,) of those where j is possible."""
    p_nj = p_nj[~np.isnan(p_nj[:, 0])]
    unsure = len(p_nj) - np.count_nonzero(p_nj.max(axis=1) > CERTAIN)
    return len(p_nj), int(unsure), np.count_nonzero(p_nj > 0, axis=0)


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Preprocessing of M models: `certainty_m` (M,) c in (0, 1], `knows_mj` (M, J) True if model m knows class j."""

    certainty_m: Floats
    knows_mj: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, models: tuple[str, ...], probabilities: Mapping[str, Floats], used_j: npt.NDArray[np.bool_]
    ) -> ModelOutputs:
        """Decide how to preprocess models from their predictions (N, J), which are NaN where a model abstains.

        `used_j` (J,) marks the classes in use.
        """
        return OutputsSeen.of(models, probabilities).read(used_j)

    def log_p(self, m: int, p_nj: Floats) -> Floats:
        """Return (N, J) log probabilities of model m after preprocessing; 0 where it abstains."""
        abstains = np.isnan(p_nj[:, 0])
        read = np.where(abstains[:, None], 1.0, p_nj)
        c, knows = self.certainty_m[m], self.knows_mj[m]
        if c < 1:
            read = c * read + (1 - read) * ((1 - c) / (read.shape[1] - 1))
        if knows.sum() < 2:
            read[:] = 1 / read.shape[1]
        elif not knows.all():
            read[:, ~knows] = read.max(axis=1, keepdims=True) / (1 + np.sum(~knows))
            read /= read.sum(axis=1, keepdims=True)
        np.maximum(read, FLOOR, out=read)
        np.log(read, out=read)
        read[abstains] = 0.0
        return read


@dataclass(frozen=True, eq=False)
class PoolStatistics(Additive):
    """Statistics that a pool learns from; they add up over shards.

    Attributes:
        counts_j: (J,) expected number of items of each class among those without predictions.
        gradient_m, curvature_mm: (M,) gradient, and (M, M) minus the Hessian, of sum_nj q_nj ln p_nj in the 1 / T_m.
    """

    counts_j: Floats
    gradient_m: Floats
    curvature_mm: Floats


@dataclass(frozen=True, eq=False)
class Calibrated(FactoredPrior):
    """Log-linear pool of models, with one temperature per model.

    Attributes:
        models: names of the M models.
        outputs: preprocessing of their probabilities.
        log_p_mnj: (M, N, J) log probabilities, 0 where the model abstains.
        predicts_nm: (N, M) True if model m has a prediction for item n.
        temperature_m: (M,) temperatures, > 0.
        correlation_mm: (M, M) correlation of the models' errors.
        shares: prior of items on which all models abstain.
        prior: prior of each log temperature.
        held: True if `learn` leaves the temperatures as they are.
        residual: further temperature for beliefs from models alone, >= 1; see `inference.unsupervised_pool`.
    """

    models: tuple[str, ...]
    outputs: ModelOutputs
    log_p_mnj: Floats
    predicts_nm: npt.NDArray[np.bool_]
    temperature_m: Floats
    correlation_mm: Floats
    shares: Shares
    prior: LogTemperature
    held: bool = False
    residual: float = 1.0

    @classmethod
    def from_evidence(cls, evidence: Evidence, prior: LogTemperature, learned: Consensus | None = None) -> Calibrated:
        """Build the pool of all models in the evidence, with the parameters in `learned` if given.

        New models get the prior's mode, and count as copies of all others.
        """
        models = tuple(evidence.probabilities)
        outputs = ModelOutputs.of(models, evidence.probabilities, labels_used(evidence) > 0)
        return cls.without_items(models, outputs, prior, learned).over(evidence.probabilities)

    @classmethod
    def without_items(
        cls, models: tuple[str, ...], outputs: ModelOutputs, prior: LogTemperature, learned: Consensus | None = None
    ) -> Calibrated:
        """Build the pool of these models over no items; `learned` as in `from_evidence`."""
        outputs, temperature_m, correlation_mm = _learned(models, outputs, prior, learned)
        n_models, n_classes = outputs.knows_mj.shape
        nothing = np.empty((n_models, 0, n_classes)), np.empty((0, n_models), dtype=bool)
        return cls(models, outputs, *nothing, temperature_m, correlation_mm, Shares.even(n_classes, 1.0), prior)

    @property
    def temperatures(self) -> dict[str, float]:
        """Model name -> temperature."""
        return {name: float(t) for name, t in zip(self.models, self.temperature_m, strict=True)}

    @property
    def parameters(self) -> dict[str, Floats]:
        """Parameters that a consensus stores besides the temperatures, with models in the same order."""
        return {
            CORRELATION: self.correlation_mm,
            CERTAINTY: self.outputs.certainty_m,
            KNOWS: self.outputs.knows_mj.astype(np.float64),
            RESIDUAL: np.array(self.residual),
        }

    def at(self, temperature_m: Floats, correlation_mm: Floats, residual: float = 1.0) -> Calibrated:
        """Return the pool held at these temperatures."""
        return replace(self, temperature_m=temperature_m, correlation_mm=correlation_mm, residual=residual, held=True)

    def over(self, probabilities: Mapping[str, Floats]) -> Calibrated:
        log_p_mnj, predicts_nm = _log_predictions(self.models, self.outputs, probabilities)
        return replace(self, log_p_mnj=log_p_mnj, predicts_nm=predicts_nm)

    def reported_shares(self, q_nj: Floats) -> Floats:
        """Return (J,) class shares to store in a consensus, from all beliefs.

        If all models abstain on some item, return the shares that were its prior, because `apply` needs them.
        """
        everything = np.ones(len(q_nj), dtype=bool)
        return self.shares_by(bool(self.abstained_n.any()), kernels.totals(q_nj, everything))

    def shares_by(self, abstained: bool, total_j: Floats) -> Floats:
        """Return (J,) shares from the sum of all beliefs (J,), or those of the prior if `abstained`."""
        return (self.shares if abstained else self.shares.learn(total_j)).share_j

    def log_prior(self) -> Floats:
        weight_nm = pool_weights(self.predicts_nm, self.temperature_m, self.correlation_mm)
        log_p, _ = kernels.pooled(self.log_p_mnj, weight_nm)
        log_p[self.abstained_n] = self.shares.log_prior()
        return log_p

    def statistics(self, q_nj: Floats, counted_n: Mask) -> PoolStatistics:
        n_models = len(self.models)
        counts_j = kernels.totals(q_nj, counted_n & self.abstained_n)
        if self.held:
            return PoolStatistics(counts_j, np.zeros(n_models), np.zeros((n_models, n_models)))
        rows = np.flatnonzero(counted_n & ~self.abstained_n)
        feature_mnj = self.log_p_mnj[:, rows] / self.predicts_nm[rows].sum(axis=1)[:, None]
        return PoolStatistics(counts_j, *kernels.pool_moments(feature_mnj, q_nj[rows], 1 / self.temperature_m))

    def learn(self, statistics: PoolStatistics) -> Self:
        """Set the shares to their mode. Unless held, move each log temperature a Newton step toward its mode.

        With u = 1 / T the expected log likelihood is concave, with gradient g and curvature C. In ln T the gradient is
        -u g, and the curvature u C u except for a term that vanishes where the pool fits.
        """
        learned = replace(self, shares=self.shares.learn(statistics.counts_j))
        if self.held:
            return learned
        u_m, variance = 1 / self.temperature_m, self.prior.sd**2
        gradient_m = -u_m * statistics.gradient_m - (np.log(self.temperature_m) - self.prior.mean) / variance
        curvature_mm = u_m[:, None] * statistics.curvature_mm * u_m + np.eye(u_m.size) / variance
        step_m = np.clip(np.linalg.solve(curvature_mm, gradient_m), -LARGEST_STEP, LARGEST_STEP)
        return replace(learned, temperature_m=self.temperature_m * np.exp(step_m))

    def likelihood(self, truth_nj: Floats, known_n: Mask) -> Likelihood:
        """Return the terms of the likelihood of the temperatures, from the known items that some model predicts."""
        rows = np.flatnonzero(known_n & ~self.abstained_n)
        return Likelihood.of(self.log_p_mnj[:, rows], truth_nj[rows], self.predicts_nm[rows])

    def fitted_to(self, known: Likelihood, total_j: Floats) -> Self:
        """Return the pool held at the temperatures that fit known items best.

        The shares are learned from `total_j` (J,), the numbers of known items per class.
        """
        temperature_m = best_temperatures(known, len(self.models), self.prior, start_m=self.temperature_m)
        return replace(self, temperature_m=temperature_m, shares=self.shares.learn(total_j), held=True)

    def log_density(self) -> float:
        return self.shares.log_density() + (0.0 if self.held else self.prior.log_density(self.temperature_m))

    @property
    def abstained_n(self) -> npt.NDArray[np.bool_]:
        """(N,) True for items on which all models abstain."""
        return np.logical_not(np.asarray(self.predicts_nm.any(axis=1)))


PoolOn = Callable[[Calibrated, Evidence], Calibrated]
"""Apply a pool, as learned, to a shard's items."""

ReadOutputs = Callable[[Evidence], tuple[Floats, npt.NDArray[np.bool_]]]
"""Read model predictions of a shard's items: `Calibrated.log_p_mnj` and `predicts_nm`."""


def read_outputs(
    evidence: Evidence, models: tuple[str, ...], outputs: ModelOutputs
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Read the predictions of these models."""
    return _log_predictions(models, outputs, evidence.probabilities)


def pool_on(pool: Calibrated, evidence: Evidence, read: ReadOutputs) -> Calibrated:
    """Return the same pool for the items of a shard."""
    log_p_mnj, predicts_nm = read(evidence)
    return replace(pool, log_p_mnj=log_p_mnj, predicts_nm=predicts_nm)


def labels_used(evidence: Evidence) -> npt.NDArray[np.int64]:
    """Return (J,) how often each class is an annotator's label or ground truth."""
    assert evidence.truth is not None
    annotations = evidence.annotations
    said = np.bincount(annotations.label, minlength=annotations.n_options)[: annotations.n_classes]
    known = np.bincount(evidence.truth[evidence.known], minlength=annotations.n_classes)
    return np.asarray(said + known)


def _learned(
    models: tuple[str, ...], outputs: ModelOutputs, prior: LogTemperature, learned: Consensus | None
) -> tuple[ModelOutputs, Floats, Floats]:
    """Return the preprocessing of the models, their temperatures (M,), and the correlation of their errors (M, M)."""
    temperature_m, correlation_mm = np.full(len(models), prior.mode), np.ones((len(models), len(models)))
    if learned is None:
        return outputs, temperature_m, correlation_mm
    place = {name: m for m, name in enumerate(learned.temperatures)}
    here = [m for m, name in enumerate(models) if name in place]
    there = [place[models[m]] for m in here]
    temperature_m[here] = np.array(list(learned.temperatures.values()))[there]
    kept = learned.parameters
    if CORRELATION in kept:
        correlation_mm[np.ix_(here, here)] = kept[CORRELATION][np.ix_(there, there)]
        outputs.certainty_m[here] = kept[CERTAINTY][there]
        outputs.knows_mj[here] = kept[KNOWS][there] > 0
    return outputs, temperature_m, correlation_mm


def _log_predictions(
    models: tuple[str, ...], outputs: ModelOutputs, probabilities: Mapping[str, Floats]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return (M, N, J) preprocessed log probabilities, 0 where a model abstains, and (N, M) True where it predicts."""
    log_p_mnj = np.stack([outputs.log_p(m, probabilities[name]) for m, name in enumerate(models)])
    predicts_nm = np.stack([~np.isnan(probabilities[name][:, 0]) for name in models], axis=1)
    return log_p_mnj, predicts_nm


def learned_prior(consensus: Consensus, evidence: Evidence) -> FactoredPrior:
    """Return the class shares or, if the consensus learned model temperatures, the pool of the evidence's models."""
    shares = learned_shares(consensus)
    if not (evidence.probabilities and consensus.temperatures):
        return shares
    return replace(Calibrated.from_evidence(evidence, LogTemperature(), consensus), shares=shares)


def learned_shares(consensus: Consensus) -> Shares:
    """Return the learned class shares as a prior, without models."""
    share_j = np.maximum(consensus.class_shares, LEAST_SHARE)
    return Shares(share_j / share_j.sum())
