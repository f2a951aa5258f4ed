"""Weights of labels and items, and weighted label counts in dense tables (K, L, J); see `hierarchical_dawid_skene`.

All statistics add up over shards, given the overall weight u.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.annotators.confusion import Confusion
from hitl.models.hierarchy.ordered_skills import MOST_CLASSES, learn_ordered
from hitl.models.hierarchy.skills import ROWS, Skills
from hitl.models.inference import em
from hitl.models.inference.engine import Additive, PerShard, Shards, Sums
from hitl.models.inference.loop import Expected
from hitl.models.inference.observed_outputs import Observed, Outputs
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.votes import agreement, labels_of_a_class
from hitl.models.priors import Mask, Posterior
from hitl.models.priors.shares import Shares

SHARES = 100.0
"""Number of uniform pseudo-items added to the items that class shares are learned from."""


@dataclass(frozen=True, eq=False)
class Pairs(Additive):
    """Items with two or more class labels, and lone labels: the only class label of an item without ground truth.

    Attributes:
        items, labels, predicted: number of such items, of their class labels, and of those that models predict.
        compared_k, lone_k: (K,) number of each annotator's labels that are not lone, and that are.
    """

    items: int
    labels: int
    predicted: int
    compared_k: Floats
    lone_k: Floats

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Count one shard."""
        labels_n = labels_of_a_class(evidence.annotations)
        several_n = labels_n >= 2
        predicted = int(np.count_nonzero(several_n & evidence.predicted))
        annotator, people = evidence.annotations.annotator, evidence.annotations.n_annotators
        lone_k = np.bincount(annotator[lone(evidence)], minlength=people).astype(np.float64)
        compared_k = np.bincount(annotator, minlength=people) - lone_k
        return cls(int(several_n.sum()), int(labels_n[several_n].sum()), predicted, compared_k, lone_k)

    def weight(self, informativeness: float) -> float:
        """Return u in [0, 1]: the fraction of labels left if each item uses one for its class, or less with models."""
        return 1 - (self.items - informativeness * self.predicted) / max(self.labels, 1) if self.items else 0.0

    def lone_weights(self, informativeness: float) -> Floats:
        """Return (K,) weights in [0, 1] of lone labels, which together count at most as much as the compared ones."""
        share_k = np.minimum(1.0, self.compared_k / np.maximum(self.lone_k, 1.0))
        return np.asarray(self.weight(informativeness) * share_k)


def lone(evidence: Evidence) -> Mask:
    """Return (M,) True for lone labels: the only label of an item that names a class, if its truth is unknown."""
    annotations = evidence.annotations
    lone_n = (labels_of_a_class(annotations) == 1) & ~evidence.known
    return np.asarray(lone_n[annotations.item] & (annotations.label < annotations.n_classes))


@dataclass(frozen=True, eq=False)
class Weighed:
    """Weights of the labels of a shard.

    Attributes:
        annotations: the labels.
        weight_n: (N,) weight of each item: 1 with ground truth, else u with two or more class labels, or that of its
            annotator's lone labels with one, but no less than the models' informativeness if they predict it.
    """

    annotations: Annotations
    weight_n: Floats

    @classmethod
    def of(cls, evidence: Evidence, pairs: Pairs, informativeness: float) -> Self:
        """Compute weights from `pairs`, which are those of all shards, and the models' informativeness."""
        annotations, alone_m = evidence.annotations, lone(evidence)
        weight_n = np.where(labels_of_a_class(annotations) >= 2, pairs.weight(informativeness), 0.0)
        lone_k = pairs.lone_weights(informativeness)
        weight_n[annotations.item[alone_m]] = lone_k[annotations.annotator[alone_m]]
        weight_n = np.maximum(weight_n, np.where(evidence.predicted, informativeness, 0.0))
        return cls(annotations, np.where(evidence.known, 1.0, weight_n))

    def by(self, q_nj: Floats) -> Floats:
        """Return (K, L, J) weighted expected counts by beliefs (N, J)."""
        return kernels.counts(self.annotations, q_nj, self.weight_n)


