"""Majority vote: the baseline that everybody understands.

    p[n, j] = (votes for j + 1/J) / (votes + 1)

A flat truth prior and an annotator model that believes everybody alike. Options that are no class do not vote.
The smoothing is a Dirichlet prior of one vote in all: an item nobody labeled is even, one vote is not certainty.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus, Fit
from hitl.evidence import Evidence
from hitl.models import confusion, kernels
from hitl.models.checks import require_between
from hitl.models.em import clamp


@dataclass(frozen=True, slots=True)
class MajorityVote:
    """Majority vote; `smoothing` is the number of votes spread evenly over the classes of every item, > 0."""

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        require_between("smoothing", self.smoothing, 0)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """(N, J) smoothed vote fractions; known truths as they are."""
        began = time.perf_counter()
        annotations = evidence.annotations
        raised = votes(annotations) + self.smoothing / annotations.n_classes
        q_nj = clamp(raised / raised.sum(axis=1, keepdims=True), evidence)
        share_j = q_nj.mean(axis=0)
        # How often each agrees with the vote, not a model that weighs them.
        pseudo = confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, 0.01)
        people = confusion.report(annotations, kernels.counts(annotations, q_nj), pseudo, share_j)
        fit = Fit("majority", asdict(self), seconds=time.perf_counter() - began)
        return Consensus(annotations.items, annotations.classes, q_nj, people, share_j, fit=fit)


def vote_fractions(annotations: Annotations) -> Floats:
    """(N, J) share of an item's votes for each class; zero rows where nobody voted for a class."""
    votes_nj = votes(annotations)
    return votes_nj / np.maximum(votes_nj.sum(axis=1, keepdims=True), 1.0)


def votes(annotations: Annotations) -> Floats:
    """(N, J) number of labels for each class."""
    n, j = annotations.n_items, annotations.n_classes
    is_class = annotations.label < j
    cell = annotations.item[is_class].astype(np.int64) * j + annotations.label[is_class]
    return np.bincount(cell, minlength=n * j).reshape(n, j).astype(np.float64)
