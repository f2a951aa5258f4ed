"""Replay without a model: labels that named people must give until nearly all is known that they could tell.

    python -m tests.bench.bench_replay_people                                     all five sets, 10 seeds
    python -m tests.bench.bench_replay_people --sets rte weather_amt --seeds 1 --steps 200

Reads rte, tweet_sentiment, sentence_polarity_amt, bluebirds and weather_amt from HITL_DATA. An answer that was not
recorded is not available. Counted are the labels at which the accuracy is within half a point of that with all labels:
first (the median of the seeds, and of the mean of their accuracies, which is less a matter of luck), and from where it
is never lower again, to the last label (half a point of bluebirds is half an item). Beside it the same combiner with
labels spread evenly over the items, at random. The truth scores only. A seed orders items and people anew, so that ties
fall differently; the recording is the same. A batch is one part in `--steps` of all labels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from hitl.active.replay.experiments import reordered
from hitl.active.replay.replay import Replay, accuracy_of, spread_evenly
from hitl.annotations import Floats, Ints
from hitl.crew import Budget
from hitl.models import DefaultCombiner
from tests.bench import results
from tests.reference_data import crowd

SETS = ("rte", "tweet_sentiment", "sentence_polarity_amt", "bluebirds", "weather_amt")
WITHIN = 0.005
"""How far below the accuracy with all labels is near enough."""

SHARE = 0.35
"""Of the labels, with which this should be reached."""


@dataclass(frozen=True)
class Job:
    """One replay and its even spreading; plain values, for it travels to other processes."""

    data: str
    seed: int
    steps: int


@dataclass(frozen=True, eq=False)
class Curves:
    """Accuracy at each number of labels, less that with all: of the policy, and of labels spread evenly."""

    labels: Ints
    policy: Floats
    even: Floats
    seconds: float


def run(job: Job) -> Curves:
    """One replay, and the even spreading with the same steps."""
    rng = np.random.default_rng(np.random.SeedSequence([job.seed, SETS.index(job.data)]))
    evidence, judge = reordered(crowd(job.data), rng), DefaultCombiner()
    total = len(evidence.annotations)
    batch = math.ceil(total / job.steps)
    full = accuracy_of(judge.fit(replace(evidence, truth=None)), evidence)
    budget = Budget(open_questions=batch, target_confidence=1.0, min_labels=0, max_labels=2**31 - 1)
    began = time.perf_counter()
    result = Replay(judge, budget=budget, most_labels=total).run(evidence, rng)
    seconds = time.perf_counter() - began
    labels = np.unique([*range(0, total, batch), total])
    at = np.searchsorted(result.labels, labels, side="right") - 1  # after the end of a replay it stays as it was
    even = spread_evenly(evidence, judge, labels.tolist(), rng)
    return Curves(labels, result.accuracy[at] - full, even - full, seconds)


def near(labels: Ints, gap: Floats) -> tuple[int, int]:
    """Labels at which the gap first is small enough, and from where it stays so (all of them if never)."""
    far = np.append(gap < -WITHIN - 1e-12, False)
    places = np.append(labels, labels[-1])
    return int(places[np.argmin(far)]), int(places[np.flatnonzero(far)[-1] + 1] if far.any() else 0)


def figures_of(name: str, found: Sequence[Curves]) -> dict[str, Any]:
    """The figures of one set."""
    evidence, labels = crowd(name), found[0].labels
    policy, even = (np.mean([getattr(one, which) for one in found], axis=0) for which in ("policy", "even"))
    ours, theirs = (np.array([near(labels, getattr(one, which)) for one in found]) for which in ("policy", "even"))
    (first, stays), (even_first, even_stays) = (np.median(which, axis=0).tolist() for which in (ours, theirs))
    third = int(np.searchsorted(labels, SHARE * labels[-1], side="right")) - 1
    return {
        "items": evidence.annotations.n_items,
        "annotators": evidence.annotations.n_annotators,
        "labels": len(evidence.annotations),
        "accuracy": accuracy_of(DefaultCombiner().fit(replace(evidence, truth=None)), evidence),
        "first": first,
        "even first": even_first,
        "mean": near(labels, policy)[0],
        "even mean": near(labels, even)[0],
        "stays": stays,
        "even stays": even_stays,
        "by seed": ours.tolist(),
        "evenly by seed": theirs.tolist(),
        "points at 35 %": 100 * float(policy[third]),
        "points at 35 %, evenly": 100 * float(even[third]),
        "seconds": float(np.median([one.seconds for one in found])),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, sets=list(SETS), seeds=10, steps=100, workers=1)
    page, figures = results.Page(), {}
    page.tell(f"expected-gain and default, {options.seeds} seeds, batches of 1/{options.steps} of the labels")
    for name in options.sets:
        jobs = [Job(name, seed, options.steps) for seed in range(options.seeds)]
        figures[name] = figures_of(name, results.side_by_side(run, jobs, options.workers))
    frame = pd.DataFrame.from_dict(figures, orient="index")
    for which in ("first", "mean", "stays"):
        frame[f"{which}, share"] = frame[which] / frame["labels"]
    page.tell("first within half a point, first in the mean, from where it stays; `even`: of labels spread evenly")
    page.tell(*results.table(frame.drop(columns=["by seed", "evenly by seed"])))
    asked = []
    for which in ("first", "mean", "stays"):
        ours, theirs = (
            np.mean([kept[key] / kept["labels"] for kept in figures.values()]) for key in (which, f"even {which}")
        )
        page.tell(f"{which}: {ours:.1%} of the labels on average, spread evenly {theirs:.1%}")
        ratio = {name: kept[which] / max(kept[f"even {which}"], 1) for name, kept in figures.items()}
        asked.append(results.at_most(f"{which}: share of the labels, on average,", float(ours), SHARE, ".1%"))
        asked.append(results.at_most_each(f"{which}: in terms of labels spread evenly,", ratio, 0.7))
    page.held(*asked)
    if options.save:
        page.save("replay_people", figures)


if __name__ == "__main__":
    main()
