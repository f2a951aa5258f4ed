"""How much labels count for the hierarchy; all of it adds up over shards, given the weight u of them all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.inference.passes import Additive
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.votes import agreement, labels_of_a_class, votes


@dataclass(frozen=True, eq=False)
class Pairs(Additive):
    """Items with two labels or more that are a class, and their labels."""

    items: int
    labels: int

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Of a shard."""
        labels_n = labels_of_a_class(evidence.annotations)
        several_n = labels_n >= 2
        return cls(int(several_n.sum()), int(labels_n[several_n].sum()))

    @property
    def weight(self) -> float:
        """u, in [0, 1): one label of each item is spent on its class."""
        return 1 - self.items / max(self.labels, 1) if self.items else 0.0


@dataclass(frozen=True, eq=False)
class Weighed:
    """What counts of the labels of a shard.

    Attributes:
        annotations: the labels.
        weight_n: (N,) how much an item counts: u, 1 with known truth, 0 with less than two labels.
        lone_n: (N,) items with one label that is a class, and no known truth.
        weight: u.
    """

    annotations: Annotations
    weight_n: Floats
    lone_n: npt.NDArray[np.bool_]
    weight: float

    @classmethod
    def of(cls, evidence: Evidence, weight: float) -> Self:
        """By the number of labels of each item, and by known truth."""
        labels_n = labels_of_a_class(evidence.annotations)
        weight_n = np.where(evidence.known, 1.0, weight * (labels_n >= 2))
        return cls(evidence.annotations, weight_n, (labels_n == 1) & ~evidence.known, weight)

    @cached_property
    def lone_m(self) -> npt.NDArray[np.intp]:
        """Which labels are about items with one."""
        return np.flatnonzero(self.lone_n[self.annotations.item])

    def by(self, q_nj: Floats) -> Floats:
        """(K, L, J) expected counts by beliefs (N, J)."""
        return kernels.counts(self.annotations, q_nj, self.weight_n)

    def lone(self, q_nj: Floats) -> Floats:
        """(L, J) expected counts of lone labels by beliefs."""
        label_m, q_mj = self.annotations.label[self.lone_m], q_nj[self.annotations.item[self.lone_m]]
        options = self.annotations.n_options
        said = np.ones(len(label_m)), (label_m, np.arange(len(label_m)))
        lone_lj: Floats = sparse.csr_array(said, shape=(options, len(label_m))) @ q_mj
        return self.weight * lone_lj


@dataclass(frozen=True, eq=False)
class Tally(Additive):
    """What votes say.

    Attributes:
        votes_klj: (K, L, J) counts by the shares of agreeing pairs of votes, weighed.
        left_j: (J,) votes, in items, less the weights.
        named_j: (J,) items that anybody has named so.
        counted, labeled: sum of the weights, and number of items with a label or known truth.
    """

    votes_klj: Floats
    left_j: Floats
    named_j: npt.NDArray[np.int64]
    counted: float
    labeled: int

    @classmethod
    def of(cls, evidence: Evidence, weighed: Weighed) -> Self:
        """Of a shard."""
        annotations, weight_n = evidence.annotations, weighed.weight_n
        agreed_nj = clamp(agreement(annotations), evidence)
        votes_klj = kernels.counts(annotations, agreed_nj, weight_n)
        votes_nj = clamp(votes(annotations), evidence)
        votes_nj = votes_nj / np.maximum(votes_nj.sum(axis=1, keepdims=True), 1.0)
        labeled = int(((annotations.labels_per_item > 0) | evidence.known).sum())
        left_j = (1 - weight_n) @ votes_nj
        return cls(votes_klj, left_j, np.count_nonzero(votes_nj, axis=0), float(weight_n.sum()), labeled)
