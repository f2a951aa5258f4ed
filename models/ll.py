"""L+L, labels + labels (Kerrigan, Smyth & Steyvers 2021, section 4): the model is one more annotator.

    p(z_n = j | labels, models)  ∝  p_j  prod_k pi[k, j, l_nk]  prod_m mu[m, j, y_nm],     y_nm = argmax_j p_m[n, j]

Only a model's most probable class is used; a tie carries no information. The class shares p and the confusion matrices
of annotators (pi) and models (mu) are the modes of their Dirichlet posteriors given the items with known truth. So this
is Dawid–Skene with observed truth. Compared with P+L, this baseline shows how much a model's confidence adds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import concluded, used
from hitl.models.inference import em
from hitl.models.inference.warm_start import applied_under, require_same_classes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import known_truth
from hitl.models.pl import predicts
from hitl.models.priors.shares import Fixed, Shares

MODEL = "confusion of model "
"""Prefix of the names of consensus parameters that hold (J, J) confusion matrices of models."""


@dataclass(frozen=True, slots=True)
class LL:
    """L+L by supervised maximum a posteriori.

    Attributes:
        accuracy: expected accuracy of annotators and models, the diagonal of the prior's mode, in (0, 1).
        off: pseudo-count off the diagonal, > 0.
        share_smoothing: number of pseudo-items per class in the class shares, > 0.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations, net = Annotations.from_matrix([[0], [1], [1]]), [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> evidence = Evidence(annotations, {"net": net}, truth=[0, 1, -1])
        >>> models.LL().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})
    needs: ClassVar[frozenset[str]] = uses

    accuracy: float = EXPECTED_ACCURACY
    off: float = 0.1
    share_smoothing: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn from the items with known truth, then predict all items. Raise BadEvidence without a model or truth."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations, known = evidence.annotations, evidence.known
        truth_nj = known_truth(evidence)
        pseudo_jl = self._pseudo_counts(annotations)
        counts_klj = kernels.counts(annotations, truth_nj, known)
        shares = Shares.even(annotations.n_classes, self.share_smoothing)
        share_j = shares.learn(kernels.totals(truth_nj, known)).share_j
        models = {
            f"{MODEL}{name}": model_confusion(p_nj[known], truth_nj[known], self._unmet(annotations))
            for name, p_nj in evidence.probabilities.items()
        }
        prior = self._prior(evidence, share_j, models)
        log_pi_klj = np.log(confusion.posterior_mode(counts_klj, pseudo_jl))
        q_nj = em.expectation(evidence, prior, log_pi_klj).q_nj
        people = confusion.report(annotations, counts_klj, pseudo_jl, share_j)
        return concluded(self, began, evidence, q_nj, people, parameters=models)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters; new annotators and models get the prior's mode."""
        require_same_classes(consensus, evidence)
        prior = self._prior(evidence, consensus.class_shares, consensus.parameters)
        return applied_under(prior, consensus, evidence, self._pseudo_counts(evidence.annotations))

    def _prior(self, evidence: Evidence, share_j: Floats, models: Mapping[str, Floats]) -> Fixed:
        """Return the prior of each item, from class shares and the models' most probable classes."""
        unmet_jj = self._unmet(evidence.annotations)
        log_p_nj = np.tile(np.log(share_j), (evidence.annotations.n_items, 1))
        for name, p_nj in evidence.probabilities.items():
            mu_jj = models.get(f"{MODEL}{name}", unmet_jj)
            label_n = model_labels(p_nj)
            labeled = label_n >= 0
            log_p_nj[labeled] += np.log(mu_jj / mu_jj.sum(axis=1, keepdims=True)).T[label_n[labeled]]
        return Fixed(log_p_nj)

    def _pseudo_counts(self, annotations: Annotations) -> Floats:
        return confusion.accurate_pseudo_counts(annotations.n_classes, annotations.n_options, self.accuracy, self.off)

    def _unmet(self, annotations: Annotations) -> Floats:
        """Return (J, J) pseudo-counts of a model, which answers only with classes."""
        return confusion.accurate_pseudo_counts(annotations.n_classes, annotations.n_classes, self.accuracy, self.off)


def model_labels(probability_nj: Floats) -> npt.NDArray[np.intp]:
    """Return (N,) code of a model's most probable class; -1 where it abstains or several classes tie."""
    predicted = predicts(probability_nj)
    p_nj = np.where(predicted[:, None], probability_nj, 0.0)
    single = (p_nj == p_nj.max(axis=1, keepdims=True)).sum(axis=1) == 1
    return np.where(single, p_nj.argmax(axis=1), -1)


def model_confusion(probability_nj: Floats, truth_nj: Floats, pseudo_jj: Floats) -> Floats:
    """Return (J, J) mode of a model's confusion matrix given the truth; rows are true classes and sum to 1."""
    label_n = model_labels(probability_nj)
    labeled = label_n >= 0
    said_nj = np.eye(len(pseudo_jj))[label_n[labeled]]
    raised_jj: Floats = truth_nj[labeled].T @ said_nj + pseudo_jj
    raised_jj /= raised_jj.sum(axis=1, keepdims=True)
    return raised_jj
