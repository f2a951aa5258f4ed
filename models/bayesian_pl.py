"""Bayesian P+L (Kerrigan, Smyth & Steyvers 2021, appendix G): P+L with its parameters integrated out.

    p(z_n = j | labels, models, D)  ∝  E[p_T(z_n = j | models) | D]  prod_k E[prod_l pi[k, j, l] | D]         (eq. 22)

D: the items with ground truth. Given D, the temperature and the confusion matrices are independent.

Temperature. Let T* be the mode, as in P+L. At T = tau T* the pool is p*(z_n = j)^(1/tau), normalized. Quadrature over
the posterior of log tau integrates the temperature out (`calibration.temperature_scaling`). This is exact for one
model. With several models tau scales all temperatures alike, and their ratios stay at the mode. The approximation is
good because predictions depend on tau to first order, while errors of the ratios largely cancel. (In simulations with
two models, the mean distance to the exact posterior is half that of P+L.)

Annotators. Given D, the rows of a confusion matrix are Dirichlet(a) with a = N + b. So a single label has the
probability a_jl / sum_l a_jl, which is the mode that P+L uses. Several labels of the anonymous pool on one item come
from the same row, and each updates the row for the next (Polya's urn). For c_l labels of each option, c in total,

    E[prod_l pi_jl^c_l]  =  prod_l (a_jl)_(c_l)  /  (sum_l a_jl)_(c),     (a)_(c) = a (a + 1) ... (a + c - 1)

The paper uses Dirichlet(N + b + 1) instead (`accuracy_at="mode"`). For ten classes, the mode of that prior has an
accuracy of 0.75, but its mean only 0.27. This alone makes the method need more labels than P+L, as the paper found
(error on CIFAR-10H with ten known items: .043 instead of .029).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.calibration.calibrator import floored_log
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.calibration.temperature_scaling import BayesianTemperature, TemperaturePosterior
from hitl.models.combiner import used
from hitl.models.inference import em
from hitl.models.inference.engine import Shards
from hitl.models.pl import PL, calibrated_prior
from hitl.models.priors.shares import Fixed

FACTOR, WEIGHT = "temperature factor", "temperature weight"
"""Names of consensus parameters: (G,) quadrature nodes tau, and (G,) their posterior weights, which sum to 1."""


@dataclass(frozen=True, slots=True)
class BayesianPL(PL):
    """Bayesian P+L; other settings as in `PL`.

    Attributes:
        accuracy_at: statistic of a row's prior that equals the expected accuracy: "mean", Dirichlet(b), or "mode",
            Dirichlet(b + 1).

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations, net = Annotations.from_matrix([[0], [1], [1]]), [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> evidence = Evidence(annotations, {"net": net}, truth=[0, 1, -1])
        >>> models.BayesianPL().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    fits_shards: ClassVar[bool] = False

    accuracy_at: str = "mean"

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Kerrigan, Smyth & Steyvers 2021 (appendix G, eq. 22).

        The priors are those of `PL.paper`, whose mode is at the expected accuracy: given the known items, confusion
        rows are Dirichlet(N + b + 1). Quadrature, which is exact for one model, replaces the paper's Hamiltonian Monte
        Carlo draws of the temperature.
        """
        return cls(accuracy=0.75, off=0.1, temperature=LogTemperature(0.5, 0.5), accuracy_at="mode")

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Learn from the items with known truth, then predict all items. Raise BadEvidence without a model or truth."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        mode = PL.fit(self, evidence)
        assert evidence.truth is not None
        temperature_m = np.array(list(mode.temperatures.values()))
        factor = posterior_of_factor(self._pool(mode, evidence), evidence.truth, temperature_m, self.temperature)
        parameters = {FACTOR: factor.temperature_g, WEIGHT: factor.weight_g}
        found = self.apply(replace(mode, parameters={**mode.parameters, **parameters}), evidence)
        return replace(found, fit=replace(mode.fit, seconds=time.perf_counter() - began))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters; new annotators and models follow the prior."""
        annotations = evidence.annotations
        if FACTOR not in consensus.parameters:
            raise BadEvidence("not learned by Bayesian P+L; apply the method that learned it")
        pool_nj = self._pool(consensus, evidence)
        factor = TemperaturePosterior(consensus.parameters[FACTOR], consensus.parameters[WEIGHT])
        p_nj = np.where(np.isnan(pool_nj), consensus.class_shares, factor.apply(pool_nj))
        people = consensus.annotators
        a_kjl = confusion.matched(people, people.concentration, self.pseudo_counts(annotations), annotations)
        if self.accuracy_at == "mode":
            a_kjl += 1
        pi_kjl = a_kjl / a_kjl.sum(axis=2, keepdims=True)
        log_p_nj = floored_log(p_nj)
        if annotations.anonymous is not None:
            log_p_nj += repeated_answers(annotations, a_kjl[annotations.anonymous])
        q_nj = em.expectation(evidence, Fixed(log_p_nj), np.log(pi_kjl).transpose(0, 2, 1)).q_nj
        return consensus.judging(annotations.items, q_nj)

    def _pool(self, mode: Consensus, evidence: Evidence) -> Floats:
        """Return (N, J) probabilities of the pool at the mode of the temperatures, NaN where all models abstain."""
        prior = calibrated_prior(self, evidence, mode)
        return np.where(evidence.predicted[:, None], np.exp(prior.log_prior()), np.nan)


def posterior_of_factor(
    p_nj: Floats, truth_n: npt.NDArray[np.integer], temperature_m: Floats, prior: LogTemperature
) -> TemperaturePosterior:
    """Return the posterior of tau, the factor that scales all temperatures.

    Args:
        p_nj: (N, J) probabilities of the pool at `temperature_m`, NaN where all models abstain.
        truth_n: (N,) class codes, -1 where unknown.
        temperature_m: (M,) temperatures at the mode.
        prior: prior of each log T_m. The M priors combine into one of log tau.
    """
    n_models, n_classes = len(temperature_m), p_nj.shape[1]
    of_factor = LogTemperature(float(prior.mean - np.log(temperature_m).mean()), float(prior.sd / np.sqrt(n_models)))
    even = np.full((1, n_classes), 1 / n_classes)  # carries no information on tau, but ensures there is an item
    return BayesianTemperature(of_factor).fit(np.vstack((p_nj, even)), np.append(truth_n, 0))


def repeated_answers(annotations: Annotations, a_jl: Floats) -> Floats:
    """Return (N, J) corrections of log probabilities, in nats, for items that the anonymous pool labeled repeatedly.

    They are 0 for items with at most one label of the pool. `a_jl` (J, L): Dirichlet parameters of the pool's rows.
    """
    rows = np.flatnonzero(annotations.annotator == annotations.anonymous)
    item, label = annotations.item[rows], annotations.label[rows]
    order = np.lexsort((label, item))
    item, label = item[order], label[order]
    before = _place(item)
    alike = _place(item.astype(np.int64) * annotations.n_options + label)
    a_lj = a_jl.T
    gain = np.log1p(alike[:, None] / a_lj[label]) - np.log1p(before[:, None] / a_lj.sum(axis=0))
    out = np.zeros((annotations.n_items, annotations.n_classes))
    np.add.at(out, item, gain)
    return out


def _place(key: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """Return (M,) for each of the sorted keys the number of equal keys before it."""
    first = np.concatenate((np.ones(min(1, len(key)), bool), key[1:] != key[:-1]))
    start = np.flatnonzero(first)
    return np.asarray(np.arange(len(key)) - np.repeat(start, np.diff(np.append(start, len(key)))))