@dataclass(frozen=True, eq=False)
class Left(Additive):
    """Votes of the part of each item, 1 - weight, that the weights leave over.

    Attributes:
        left_j: (J,) sum over items of (1 - weight) times the item's vote fractions.
        named_j: (J,) number of items with a label, or ground truth, of class j.
        counted, labeled: sum of the weights, and number, of the items with a label or ground truth.
        compared: number of items with two or more class labels, or ground truth.
    """

    left_j: Floats
    named_j: npt.NDArray[np.int64]
    counted: float
    labeled: int
    compared: int

    @classmethod
    def by_weights(cls, evidence: Evidence, weighed: Weighed, **others: Floats) -> Self:
        """Count one shard; `others` are fields of a subclass."""
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
    """Sums over votes. `votes_klj` (K, L, J): weighted counts, with fractions of agreeing pairs of votes as beliefs."""

    votes_klj: Floats

    @classmethod
    def of(cls, evidence: Evidence, weighed: Weighed) -> Self:
        """Count one shard."""
        agreed_nj = clamp(agreement(evidence.annotations), evidence)
        return cls.by_weights(evidence, weighed, votes_klj=weighed.by(agreed_nj))


@dataclass(frozen=True, eq=False)
class WeighedShares(Shares):
    """Class shares learned from weighted items and from pseudo-items (J,), `smoothing`.

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


@dataclass(frozen=True, eq=False)
class GivenShares(WeighedShares):
    """Class shares that are given, and not learned."""

    def learn(self, statistics: Floats) -> Self:
        """Return the same shares."""
        return self


@dataclass(frozen=True, eq=False)
class Reading:
    """One of two explanations of the same labels; see `hierarchical_dawid_skene`.

    Attributes:
        anchor: weight v of agreeing votes in the counts, in [0, 1).
        recalls: strength of the prior that holds the crowd's recalls together, in labels; None: learned.
        share_j: (J,) given class shares; None: learned.
    """

    anchor: float
    recalls: float | None = ROWS
    share_j: Floats | None = None


WeighedOf = Callable[[Evidence], Weighed]
"""A shard -> its labels with their weights."""


@dataclass(frozen=True, eq=False)
class Counted:
    """Counts of all labels, in dense tables.

    Attributes:
        shards: the evidence.
        reading: the explanation of the labels.
        outputs: the models, over no items.
        weighed: function: shard -> its labels with their weights.
        tally: sums over the votes.
    """

    shards: Shards
    reading: Reading
    outputs: Outputs
    weighed: WeighedOf
    tally: Tally

    @classmethod
    def of(cls, shards: Shards, reading: Reading, outputs: Outputs) -> Self:
        """Count the votes of all shards."""
        pairs = shards.total(Pairs.of)
        weighed = shards.once(partial(Weighed.of, pairs=pairs, informativeness=outputs.informativeness))
        return cls(shards, reading, outputs, weighed, shards.total(partial(_tally, weighed=weighed)))

    def first(self, first: em.Beliefs) -> Expected:
        """Return the expectations by first beliefs."""
        counts_klj, items_j = self.shards.total(partial(_first, beliefs=first, weighed=self.weighed))
        return Expected(counts_klj, items_j, 0.0)

    def moved(self, before: em.Beliefs, after: em.Beliefs) -> float:
        """Return the sum of the absolute changes of beliefs in a round."""
        (moved,) = self.shards.total(partial(_moved, before=before, after=after))
        return float(moved)

    def skills(self, counts: Floats, accuracy: float) -> Skills:
        """Learn the hierarchy from expected counts (K, L, J), which are anchored first."""
        annotations = self.shards.annotations
        in_order = annotations.ordered and annotations.n_classes <= MOST_CLASSES
        learn = learn_ordered if in_order else Skills.learned
        return learn(self.anchored(counts), accuracy, self.reading.recalls)

    def anchored(self, counts_klj: Floats) -> Floats:
        """Return (K, L, J) anchored counts: (1 - v) times the counts by beliefs plus v times the counts by votes."""
        anchor = self.reading.anchor
        learned_klj: Floats = anchor / (1 - anchor) * self.tally.votes_klj
        learned_klj += counts_klj
        learned_klj *= 1 - anchor
        return learned_klj

    def pseudo_counts(self, skills: Skills) -> Floats:
        """Return (K, L, J) pseudo-counts to add to the counts by beliefs: votes and prior, divided by 1 - v."""
        pseudo_klj: Floats = self.reading.anchor * self.tally.votes_klj
        pseudo_klj += skills.prior_klj
        pseudo_klj /= 1 - self.reading.anchor
        return pseudo_klj

    def shares(self) -> WeighedShares:
        """Return the class shares before any belief is known, over no items."""
        given_j = self.reading.share_j
        if given_j is not None:
            return GivenShares(given_j, np.zeros(given_j.size), np.empty(0))
        return shares_before(self.tally, np.empty(0), self.outputs.informativeness, self.outputs.share_j)

    def run_em(
        self, prior: WeighedShares, skills: Skills, begun: Expected, tolerance: float, most: int
    ) -> tuple[em.EMResult[WeighedShares, Confusion], em.Beliefs]:
        """Iterate from `begun` with the hierarchy held fixed. Also return the beliefs of a shard at the end."""
        prior_on = partial(_prior_on, weighed=self.weighed, outputs=self.shards.once(self.outputs.on))
        found = em.run_em(
            self.shards,
            prior,
            Confusion.expected(self.pseudo_counts(skills)),
            np.empty((0, 0)),  # not used, because of `begun`
            tolerance=tolerance,
            max_iterations=most,
            least_labels=least_labels(self.outputs),
            counts=partial(_counts, weighed=self.weighed),
            prior_on=prior_on,
            begun=begun,
        )
        judge = partial(em.judge, prior=found.prior, log_pi_klj=found.annotators.log_pi_klj, prior_on=prior_on)
        return found, PerShard(judge, self.shards.table, found.q_nj)

    def report(self, skills: Skills, counts: Floats, shares: WeighedShares) -> AnnotatorReport:
        """Report the annotators."""
        alpha_klj = self.anchored(counts)
        alpha_klj += skills.prior_klj
        alpha_kjl = alpha_klj.transpose(0, 2, 1)
        return confusion.report_of(self.shards.annotations, alpha_kjl, shares.share_j, prior=skills.crowd_jl)


def _first(evidence: Evidence, beliefs: em.Beliefs, weighed: WeighedOf) -> Sums:
    """Return expected counts (K, L, J), and weighted numbers of items (J,)."""
    q_nj, own = beliefs(evidence), weighed(evidence)
    return Sums((own.by(q_nj), kernels.totals(q_nj, own.weight_n)))


def _moved(evidence: Evidence, before: em.Beliefs, after: em.Beliefs) -> Sums:
    change_nj = after(evidence) - before(evidence)
    return Sums((float(np.abs(change_nj, out=change_nj).sum()),))


def _tally(evidence: Evidence, weighed: WeighedOf) -> Tally:
    return Tally.of(evidence, weighed(evidence))


def _counts(evidence: Evidence, q_nj: Floats, among_n: Mask, log_pi_klj: Floats, weighed: WeighedOf) -> Floats:
    return weighed(evidence).by(q_nj)


def _prior_on(
    prior: WeighedShares, evidence: Evidence, weighed: WeighedOf, outputs: Callable[[Evidence], Outputs]
) -> Observed[WeighedShares]:
    """Apply the shares to a shard's items, combined with the models."""
    return outputs(evidence).beside(replace(prior, weight_n=weighed(evidence).weight_n))


