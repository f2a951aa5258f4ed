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
from hitl.models.hierarchy.skills import SkilledRows, Skills
from hitl.models.hierarchy.weighed_labels import Left, Pairs, Tally, Weighed
from hitl.models.hierarchy.weighed_shares import WeighedShares
from hitl.models.inference import em
from hitl.models.inference.engine import Additive, PerShard, Shards
from hitl.models.inference.loop import Expected
from hitl.models.inference.observed_outputs import Observed, Outputs
from hitl.models.numerics import kernels
from hitl.models.priors import Mask

SHARES = 100.0
"""Uniform pseudo-items added to those that the shares are learned from."""


@dataclass(frozen=True, eq=False)
class Round(Additive):
    """End of a round: sum of the changes of beliefs, and (L, J) counts of lone labels."""

    moved: float
    lone_lj: Floats


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
    weighed: Callable[[Evidence], Weighed]
    tally: Tally

    @classmethod
    def of(cls, shards: Shards, anchor: float, outputs: Outputs) -> Self:
        """Count the votes of all shards."""
        weight = shards.total(Pairs.of).weight(outputs.informativeness)
        weighed = shards.once(partial(Weighed.of, weight=weight, informativeness=outputs.informativeness))
        return cls(shards, anchor, outputs, weight, weighed, shards.total(_Tally(weighed)))

    def first(self, first: em.Beliefs) -> tuple[Expected, Floats]:
        """Return the expectations of first beliefs, and (L, J) counts of lone labels."""
        found: FirstCounts = self.shards.total(_FirstCounts(first, self.weighed))
        return Expected(found.counts_klj, found.items_j, 0.0), found.lone_lj

    def ended(self, before: em.Beliefs, after: em.Beliefs) -> Round:
        """Compare beliefs before and after a round."""
        return self.shards.total(_Round(before, after, self.weighed))

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
    ) -> tuple[em.EMResult[WeighedShares, SkilledRows], em.Beliefs]:
        """Iterate from `begun` with the hierarchy held. Also return the beliefs of a shard at the end."""
        prior_on = _PriorOn(self.weighed, self.shards.once(self.outputs.on))
        found = em.run_em(
            self.shards,
            prior,
            SkilledRows.unlearned(self.pseudo_counts(skills)),
            np.empty((0, 0)),  # begun
            tolerance=tolerance,
            max_iterations=most,
            least_labels=least_labels(self.outputs),
            counts_of=_CountsOf(self.weighed),
            prior_on=prior_on,
            begun=begun,
        )
        judge = em.Judge(found.prior, found.annotators.log_pi_klj, prior_on)
        return found, PerShard(judge, self.shards.table, found.q_nj)

    def report(self, skills: Skills, counts: Floats, shares: WeighedShares) -> AnnotatorReport:
        """Report the annotators."""
        alpha_klj = self.anchored(counts)
        alpha_klj += skills.prior_klj
        alpha_kjl = alpha_klj.transpose(0, 2, 1)
        return confusion.report_of(self.shards.annotations, alpha_kjl, shares.share_j, prior=skills.crowd_jl)


@dataclass(frozen=True, eq=False)
class FirstCounts(Additive):
    """Expected counts (K, L, J), weighted items (J,), and counts (L, J) of lone labels."""

    counts_klj: Floats
    items_j: Floats
    lone_lj: Floats


@dataclass(frozen=True, eq=False)
class _FirstCounts:
    beliefs: em.Beliefs
    weighed: Callable[[Evidence], Weighed]

    def __call__(self, evidence: Evidence) -> FirstCounts:
        q_nj, weighed = self.beliefs(evidence), self.weighed(evidence)
        return FirstCounts(weighed.by(q_nj), kernels.totals(q_nj, weighed.weight_n), weighed.lone(q_nj))


@dataclass(frozen=True, eq=False)
class _Round:
    before: em.Beliefs
    after: em.Beliefs
    weighed: Callable[[Evidence], Weighed]

    def __call__(self, evidence: Evidence) -> Round:
        q_nj = self.after(evidence)
        change_nj = q_nj - self.before(evidence)
        moved = float(np.abs(change_nj, out=change_nj).sum())
        return Round(moved, self.weighed(evidence).lone(q_nj))


@dataclass(frozen=True, eq=False)
class _Tally:
    weighed: Callable[[Evidence], Weighed]

    def __call__(self, evidence: Evidence) -> Tally:
        return Tally.of(evidence, self.weighed(evidence))


@dataclass(frozen=True, eq=False)
class _CountsOf:
    """Count the labels of a shard by weighted beliefs."""

    weighed: Callable[[Evidence], Weighed]

    def __call__(self, evidence: Evidence) -> em.Counts:
        weighed = self.weighed(evidence)
        return lambda _annotations, q_nj, _among_n, _log_pi_klj: weighed.by(q_nj)


@dataclass(frozen=True, eq=False)
class _PriorOn:
    """Apply the shares to a shard's items, combined with the models."""

    weighed: Callable[[Evidence], Weighed]
    outputs: Callable[[Evidence], Outputs]

    def __call__(self, prior: WeighedShares, evidence: Evidence) -> Observed[WeighedShares]:
        shares = replace(prior, weight_n=self.weighed(evidence).weight_n)
        return self.outputs(evidence).beside(shares)


def shares_before(left: Left, weight_n: Floats, informativeness: float, model_share_j: Floats) -> WeighedShares:
    """Return shares before any belief: votes left over by the weights (N,), plus uniform pseudo-items."""
    even = SHARES * left.labeled / max(left.counted, 1.0)
    even_j = (1 - informativeness) * spread(left.named_j > 0, left.compared) + informativeness * model_share_j
    left_j = left.left_j if left.counted > 0 else np.zeros(len(even_j))
    return WeighedShares.unlearned(weight_n, left_j + even * even_j + 1 / len(even_j))


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
