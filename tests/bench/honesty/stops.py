"""Where a project with a target accuracy stops, what it takes to prove it there, and how often either is wrong.

    python -m tests.bench.honesty.stops [--seeds 5] [--sets rte independent ...] [--save]

Real crowds with named annotators and simulated ones (`honesty.crowds`), at most 600 items with known truth of each;
targets from .60 to .98; without known truth, and with 30 gold items that three annotators answer each before the first
plan. A replay goes to the last recorded label: 30 batches, of at most a label for every third item. A seed draws the
items, the gold items and the simulated crowds. One replay serves all targets:

    stop      the first step at which the labels are believed to reach the target (`StopRule`)
    oracle    the first step from which on, to the last label, the labels of items that are not gold are at the target
    below     at the stop the true accuracy of all labels (gold items are right) is below the target
    proven    at most AUDITS audits of all labels at the stop prove the target, with a confidence of 95 %
    false     what is proven is not true: corrected by what the audits found, the labels are below the target

Every item done (`honesty.finished`): labels of the default beside VB-IBCC's where annotators err independently.

A run is one crowd, seed and target. Shares of runs have the standard error of as many independent ones; runs of one
crowd are alike, so that the crowds are named on which the target was missed.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from hitl import score
from hitl.active.guarantees.audit import PROVEN, Audit, Promise
from hitl.active.pool_state import PoolState
from hitl.active.replay.experiments import reordered
from hitl.active.replay.replay import GOLD_LABELS, Replay, Stopped, StopRule
from hitl.active.stopping.rules import Expected, reached
from hitl.annotations import Floats
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from tests.bench import results
from tests.bench.honesty import finished
from tests.bench.honesty.crowds import POOLED, REAL, SIMULATED, Source, part, sources

GOLD = (0, 30)
TARGETS = (0.60, 0.70, 0.80, 0.90, 0.95, 0.98)
ITEMS, BATCHES = 600, 30
MOST_AT_ONCE = 3
"""A batch is at most one label for so many items, or a crowd of 40 labels an item would be past the target at once."""
AUDITS = 300
NEAR = 1e-12
MISSED, TIMES = 0.05, 1.6
"""Share of stops that may be proven although they are below the target; labels in terms of the oracle's, median."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """What stood before one plan.

    Attributes:
        labels: spent, those of gold items among them.
        expected: what is believed of the labels, and what gold items say.
        accuracy, others: true accuracy of all labels, and of those of items that are not gold; ties shared.
        doubt, wrong: (N,) 1 - confidence of each label, and whether it is wrong.
    """

    labels: int
    expected: Expected
    accuracy: float
    others: float
    doubt: Floats = field(default_factory=lambda: np.zeros(1))
    wrong: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, bool))


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
        doubt, wrong = 1 - consensus.confidence, consensus.codes != known.truth
        self.steps.append(Step(spent, expected, accuracy, others, doubt, wrong))
        return None


def watched(job: tuple[Source, int]) -> list[Row]:
    """A row for each target: one replay of the default policy and combiner, that no item is done for."""
    source, gold = job
    rng = np.random.default_rng([source.seed, zlib.crc32(source.name.encode())])
    whole = source.whole()
    candidates = np.flatnonzero(whole.known & (whole.annotations.labels_per_item > 0))
    evidence = reordered(part(whole, rng.choice(candidates, min(ITEMS, candidates.size), replace=False)), rng)
    a = evidence.annotations
    batch = max(1, min(math.ceil(len(a) / BATCHES), a.n_items // MOST_AT_ONCE))
    rule = Watched(max(TARGETS), gold)
    budget = Budget(batch, 1.0, min_labels=0, max_labels=2**31 - 1)
    Replay(DefaultCombiner(), budget=budget, stop=rule).run(evidence, rng)
    where = {"kind": source.kind, "group": source.group, "set": source.name, "seed": source.seed, "gold": gold}
    return [where | ended(rule.steps, target) for target in TARGETS]


def ended(steps: Sequence[Step], target: float) -> Row:
    """Where it would have stopped, where it should have, and what audits said there; None where there is nothing."""
    stop = next((step for step in steps if reached(step.expected, target)), None)
    low = [number for number, step in enumerate(steps) if step.others < target - NEAR]
    first = low[-1] + 1 if low else 0
    row: Row = {
        "target": target,
        "all labels": steps[-1].labels,
        "oracle": steps[first].labels if first < len(steps) else None,
        "end": steps[-1].accuracy,
    }
    if stop is None:
        return row | dict.fromkeys(("labels", "believed", "true", "audits", "proven", "false"))
    audit = Audit(stop.doubt, Promise(1 - target), f"stop {stop.labels}")
    audit.replay(stop.wrong, AUDITS)
    left = int(stop.wrong.sum()) - sum(audit.wrong)
    proven = audit.state == PROVEN
    return row | {
        "labels": stop.labels,
        "believed": stop.expected.accuracy,
        "true": stop.accuracy,
        "audits": len(audit.wrong),
        "proven": proven,
        "false": proven and left > (1 - target) * stop.wrong.size + NEAR,
    }


def judged(rows: Sequence[Row]) -> pd.DataFrame:
    """One row a run: those of `watched`, and what they say.

    stopped     whether it stopped
    below       whether the true accuracy at the stop was below the target
    reachable   whether the oracle stops
    ratio       labels at the stop in terms of the oracle's; NaN where one of both does not stop
    """
    frame = pd.DataFrame(rows)
    numbers = ["labels", "oracle", "believed", "true", "audits"]
    frame[numbers] = frame[numbers].astype(float)
    stopped = frame["labels"].notna()
    return frame.assign(
        stopped=stopped,
        below=stopped & (frame["true"] < frame["target"] - NEAR),
        proven=frame["proven"].eq(True),
        false=frame["false"].eq(True),
        reachable=frame["oracle"].notna(),
        ratio=frame["labels"] / frame["oracle"].clip(lower=1),
    )


def summary(runs: pd.DataFrame) -> dict[str, float]:
    """Counts and means of some runs; a mean of nothing is NaN.

    below       of the stops; `short` is the most by which one is below its target
    proven      of the stops; `false` of these; `audits` the mean number
    never       it does not stop although the oracle does; `by 2 points` though the truth ends so far above the target
    ratio       labels at the stop in terms of the oracle's, where both stop: mean and quantiles
    """
    stops, ratio = runs[runs["stopped"]], runs["ratio"].dropna()
    missed, never = runs[runs["below"]], runs[runs["reachable"] & ~runs["stopped"]]
    return {
        "runs": len(runs),
        "stopped": len(stops),
        "below": len(missed),
        "share": len(missed) / len(stops) if len(stops) else np.nan,
        "short": (missed["target"] - missed["true"]).max(),
        "believed": stops["believed"].mean(),
        "true": stops["true"].mean(),
        "proven": int(stops["proven"].sum()),
        "false": int(stops["false"].sum()),
        "audits": stops["audits"].mean(),
        "ratio": ratio.mean(),
        **{f"{q:.0%}": ratio.quantile(q) for q in (0.1, 0.5, 0.9)},
        "reachable": int(runs["reachable"].sum()),
        "never": len(never),
        "by 2 points": int((never["end"] >= never["target"] + 0.02).sum()),
    }


def tables(runs: pd.DataFrame) -> tuple[list[str], dict[str, Any]]:
    """Lines of a table for no gold items and for some, by kind and by target; and figures: gold -> row -> summary."""
    lines: list[str] = []
    figures: dict[str, Any] = {}
    for gold, of_gold in runs.groupby("gold"):
        kept = {name: summary(some) for name, some in _parts(of_gold)}
        lines += ["", f"{gold} gold items", *results.table(kept)]
        missed = of_gold.loc[of_gold["below"], "set"].value_counts()
        told = ", ".join(f"{name} {count}" for name, count in missed.items())
        lines.append(f"below the target on {len(missed)} of {of_gold['set'].nunique()} crowds: {told or 'none'}")
        asks = of_gold["oracle"] > gold * GOLD_LABELS  # gold items tell the commonest class, which may be enough
        ratio, without = of_gold.loc[asks, "ratio"].dropna(), int((of_gold["ratio"].notna() & ~asks).sum())
        if gold and without and len(ratio):
            lines.append(
                f"without the {without} runs in which the oracle needs no label but those of gold items: labels / "
                f"oracle {ratio.mean():.2f} in the mean, {ratio.quantile(0.9):.2f} at 90 %"
            )
        figures[f"{gold} gold"] = kept
    return lines, figures


def _parts(runs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """All, each target, real ones and simulated ones, each real group and each family."""
    real = runs["kind"] == REAL
    found = [("all", runs), *((f"target {target:.2f}", runs[runs["target"] == target]) for target in TARGETS)]
    found += [("real", runs[real]), ("simulated", runs[~real])]
    found += [(f"  {group}", some) for group, some in runs[real].groupby("group", sort=False)]
    found += [(f"  {kind}", runs[runs["kind"] == kind]) for kind in SIMULATED]
    return [(name, some) for name, some in found if len(some)]


def bars(runs: pd.DataFrame) -> list[results.Bar]:
    """The bars of the stops, of what there is."""
    found: list[results.Bar] = []
    for gold, of_gold in runs.groupby("gold"):
        real = of_gold["kind"] == REAL
        by_target = ((f"target {target:.2f}", of_gold[of_gold["target"] == target]) for target in TARGETS)
        for name, some in (("real crowds", of_gold[real]), ("simulated", of_gold[~real]), *by_target):
            stops, false = int(some["stopped"].sum()), int(some["false"].sum())
            if stops:
                most = MISSED + 2 * float(np.sqrt(MISSED * (1 - MISSED) / stops))
                claim = (
                    f"{gold} gold items, {name}: at most {MISSED:.0%} of the stops (+ 2 standard errors) falsely proven"
                )
                figure = (
                    f"{false / stops:.1%} ({false} of {stops}, {int(some['proven'].sum())} proven; at most {most:.1%})"
                )
                found.append((claim, figure, false / stops <= most))
    ratio = runs.loc[runs["gold"] == max(GOLD), "ratio"].dropna()
    if len(ratio):
        claim = f"{max(GOLD)} gold items: at most {TIMES} x the labels of the oracle, in the median where both stop"
        found.append((claim, f"{ratio.median():.2f} ({len(ratio)} runs)", float(ratio.median()) <= TIMES))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, seeds=5, sets=(), workers=1)
    for threads in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[threads] = "1"  # of the workers, which are started anew
    crowds = [source for source in sources(options.sets or None, options.seeds) if source.name != POOLED]
    jobs = [(source, gold) for source in crowds for gold in GOLD]
    runs = judged([row for rows in results.side_by_side(watched, jobs, options.workers) for row in rows])
    lines, figures = tables(runs)
    page, done, asked = results.Page(), {}, bars(runs)
    page.tell(f"{options.seeds} seeds, {len(runs):,} runs", *lines)
    if ends := results.side_by_side(finished.finished, finished.jobs(crowds), options.workers):
        for theirs, means in finished.to_done(ends).groupby(level="theirs", sort=False):
            means = means.droplevel("theirs")
            page.tell(*finished.table_of_cells(means, theirs))
            done[theirs] = {str(cell): dict(mean.dropna()) for cell, mean in means.iterrows()}
            asked += finished.bars(means, theirs)
    page.held(*asked)
    if options.save:
        page.save("stops", {"stops": figures, "every item done": done}, f"honesty.stops --seeds {options.seeds} --save")


if __name__ == "__main__":
    main()
