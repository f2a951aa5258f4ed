"""The correction of confidence over shards: what it needs of all items are sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.design_effect import DesignEffect
from hitl.evidence import Evidence
from hitl.models.dependence.design_effect import (
    Independent,
    KnownItems,
    by_crowd,
    held_out,
    independent_by,
)
from hitl.models.dependence.uneven_errors import crowd_counts
from hitl.models.inference.gathered import over_shards
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.over_shards import Beliefs
from hitl.models.inference.passes import Additive, Engine
from hitl.models.numerics.answers import answered
from hitl.models.numerics.clamping import clamp

RATIO_VARIANCE = 0.25
"""Variance of r, the wrong answers there are for each that is expected, in the intervals of annotators.

With it they hold the share of right answers of 88 to 94 % of the annotators of public crowds with three labels an item
or more (docs/benchmarks/honesty.txt); without it of 68 %."""


@dataclass(frozen=True, eq=False)
class Answers(Additive):
    """What is said of annotators' answers: (K, 3) `numerics.answers.answered`, and (K,) the sum of doubts."""

    answers_k3: Floats
    doubted_k: Floats

    @classmethod
    def of(cls, annotations: Annotations, q_nj: Floats) -> Answers:
        """By beliefs (N, J)."""
        return cls(*answered(annotations, q_nj))

    def reported(self) -> Floats:
        """(K, 3) right and wrong answers of each annotator, and the variance of that number.

        Beside the chance errors of each label there is one that labels share: of all that are expected to be wrong, r
        times as many may be. It widens the interval of those most whose items are least certain.
        """
        return np.asarray(self.answers_k3 + np.outer(RATIO_VARIANCE * self.doubted_k**2, [0.0, 0.0, 1.0]))


@dataclass(frozen=True, eq=False)
class ByRows:
    """A shard -> its posterior under independence, as if no truth were known.

    By log chances of answers (K, L, J), class shares (J,), and the models, which are over no items.
    """

    log_pi_klj: Floats
    share_j: Floats
    outputs: Outputs

    def __call__(self, evidence: Evidence) -> Independent:
        """Of a shard."""
        outputs = self.outputs.on(evidence)
        return independent_by(evidence.annotations, self.log_pi_klj, self.share_j, outputs)


@dataclass(frozen=True, eq=False)
class Tempered:
    """Beliefs with a design effect, known truths put in."""

    judged: ByRows
    effect: DesignEffect

    def __call__(self, evidence: Evidence) -> Floats:
        """(N, J) of a shard."""
        return clamp(self.judged(evidence).tempered(self.effect), evidence)


def of_annotators(
    shards: Sequence[Evidence],
    engine: Engine,
    beliefs: Beliefs,
    alpha_kjl: Floats,
    share_j: Floats,
    outputs: Outputs,
) -> DesignEffect:
    """What `design_effect.of_annotators` finds of one table."""
    counted: Counted = engine.total(_Counted(beliefs), shards)
    if not counted.known:
        return by_crowd(counted.counts_lj, outputs, None)
    held_out = over_shards(engine, shards, _HeldOut(alpha_kjl, share_j, outputs), counted.known * share_j.size)
    return by_crowd(counted.counts_lj, outputs, held_out)


def answers(shards: Sequence[Evidence], engine: Engine, beliefs: Beliefs) -> Answers:
    """The answers of all annotators, by beliefs."""
    found: Answers = engine.total(_Answers(beliefs), shards)
    return found


@dataclass(frozen=True, eq=False)
class Counted(Additive):
    """(J, J) counts of the crowd, and how many items have a known truth."""

    counts_lj: Floats
    known: int


@dataclass(frozen=True, eq=False)
class _Counted:
    beliefs: Beliefs

    def __call__(self, evidence: Evidence) -> Counted:
        return Counted(crowd_counts(evidence, self.beliefs(evidence)), _known(evidence))


@dataclass(frozen=True, eq=False)
class _HeldOut:
    alpha_kjl: Floats
    share_j: Floats
    outputs: Outputs

    def __call__(self, evidence: Evidence) -> KnownItems:
        return held_out(evidence, self.alpha_kjl, self.share_j, self.outputs.on(evidence))


@dataclass(frozen=True, eq=False)
class _Answers:
    beliefs: Beliefs

    def __call__(self, evidence: Evidence) -> Answers:
        return Answers.of(evidence.annotations, self.beliefs(evidence))


def _known(evidence: Evidence) -> int:
    return int(evidence.known.sum())
