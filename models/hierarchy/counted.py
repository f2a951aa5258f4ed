"""Weighted label counts for the hierarchy, in whole tables (K, L, J); see `hierarchical_dawid_skene`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import AnnotatorReport
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.annotators.confusion import Confusion
from hitl.models.hierarchy.skills import Skills
from hitl.models.hierarchy.weighed_labels import Left, Pairs, Tally, Weighed, WeighedShares
from hitl.models.inference import em
from hitl.models.inference.engine import PerShard, Shards, Sums
from hitl.models.inference.loop import Expected
from hitl.models.inference.observed_outputs import Observed, Outputs
from hitl.models.numerics import kernels
from hitl.models.priors import Mask

SHARES = 100.0
"""Uniform pseudo-items added to those that the shares are learned from."""

WeighedOf = Callable[[Evidence], Weighed]


@dataclass(frozen=True, eq=False)
class Counted:
    """Counts of all labels, in whole tables.

    Attributes:
        shards: the evidence.
        anchor: w, weight of the votes, in [0, 1).
        outputs: the models, over no items.
        weight: u, in [0, 1).
        weighed: a shard -> its labels, and their weights.
        tally: sums over the votes.
    """

    shards: Shards
    anchor: float
    outputs: Outputs
    weight: float
    weighed: WeighedOf
    tally: Tally

    @classmethod
    def of(cls, shards: Shards, anchor: float, outputs: Outputs) -> Self:
        """Count the votes of all shards."""
        weight = shards.total(Pairs.of).weight(outputs.informativeness)
        weighed = shards.once(partial(Weighed.of, weight=weight, informativeness=outputs.informativeness))
        return cls(shards, anchor, outputs, weight, weighed, shards.total(partial(_tally, weighed=weighed)))

    def first(self, first: em.Beliefs) -> tuple[Expected, Floats]:
        """Return the expectations of first beliefs, and (L, J) counts of lone labels."""
        counts_klj, items_j, lone_lj = self.shards.total(partial(_first, beliefs=first, weighed=self.weighed))
        return Expected(counts_klj, items_j, 0.0), lone_lj

    def ended(self, before: em.Beliefs, after: em.Beliefs) -> Sums:
        """Return the sum of the changes of beliefs in a round, and (L, J) counts of lone labels at its end."""
        return self.shards.total(partial(_round, before=before, after=after, weighed=self.weighed))

    def skills(self, counts: Floats, lone_lj: Floats, accuracy: float) -> Skills:
        """Learn the hierarchy from expected counts, anchored, and lone labels."""
        return Skills.learned(self.anchored(counts), accuracy, lone_lj)

    def anchored(self, counts_klj: Floats) -> Floats:
        """Return (K, L, J) anchored counts from counts by beliefs."""
        learned_klj: Floats = self.anchor / (1 - self.anchor) * self.tally.votes_klj
        learned_klj += counts_klj
        learned_klj *= 1 - self.anchor
        return learned_klj

    def pseudo_counts(self, skills: Skills) -> Floats:
        """Return (K, L, J) pseudo-counts added to the counts by beliefs, in the same unit."""
        pseudo_klj: Floats = self.anchor * self.tally.votes_klj
        pseudo_klj += skills.prior_klj
        pseudo_klj /= 1 - self.anchor
        return pseudo_klj

    def shares(self) -> WeighedShares:
        """Return the shares before any belief, over no items."""
        return shares_before(self.tally, np.empty(0), self.outputs.informativeness, self.outputs.share_j)

    def run_em(
        self, prior: WeighedShares, skills: Skills, begun: Expected, tolerance: float, most: int
    ) -> tuple[em.EMResult[WeighedShares, Confusion], em.Beliefs]:
        """Iterate from `begun` with the hierarchy held. Also return the beliefs of a shard at the end."""
        prior_on = partial(_prior_on, weighed=self.weighed, outputs=self.shards.once(self.outputs.on))
        found = em.run_em(
            self.shards,
            prior,
            Confusion.expected(self.pseudo_counts(skills)),
            np.empty((0, 0)),  # begun
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
    """Return expected counts (K, L, J), weighted items (J,), and counts (L, J) of lone labels."""
    q_nj, own = beliefs(evidence), weighed(evidence)
    return Sums((own.by(q_nj), kernels.totals(q_nj, own.weight_n), own.lone(q_nj)))


def _round(evidence: Evidence, before: em.Beliefs, after: em.Beliefs, weighed: WeighedOf) -> Sums:
    q_nj = after(evidence)
    change_nj = q_nj - before(evidence)
    return Sums((float(np.abs(change_nj, out=change_nj).sum()), weighed(evidence).lone(q_nj)))


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
    """Return shares before any belief: votes left over by the weights (N,), plus uniform pseudo-items."""
    even = SHARES * left.labeled / max(left.counted, 1.0)
    even_j = (1 - informativeness) * spread(left.named_j > 0, left.compared) + informativeness * model_share_j
    left_j = left.left_j if left.counted > 0 else np.zeros(len(even_j))
    pseudo_j = left_j + even * even_j + 1 / len(even_j)
    return WeighedShares(pseudo_j / pseudo_j.sum(), pseudo_j, weight_n)


def spread(named_j: Mask, compared: int) -> Floats:
    """Return (J,) shares: uniform over the classes in use, with the remainder for classes to come.

    `named_j` (J,): True if a label or a known truth names the class. `compared`: the n items with two labels or known
    truth. The next item is of a new class with probability 1 / (n + 1), as in a Chinese restaurant process of
    concentration 1 (Ewens 1972), or less if few classes are left. Lone labels carry no information about this: if one
    annotator marked a part of an item, no other annotator could have said that there is nothing.
    """
    unnamed = int(np.count_nonzero(~named_j))
    left = min(unnamed / named_j.size, 1 / (compared + 1))
    named = named_j.size - unnamed
    return np.where(named_j, (1 - left) / max(named, 1), left / max(unnamed, 1))


def least_labels(outputs: Outputs) -> int:
    """Return the minimum number of labels of an item from which EM learns: one alone is useless, except with models."""
    return 2 if outputs.pool is None else 1
