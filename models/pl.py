"""P+L (Kerrigan, Smyth & Steyvers 2021): calibrated model probabilities x confusion matrices of the people.

    p(z_n = j | labels, models)  ∝  p_T(z_n = j | models)  prod_k pi[k, j, l_nk]              (eq. 3)

fitted where the truth is known: temperatures by maximum a posteriori in log T (section 4), confusion matrices as
the modes of their Dirichlet posteriors. Any number of people an item, several models at once, and items on which
a model or everybody is silent. `PLEM` is the same without truth.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus, Fit
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.inference import em
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import require_between
from hitl.models.numerics.clamping import clamp
from hitl.models.priors.calibrated import Calibrated
from hitl.models.priors.shares import Shares


@dataclass(frozen=True, slots=True)
class PL:
    """P+L by supervised maximum a posteriori.

    Attributes:
        accuracy: expected accuracy of the people in (0, 1): the diagonal of the prior's mode; 0.75 in the paper.
        off: pseudo-count off the diagonal, > 0; 0.1 in the paper, which is very sure of errors seldom seen.
        temperature: prior of each model's log temperature.
    """

    accuracy: float = 0.85
    off: float = 0.3
    temperature: LogTemperature = LogTemperature()

    def __post_init__(self) -> None:
        require_between("accuracy", self.accuracy, 0, 1)
        require_between("off", self.off, 0)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn from the items with known truth, then judge all. Raises BadEvidence without model or truth."""
        began = time.perf_counter()
        prior = calibrated_prior(evidence, self.temperature, "P+L")
        if not evidence.known.any():
            raise BadEvidence("P+L learns from known truth and found none; give truth for some items, or use P+L-EM")
        known = evidence.known
        pseudo_jl = self.pseudo_counts(evidence.annotations)
        truth_nj = clamp(np.zeros((evidence.annotations.n_items, evidence.annotations.n_classes)), evidence)
        people = confusion.Confusion.unlearned(pseudo_jl, evidence.annotations.n_annotators)
        counts_klj = kernels.counts(evidence.annotations, truth_nj, known)
        people, prior = people.learn(counts_klj), prior.supervised(truth_nj, known)
        q_nj = em.expectation(evidence, prior, people.log_pi_klj).q_nj
        fit = Fit("pl", asdict(self), seconds=time.perf_counter() - began)
        return judged(evidence, prior, counts_klj, pseudo_jl, q_nj, fit)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned; people and models not met before get the prior's mode."""
        prior = calibrated_prior(evidence, self.temperature, "P+L", consensus)
        pi_klj = confusion.confusion_from(consensus, evidence.annotations, self.pseudo_counts(evidence.annotations))
        q_nj = em.expectation(evidence, prior, np.log(pi_klj)).q_nj
        return consensus.judging(evidence.annotations.items, q_nj)

    def pseudo_counts(self, annotations: Annotations) -> Floats:
        """(J, L) pseudo-counts of a confusion matrix."""
        return confusion.accurate_pseudo_counts(annotations.n_classes, annotations.n_options, self.accuracy, self.off)


def calibrated_prior(
    evidence: Evidence, temperature: LogTemperature, method: str, learned: Consensus | None = None
) -> Calibrated:
    """The pool of the evidence's models, with the temperatures and shares a consensus learned, if one is given."""
    if not evidence.probabilities:
        raise BadEvidence(
            f"{method} needs class probabilities of a model (probabilities=, --probabilities) and found none"
        )
    if learned is None:
        return Calibrated.from_evidence(evidence, temperature)
    require_same_classes(learned, evidence)
    prior = Calibrated.from_evidence(evidence, temperature, learned)
    return prior.with_shares(Shares(learned.class_shares, prior.shares.smoothing))


def judged(
    evidence: Evidence, prior: Calibrated, counts_klj: Floats, pseudo_jl: Floats, q_nj: Floats, fit: Fit
) -> Consensus:
    """The consensus of a fitted pool."""
    share_j = prior.reported_shares(q_nj)
    people = confusion.report(evidence.annotations, counts_klj, pseudo_jl, share_j)
    annotations = evidence.annotations
    return Consensus(
        annotations.items,
        annotations.classes,
        q_nj,
        people,
        share_j,
        prior.temperatures,
        fit,
        parameters=prior.parameters,
    )


def known_truth(evidence: Evidence, method: str) -> Floats:
    """(N, J) one-hot where the truth is known, else 0. Raises BadEvidence without a model or without any truth."""
    if not evidence.probabilities:
        raise BadEvidence(
            f"{method} needs class probabilities of a model (probabilities=, --probabilities) and found none"
        )
    if not evidence.known.any():
        raise BadEvidence(f"{method} learns from known truth and found none; give truth for some items, or use P+L-EM")
    annotations = evidence.annotations
    return clamp(np.zeros((annotations.n_items, annotations.n_classes)), evidence)


def speaks(probability_nj: Floats) -> npt.NDArray[np.bool_]:
    """(N,) where a model is not silent."""
    spoken: npt.NDArray[np.bool_] = ~np.isnan(probability_nj[:, 0])
    return spoken
