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
        q_nj = voted(evidence, self.smoothing)
        share_j = shares(q_nj)
        # How often each agrees with the vote, not a model that weighs them.
        pseudo = confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, 0.01)
        people = confusion.report(annotations, kernels.counts(annotations, q_nj), pseudo, share_j)
        fit = Fit("majority", asdict(self), seconds=time.perf_counter() - began)
        return Consensus(annotations.items, annotations.classes, q_nj, people, share_j, fit=fit)


def shares(q_nj: Floats) -> Floats:
    """(J,) mean beliefs with one even item more: no class is impossible, also where all truths are known."""
    share_j: Floats = (q_nj.sum(axis=0) + 1 / q_nj.shape[1]) / (len(q_nj) + 1)
    return share_j


def voted(evidence: Evidence, smoothing: float = 1.0) -> Floats:
    """(N, J) smoothed vote fractions; known truths as they are. Where iterations begin."""
    q_nj = votes(evidence.annotations)
    q_nj += smoothing / evidence.annotations.n_classes
    q_nj /= q_nj.sum(axis=1, keepdims=True)
    return clamp(q_nj, evidence)


def agreement(annotations: Annotations) -> Floats:
    """(N, J) share of an item's agreeing pairs of votes that agree on each class; zero rows where no two agree."""
    return agreeing(votes(annotations))


def agreeing(votes_nj: Floats) -> Floats:
    """(N, J) the same, of these numbers of votes.

    A vote alone has no weight: among many items of a common class stray votes for a rare one outnumber its own items.
    """
    pairs_nj = votes_nj * (votes_nj - 1)
    shares_nj: Floats = pairs_nj / np.maximum(pairs_nj.sum(axis=1, keepdims=True), 1.0)
    return shares_nj


def votes(annotations: Annotations) -> Floats:
    """(N, J) number of labels for each class."""
    k, options, j = annotations.n_annotators, annotations.n_options, annotations.n_classes
    return kernels.messages(annotations, np.broadcast_to(np.eye(options, j), (k, options, j)))
