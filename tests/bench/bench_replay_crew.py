"""A simulated crew with spammers and newcomers: labels until 95 % are right, beside random assignment.

    python -m tests.bench.bench_replay_crew                             both combiners, 5 seeds
    python -m tests.bench.bench_replay_crew --combiner default --seeds 2

1,000 items of 4 classes; 40 people: 20 who are right 60 to 90 % of the time, 12 spammers (30 %: 6 answer at random, 6
always the same), 8 newcomers (20 %: as good as the first, but nobody knows them before round 10). Items are hard for
all alike (correlation 0.1). A round is 50 questions, at most 5 for one person. Random assignment takes an open item
with the fewest labels and gives it to a random person who has not answered it and has capacity left. Both are judged by
the same combiner; the truth scores only.

Then the same without capacities, and a team of five (four right 70 to 95 % of the time, one spammer; 300 items), as it
is with and without `max_load_ratio`: labels needed, and who is busiest, how much of a plan they get on the way there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from hitl.active.policy import ExpectedGain, Policy
from hitl.active.replay.baselines import Evenly
from hitl.active.replay.experiments import Simulation, one_trial, run_trials
from hitl.active.replay.replay import Replay
from hitl.active.replay.simulated_annotators import Group
from hitl.active.stopping.rules import Judged
from hitl.annotations import Annotations
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.registry import combiner
from hitl.plan import Plan
from tests.bench import results

ITEMS, CLASSES, CAPACITY, BATCH = 1_000, 4, 5, 50
ABLE = (0.6, 0.9)
GROUPS = (Group("good", 20, ABLE), Group("random", 6), Group("constant", 6), Group("good", 8, ABLE, joins=10))
CORRELATION = 0.1
TARGET = 0.95
BUDGET = Budget(open_questions=BATCH, target_confidence=1.0, min_labels=0, max_labels=2**31 - 1)

TEAMS: dict[str, tuple[int, tuple[Group, ...], float, int]] = {
    "40 people": (ITEMS, GROUPS, TARGET, 5_000),
    "team of five": (300, (Group("good", 4, (0.7, 0.95)), Group("random", 1)), 0.9, 1_200),
}
"""Nobody has a capacity: items, people, accuracy to reach, most labels."""


@dataclass(frozen=True)
class Watched:
    """A policy, and for each of its plans: labels there were, and the share of the questions that one person got."""

    policy: Policy
    busiest: list[tuple[int, float]] = field(default_factory=list)

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        """The plan."""
        plan = self.policy.plan(questions, crew, budget)
        gets = Counter(ask.annotator for ask in plan.asks)
        if gets:
            self.busiest.append((len(questions[0][0].annotations), max(gets.values()) / gets.total()))
        return plan


def evidence(n: int = ITEMS) -> Evidence:
    """The items and their truth; the classes are equally common."""
    classes = tuple(f"class {j}" for j in range(CLASSES))
    none = np.zeros(0, dtype=np.int32)
    items = Annotations(none, none, none, tuple(range(n)), (), classes, classes)
    return Evidence(items, truth=(np.arange(n) % CLASSES).astype(np.int32))


def middle(needed: Sequence[int]) -> str:
    return f"{np.median(needed):,.0f} ({min(needed):,}-{max(needed):,})"


def against_random(method: str, seeds: int, most: int, workers: int) -> dict[str, Any]:
    """Labels needed by the policy and by random assignment; a replay that does not get there counts as `most`."""
    policies: dict[str, Policy] = {"policy": ExpectedGain(), "random": Evenly()}
    crew, judge = Crew(default_capacity=CAPACITY), combiner(method)
    replays = {name: Replay(judge, policy, BUDGET, most, crew) for name, policy in policies.items()}
    tracks = run_trials(Simulation(evidence(), GROUPS, CORRELATION), replays, seeds, workers=workers)
    found = {name: [track.to_reach(TARGET) for track in several] for name, several in tracks.items()}
    needed = {name: [most if one is None else one[0] for one in several] for name, several in found.items()}
    return {
        **needed,
        "missed": {name: sum(one is None for one in several) for name, several in found.items()},
        "ratio": float(np.median(needed["random"]) / np.median(needed["policy"])),
        "ratios": [round(theirs / ours, 2) for ours, theirs in zip(needed["policy"], needed["random"], strict=True)],
    }


def shared(name: str, max_load_ratio: float, seeds: int) -> dict[str, Any]:
    """Labels needed without capacities, and the mean share of a plan that its busiest person gets until then."""
    items, groups, target, most = TEAMS[name]
    needed, busiest = [], []
    for child in np.random.SeedSequence(0).spawn(seeds):
        watched = Watched(ExpectedGain(max_load_ratio=max_load_ratio))
        replay = Replay(combiner("default"), watched, BUDGET, most)
        found = one_trial(Simulation(evidence(items), groups, CORRELATION), replay, child).to_reach(target)
        needed.append(most if found is None else found[0])
        busiest.append(float(np.mean([share for labels, share in watched.busiest if labels <= needed[-1]])))
    return {"needed": needed, "busiest": busiest}


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, combiner=["default", "vb-ibcc"], seeds=5, labels=12_000, workers=1)
    page, figures, rows = results.Page(), {}, {}
    for name in options.combiner:
        kept = figures[name] = against_random(name, options.seeds, options.labels, options.workers)
        rows[name] = {who: middle(kept[who]) for who in ("policy", "random")} | {"ratio": kept["ratio"]}
        rows[name] |= {"each seed": f"{min(kept['ratios'])}-{max(kept['ratios'])}", "never": str(kept["missed"])}
    page.tell(
        f"{ITEMS:,} items, {CLASSES} classes, 40 people: 30 % spammers, 20 % newcomers; {options.seeds} seeds",
        f"expected-gain: labels until {TARGET:.0%} are right and stay so, beside random assignment: median (min-max)",
        *results.table(rows, 2),
    )
    rows = {}
    for team, ratio in product(TEAMS, (math.inf, 2.0, 1.5, 1.0)):
        kept = figures[f"{team}, max_load_ratio {ratio:g}"] = shared(team, ratio, options.seeds)
        rows[team, ratio] = {"labels needed": middle(kept["needed"]), "busiest": np.mean(kept["busiest"])}
    page.tell("", "no capacities, by max_load_ratio", *results.table(rows, 2))
    claim = f"times as many labels to {TARGET:.0%} by random assignment"
    page.held(
        *(results.at_least(f"{claim}, {name}:", figures[name]["ratio"], 2, ".2f") for name in options.combiner),
        ("nobody asked beyond their capacity, twice, or while away", "checked in every plan", True),
    )
    if options.save:
        page.save("replay_crew", figures)


if __name__ == "__main__":
    main()
