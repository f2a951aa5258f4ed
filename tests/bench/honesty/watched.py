"""Where a project with a target accuracy ends, beside where one would end that sees the truth: one replay, all targets.

    stop      the first step at which `stopping.rules.reached` the target
    oracle    the first step from which on, to the last label, the labels of items that are not gold are at the target
    below     at the stop the true accuracy of all labels (gold items are right) is below the target

A replay asks `StopRule.stopped` at each step. `Watched` says that it never is, and notes what it saw.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hitl import score
from hitl.active.replay.experiments import reordered
from hitl.active.replay.replay import Replay
from hitl.active.replay.stop_rule import Stopped, StopRule
from hitl.active.stopping.pool_state import PoolState
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from tests.bench.honesty.crowds import Source

TARGETS = (0.80, 0.90, 0.95)
ITEMS, BATCHES = 600, 30
MOST_AT_ONCE = 3
"""A batch is at most one label for so many items, or a crowd of 40 labels an item would be past the target at once."""
UNKNOWABLE, INTERVAL = "unknowable", "interval"
"""Why it does not stop: labels as these cannot say how good they are; the interval does not reach the target."""
NEAR = 1e-12

Row = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """What stood before one plan.

    Attributes:
        labels: spent, those of gold items among them.
        claimed, sure: accuracy expected, and what it surely is.
        unknowable: whether the labels cannot say how good they are.
        accuracy, others: true accuracy of all labels, and of those of items that are not gold; ties shared.
    """

    labels: int
    claimed: float
    sure: float
    unknowable: bool
    accuracy: float
    others: float


@dataclass(frozen=True, slots=True, eq=False)
class Watched(StopRule):
    """A stop rule that never stops, and keeps what it saw of each step."""

    steps: list[Step] = field(default_factory=list)

    def stopped(self, pool: PoolState, known: Evidence, spent: int) -> Stopped | None:
        """None; every item has a truth in `known`."""
        (evidence, consensus), expected = pool[0], pool.expected
        assert known.truth is not None
        gold = evidence.known
        others = score.accuracy(consensus.probabilities[~gold], known.truth[~gold])
        accuracy = float(gold.mean() + (1 - gold.mean()) * others)
        step = Step(spent, expected.accuracy, expected.sure, bool(expected.unknowable), accuracy, others)
        self.steps.append(step)
        return None


def part(evidence: Evidence, items: int, rng: np.random.Generator) -> Evidence:
    """At most so many items with a label and known truth, drawn at random, and those who labelled them."""
    a = evidence.annotations
    assert evidence.truth is not None
    candidates = np.flatnonzero(evidence.known & (a.labels_per_item > 0))
    rows = rng.choice(candidates, min(items, candidates.size), replace=False)
    place_n = np.full(a.n_items, -1, dtype=np.int32)
    place_n[rows] = np.arange(rows.size)
    kept = place_n[a.item] >= 0
    people, annotator = np.unique(a.annotator[kept], return_inverse=True)
    some = replace(
        a,
        item=place_n[a.item[kept]],
        annotator=annotator.astype(np.int32),
        label=a.label[kept],
        items=tuple(a.items[n] for n in rows),
        annotators=tuple(a.annotators[k] for k in people),
    )
    return Evidence(some, truth=evidence.truth[rows])


def batch_of(evidence: Evidence) -> int:
    """Labels a plan: a thirtieth of all, or a label for every third item if that is less."""
    a = evidence.annotations
    return max(1, min(math.ceil(len(a) / BATCHES), a.n_items // MOST_AT_ONCE))


def watched(source: Source, gold: int) -> list[Row]:
    """A row for each target: one replay of the default policy and combiner, that no item is done for."""
    rng = np.random.default_rng([source.seed, zlib.crc32(source.name.encode())])
    evidence = reordered(part(source.whole(), ITEMS, rng), rng)
    budget = Budget(batch_of(evidence), 1.0, min_labels=0, max_labels=2**31 - 1)
    rule = Watched(max(TARGETS), gold)
    Replay(DefaultCombiner(), budget=budget, stop=rule).run(evidence, rng)
    where = {"kind": source.kind, "group": source.group, "set": source.name, "seed": source.seed, "gold": gold}
    return [where | ended(rule.steps, target) for target in TARGETS]


def ended(steps: Sequence[Step], target: float) -> Row:
    """Where it would have stopped, where it should have, and why it did not; None where there is nothing."""
    stop = next((step for step in steps if step.sure >= target and not step.unknowable), None)
    low = [number for number, step in enumerate(steps) if step.others < target - NEAR]
    first = low[-1] + 1 if low else 0
    last = steps[-1]
    return {
        "target": target,
        "all labels": last.labels,
        "labels": None if stop is None else stop.labels,
        "oracle": steps[first].labels if first < len(steps) else None,
        "claimed": None if stop is None else stop.claimed,
        "sure": None if stop is None else stop.sure,
        "true": None if stop is None else stop.accuracy,
        "others": None if stop is None else stop.others,
        "why": None if stop is not None else UNKNOWABLE if last.unknowable else INTERVAL,
        "end": last.accuracy,
        "sure at the end": last.sure,
    }
