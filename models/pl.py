"""P+L (Kerrigan, Smyth & Steyvers 2021): calibrated model probabilities and confusion matrices of the annotators.

    p(z_n = j | labels, models)  ∝  p_T(z_n = j | models)  prod_k pi[k, j, l_nk]              (eq. 3)

It is fitted to items of known truth: temperatures by maximum a posteriori in log T (section 4), confusion matrices as
the modes of their Dirichlet posteriors. An item may have any number of labels and of models' predictions, or none.
`PLEM` fits the same model without ground truth.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.combiner import Combiner, concluded, require_given, used_shards
from hitl.models.inference import em
from hitl.models.inference.engine import Shards, Sums
from hitl.models.inference.model_pool import ModelPool
from hitl.models.inference.warm_start import applied_under, require_same_classes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import known_truth
from hitl.models.priors.calibrated import Calibrated
from hitl.models.priors.shares import Shares


@dataclass(frozen=True, slots=True)
class PL:
    """P+L by supervised maximum a posteriori.

    Attributes:
        accuracy: expected accuracy of the annotators, the diagonal of the prior's mode, in (0, 1).
        off: pseudo-count off the diagonal, > 0.
        temperature: prior of each model's log temperature.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations, net = Annotations.from_matrix([[0], [1], [1]]), [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> evidence = Evidence(annotations, {"net": net}, truth=[0, 1, -1])
        >>> models.PL().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})
    needs: ClassVar[frozenset[str]] = uses
    fits_shards: ClassVar[bool] = True

    accuracy: float = 0.85
    off: float = 0.3
    temperature: LogTemperature = LogTemperature()

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Kerrigan, Smyth & Steyvers 2021 (section 4).

        Each row of a confusion matrix has a Dirichlet prior with pseudo-counts of 0.1 off the diagonal and, on it, the
        value that puts the mode at an accuracy of 0.75 (2.7 for ten classes). log T ~ N(0.5, 0.5^2). The paper's text
        uses the classifier's accuracy on its training set instead of 0.75, the authors' code uses 0.75. That code
        subtracts the 1 of the Dirichlet mode only on the diagonal, so pseudo-counts off it become 1.1. Here it is
        subtracted everywhere, as the text intends.
        """
        return cls(accuracy=0.75, off=0.1, temperature=LogTemperature(0.5, 0.5))

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Learn from the items with known truth, then predict all items. Raise BadEvidence without a model or truth."""
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        annotations, pseudo_jl = shards.annotations, self.pseudo_counts(shards.annotations)
        pools, (counts_klj, total_j) = ModelPool(shards, self.temperature), shards.total(_known_counts)
        pool = pools.supervised(total_j)
        log_pi_klj = np.log(confusion.posterior_mode(counts_klj, pseudo_jl))
        beliefs = shards.once(partial(em.judge, prior=pool, log_pi_klj=log_pi_klj, prior_on=pools.on))
        people = confusion.report(annotations, counts_klj, pseudo_jl, pools.reported_shares(pool, beliefs))
        q_nj = np.empty((0, annotations.n_classes)) if shards.table is None else beliefs(shards.table)
        return concluded(self, began, shards, q_nj, people, temperatures=pool.temperatures, parameters=pool.parameters)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters; new annotators and models get the prior's mode."""
        prior = calibrated_prior(self, evidence, consensus)
        return applied_under(prior, consensus, evidence, self.pseudo_counts(evidence.annotations))

    def pseudo_counts(self, annotations: Annotations) -> Floats:
        """Return (J, L) pseudo-counts of a confusion matrix."""
        return confusion.accurate_pseudo_counts(annotations.n_classes, annotations.n_options, self.accuracy, self.off)


def _known_counts(evidence: Evidence) -> Sums:
    """Return (K, L, J) counts of the labels of known items, and (J,) numbers of known items of each class."""
    known, truth_nj = evidence.known, known_truth(evidence)
    return Sums((kernels.counts(evidence.annotations, truth_nj, known), kernels.totals(truth_nj, known)))


class Calibrating(Combiner, Protocol):
    """Combiner with a prior of each model's log temperature."""

    @property
    def temperature(self) -> LogTemperature:
        """Prior of each model's log temperature."""


def calibrated_prior(method: Calibrating, evidence: Evidence, learned: Consensus | None = None) -> Calibrated:
    """Return the pool of the evidence's models, with the temperatures and shares of `learned` if given.

    Raise BadEvidence without models, or if `learned` has other classes.
    """
    require_given(method, evidence, frozenset({"probabilities"}))
    if learned is None:
        return Calibrated.from_evidence(evidence, method.temperature)
    require_same_classes(learned, evidence)
    prior = Calibrated.from_evidence(evidence, method.temperature, learned)
    return replace(prior, shares=Shares(learned.class_shares, prior.shares.smoothing))


def predicts(probability_nj: Floats) -> npt.NDArray[np.bool_]:
    """Return (N,) True where a model does not abstain."""
    return np.asarray(~np.isnan(probability_nj[:, 0]))
