"""Baselines of GPC-MA (Rodrigues 2014, section 4.1): Gaussian process classifiers without annotators.

    gpc-gold            learns from known truth alone
    gpc-majority        treats the majority of an item's labels as its truth; ties share it
    gpc-concatenated    treats every label as the truth of a separate point at the same place

All predict from features: an item's labels count as far as they moved the process, and known truth is preserved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.gpc_ma import Answered, ProcessMethod, Question
from hitl.models.inference import one_versus_rest
from hitl.models.inference.voted import report_of_votes
from hitl.models.numerics.kernels import votes


@dataclass(frozen=True, slots=True)
class TruthfulLabels(ProcessMethod, ABC):
    """Classifier that treats labels as the truth, or ignores them."""

    @abstractmethod
    def seen(self, annotations: Annotations) -> Floats:
        """Return (N, J) how often each class counts as the truth of an item."""

    def question(self, evidence: Evidence, j: int) -> Question:
        """Build the question about class j, answered by the items' labels or the known truth."""
        annotations = evidence.annotations
        seen_nj = np.where(evidence.known[:, None], 0.0, self.seen(annotations))
        yes_or_no = one_versus_rest.question(evidence, j)
        none = yes_or_no.annotations.select(np.zeros(len(annotations), dtype=bool))
        observed_nj = np.stack((seen_nj.sum(axis=1) - seen_nj[:, j], seen_nj[:, j]), axis=1)
        return Question(Evidence(none, truth=yes_or_no.truth), observed_nj)

    def pseudo_counts(self, annotations: Annotations) -> Floats:
        """Return (J, L) ones: nothing is learned about annotators."""
        return confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, 1.0)

    def report(self, evidence: Evidence, q_nj: Floats, found: Sequence[Answered]) -> AnnotatorReport:
        """Report how often each annotator agrees with the classifier."""
        return report_of_votes(evidence.annotations, q_nj)


@dataclass(frozen=True, slots=True)
class GPCGold(TruthfulLabels):
    """Gaussian process classifier of the items of known truth; labels are ignored. Settings as in `GPCMA`.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> no_labels = Annotations.from_matrix([[-1], [-1], [-1]], classes=["a", "b"])
        >>> evidence = Evidence(no_labels, features=[[0.0], [5.0], [4.5]], truth=[0, 1, -1])
        >>> models.GPCGold().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features", "truth"})

    def seen(self, annotations: Annotations) -> Floats:
        """Return zeros."""
        return np.zeros((annotations.n_items, annotations.n_classes))


@dataclass(frozen=True, slots=True)
class GPCMajority(TruthfulLabels):
    """Gaussian process classifier of the majority's labels. Settings as in `GPCMA`.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations = Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [-1, -1, -1]])
        >>> evidence = Evidence(annotations, features=[[0.0], [5.0], [4.5]])
        >>> models.GPCMajority().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    def seen(self, annotations: Annotations) -> Floats:
        """Return the class with most labels once, shared between ties."""
        votes_nj = votes(annotations)
        top_nj = ((votes_nj > 0) & (votes_nj == votes_nj.max(axis=1, keepdims=True))).astype(float)
        return np.asarray(top_nj / np.maximum(top_nj.sum(axis=1, keepdims=True), 1.0))


@dataclass(frozen=True, slots=True)
class GPCConcatenated(TruthfulLabels):
    """Gaussian process classifier of all labels, each treated as the truth. Settings as in `GPCMA`.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations = Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [-1, -1, -1]])
        >>> evidence = Evidence(annotations, features=[[0.0], [5.0], [4.5]])
        >>> models.GPCConcatenated().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    def seen(self, annotations: Annotations) -> Floats:
        """Return every label."""
        return votes(annotations)