def shares_before(left: Left, weight_n: Floats, informativeness: float, model_share_j: Floats) -> WeighedShares:
    """Return class shares before any belief is known: from the votes left over by the weights, and pseudo-items."""
    even = SHARES * left.labeled / max(left.counted, 1.0)
    even_j = (1 - informativeness) * spread(left.named_j > 0, left.compared) + informativeness * model_share_j
    left_j = left.left_j if left.counted > 0 else np.zeros(len(even_j))
    pseudo_j = left_j + even * even_j + 1 / len(even_j)
    return WeighedShares(pseudo_j / pseudo_j.sum(), pseudo_j, weight_n)


def spread(named_j: Mask, compared: int) -> Floats:
    """Return (J,) shares: uniform over the classes in use, with the remainder for classes to come.

    `named_j` (J,): True if a label or ground truth names the class. `compared`: the number n of items with two labels
    or ground truth. The next item is of a new class with probability 1 / (n + 1), as in a Chinese restaurant process of
    concentration 1 (Ewens 1972), or less if few classes are left. Lone labels carry no information about this: if only
    one annotator marked an object, no other annotator could answer that there is none.
    """
    unnamed = int(np.count_nonzero(~named_j))
    left = min(unnamed / named_j.size, 1 / (compared + 1))
    named = named_j.size - unnamed
    return np.where(named_j, (1 - left) / max(named, 1), left / max(unnamed, 1))


def least_labels(outputs: Outputs) -> int:
    """Return the minimum number of labels of items that EM learns from: one label alone is useless without models."""
    return 2 if outputs.pool is None else 1
