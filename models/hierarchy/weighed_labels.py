"""Weights of labels and items in the hierarchy. All statistics add up over shards, given the overall weight u."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.inference.engine import Additive
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.votes import agreement, labels_of_a_class
from hitl.models.priors import Mask, Posterior
from hitl.models.priors.shares import Shares


@dataclass(frozen=True, eq=False)
class Pairs(Additive):
    """Items with two or more class labels, their labels, and how many of the items models predict."""

    items: int
    labels: int
    predicted: int

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Count one shard."""
        labels_n = labels_of_a_class(evidence.annotations)
        several_n = labels_n >= 2
        predicted = int(np.count_nonzero(several_n & evidence.predicted))
        return cls(int(several_n.sum()), int(labels_n[several_n].sum()), predicted)

    def weight(self, informativeness: float) -> float:
        """Return u in [0, 1]: one label per item is spent on its class, less the part that models predict."""
        return 1 - (self.items - informativeness * self.predicted) / max(self.labels, 1) if self.items else 0.0


@dataclass(frozen=True, eq=False)
class Weighed:
    """Weights of the labels of a shard.

    Attributes:
        annotations: the labels.
        weight_n: (N,) weight of an item: u, or 1 with known truth, or the models' information with less than two
            labels.
        lone_n: (N,) True for items with one class label and no known truth.
        crowd_n: (N,) weight of a lone label for the crowd: u, less the models' information about its item.
    """

    annotations: Annotations
    weight_n: Floats
    lone_n: npt.NDArray[np.bool_]
    crowd_n: Floats

    @classmethod
    def of(cls, evidence: Evidence, weight: float, informativeness: float) -> Self:
        """Compute weights from numbers of labels, known truth, and the models' information about an item's class."""
        labels_n = labels_of_a_class(evidence.annotations)
        informativeness_n = np.where(evidence.predicted, informativeness, 0.0)
        weight_n = np.where(evidence.known, 1.0, np.where(labels_n >= 2, weight, informativeness_n))
        return cls(evidence.annotations, weight_n, (labels_n == 1) & ~evidence.known, weight * (1 - informativeness_n))

    @cached_property
    def lone_m(self) -> npt.NDArray[np.intp]:
        """Rows of the labels of items with one label."""
        return np.flatnonzero(self.lone_n[self.annotations.item])

    def by(self, q_nj: Floats) -> Floats:
        """Return (K, L, J) expected counts by beliefs (N, J)."""
        return kernels.counts(self.annotations, q_nj, self.weight_n)

    def lone(self, q_nj: Floats) -> Floats:
        """Return (L, J) expected counts of lone labels by beliefs."""
        label_m, item_m = self.annotations.label[self.lone_m], self.annotations.item[self.lone_m]
        said = self.crowd_n[item_m], (label_m, np.arange(len(label_m)))
        return np.asarray(sparse.csr_array(said, shape=(self.annotations.n_options, len(label_m))) @ q_nj[item_m])


@dataclass(frozen=True, eq=False)
class Left(Additive):
    """Votes that the weights leave over.

    Attributes:
        left_j: (J,) votes, in items, less the weights.
        named_j: (J,) items with a label, or known truth, of the class.
        counted, labeled: sum of the weights, and number, of items with a label or known truth.
        compared: items with two class labels, or known truth.
    """

    left_j: Floats
    named_j: npt.NDArray[np.int64]
    counted: float
    labeled: int
    compared: int

    @classmethod
    def by_weights(cls, evidence: Evidence, weighed: Weighed, **others: Floats) -> Self:
        """Count one shard, with `others` of its fields."""
        annotations, weight_n = evidence.annotations, weighed.weight_n
        votes_nj = clamp(kernels.votes(annotations), evidence)
        votes_nj = votes_nj / np.maximum(votes_nj.sum(axis=1, keepdims=True), 1.0)
        unlabeled_n = (annotations.labels_per_item == 0) & ~evidence.known
        counted = float(weight_n.sum() - weight_n[unlabeled_n].sum())
        labeled = annotations.n_items - int(np.count_nonzero(unlabeled_n))
        compared = int(np.count_nonzero((labels_of_a_class(annotations) >= 2) | evidence.known))
        left_j = kernels.totals(votes_nj, 1 - weight_n)
        return cls(left_j, np.count_nonzero(votes_nj, axis=0), counted, labeled, compared, **others)


@dataclass(frozen=True, eq=False)
class Tally(Left):
    """Sums over votes; `votes_klj` (K, L, J) are weighted counts by the shares of agreeing pairs of votes."""

    votes_klj: Floats

    @classmethod
    def of(cls, evidence: Evidence, weighed: Weighed) -> Self:
        """Count one shard."""
        agreed_nj = clamp(agreement(evidence.annotations), evidence)
        return cls.by_weights(evidence, weighed, votes_klj=weighed.by(agreed_nj))


@dataclass(frozen=True, eq=False)
class WeighedShares(Shares):
    """Class shares learned from weighted items, in addition to pseudo-items (J,), `smoothing`.

        z_n ~ Cat(p)      p ~ Dirichlet(smoothing + 1)      and item n counts u_n = weight_n in [0, 1] of an item

    They maximize  sum_n u_n log evidence_n  +  sum_j smoothing_j log p_j.
    """

    weight_n: Floats = field(default_factory=lambda: np.empty(0))

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        q_nj, log_evidence_n = kernels.beliefs(message_nj, self.log_prior(), out=message_nj)
        (log_evidence,) = kernels.totals(log_evidence_n[:, None], self.weight_n)
        return Posterior(q_nj, float(log_evidence), self.statistics(q_nj, counted_n))

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Floats:
        return kernels.totals(q_nj, self.weight_n)
