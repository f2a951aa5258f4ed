"""Replay without a model: labels that named people must give until nearly all is known that they could tell.

    python -m tests.bench.bench_replay_people                                     all five sets, 10 seeds
    python -m tests.bench.bench_replay_people --sets rte weather_amt --seeds 1 --steps 200
    python -m tests.bench.bench_replay_people --policy my.module:MyPolicy --set weight=2.5

Reads rte, tweet_sentiment, sentence_polarity_amt, bluebirds and weather_amt from HITL_DATA. An answer that was not
recorded is not available. Counted are the labels at which the accuracy is within half a point of that with all labels:
first (the median of the seeds, and of the mean of their accuracies, which is less a matter of luck), and from where it
is never lower again, to the last label (half a point of bluebirds is half an item). Beside it the same combiner with
labels spread evenly over the items, at random. The truth scores only. A seed orders items and people anew, so that ties
fall differently; the recording is the same.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.active.policy import Policy
from hitl.active.registry import policy
from hitl.active.replay.experiments import reordered
from hitl.active.replay.replay import Replay, accuracy_of, spread_evenly
from hitl.annotations import Floats
from hitl.crew import Budget
from hitl.models.registry import combiner
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
    combiner: str
    policy: str
    settings: tuple[tuple[str, Any], ...]
    steps: int
    target: float
    until: float


@dataclass(frozen=True, eq=False)
class Curves:
    """Accuracy at each number of labels, less that with all: of the policy, and of labels spread evenly."""

    labels: npt.NDArray[np.int64]
    policy: Floats
    even: Floats
    seconds: float


def policy_of(name: str, settings: Sequence[tuple[str, Any]]) -> Policy:
    """A policy of the catalog, or module:Class."""
    if ":" in name:
        module, _, attribute = name.partition(":")
        made: Policy = getattr(import_module(module), attribute)(**dict(settings))
        return made
    return policy(name, **dict(settings))


def settings_of(entries: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """KEY=VALUE, a value in JSON, or as it stands where it is none."""
    return tuple((key, _value(text)) for key, _, text in (entry.partition("=") for entry in entries))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def run(job: Job) -> Curves:
    """One replay, and the even spreading with the same steps."""
    rng = np.random.default_rng(np.random.SeedSequence([job.seed, SETS.index(job.data)]))
    evidence = reordered(crowd(job.data), rng)
    judge, total = combiner(job.combiner), len(evidence.annotations)
    batch = math.ceil(total / job.steps)
    full = accuracy_of(judge.fit(replace(evidence, truth=None)), evidence)
    budget = Budget(open_questions=batch, target_confidence=job.target, min_labels=0, max_labels=2**31 - 1)
    began = time.perf_counter()
    most = math.ceil(job.until * total)
    result = Replay(judge, policy_of(job.policy, job.settings), budget, most_labels=most).run(evidence, rng)
    seconds = time.perf_counter() - began
    labels = np.unique([*range(0, total, batch), total])
    at = np.searchsorted(result.labels, labels, side="right") - 1  # after the end of a replay it stays as it was
    even = spread_evenly(evidence, judge, labels.tolist(), rng)
    return Curves(labels, result.accuracy[at] - full, even - full, seconds)


def near(labels: npt.NDArray[np.int64], gap: Floats) -> tuple[int, int]:
    """Labels at which the gap first is small enough, and from where it stays so (all of them if never)."""
    far = np.append(gap < -WITHIN - 1e-12, False)
    places = np.append(labels, labels[-1])
    return int(places[np.argmin(far)]), int(places[np.flatnonzero(far)[-1] + 1] if far.any() else 0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with --save also write docs/benchmarks/replay_people.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100, help="a batch is this part of all labels")
    parser.add_argument("--combiner", default="default")
    parser.add_argument("--policy", default="expected-gain", help="a name of the catalog, or module:Class")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the policy (JSON)"
    )
    parser.add_argument("--target", type=float, default=1.0, help="confidence at which an item is done")
    parser.add_argument("--until", type=float, default=1.0, help="end a replay after this part of all labels")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/replay_people.txt and .json")
    options = parser.parse_args(arguments)
    settings = settings_of(options.set)
    lines = [
        f"{options.policy} and {options.combiner}, {options.seeds} seeds, batches of 1/{options.steps} of the labels",
        f"{'':48}{'within half a point first':30}{'first in the mean':30}{'from where it stays':30} points below at",
        f"{'set':22}{'N':>6}{'K':>5}{'M':>8}{'full':>7}"
        + 3 * f"  {'labels':>7}{'share':>7}{'evenly':>8}{'ratio':>6}"
        + "   35 % (evenly)     s",
    ]
    print("\n".join(lines), flush=True)
    figures: dict[str, dict[str, Any]] = {}
    for name in options.sets:
        jobs = [
            Job(name, seed, options.combiner, options.policy, settings, options.steps, options.target, options.until)
            for seed in range(options.seeds)
        ]
        figures[name] = figures_of(name, options.combiner, in_parallel(jobs, options.workers))
        lines.append(row(name, figures[name]))
        print(lines[-1], flush=True)
    told = results.held(bars(figures))
    print("\n".join(told))
    if options.save:
        results.save("replay_people", [*lines, *told], figures)


def in_parallel(jobs: Sequence[Job], workers: int) -> list[Curves]:
    """All jobs, in order."""
    if workers == 1:
        return [run(job) for job in jobs]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return list(pool.map(run, jobs))


def figures_of(name: str, method: str, found: Sequence[Curves]) -> dict[str, Any]:
    """What is kept of one set."""
    evidence, labels = crowd(name), found[0].labels
    policy, even = (np.mean([getattr(one, which) for one in found], axis=0) for which in ("policy", "even"))
    ours, theirs = (np.array([near(labels, getattr(one, which)) for one in found]) for which in ("policy", "even"))
    (first, stays), (even_first, even_stays) = (np.median(which, axis=0).tolist() for which in (ours, theirs))
    third = int(np.searchsorted(labels, SHARE * labels[-1], side="right")) - 1
    return {
        "items": evidence.annotations.n_items,
        "annotators": evidence.annotations.n_annotators,
        "labels": len(evidence.annotations),
        "accuracy": accuracy_of(combiner(method).fit(replace(evidence, truth=None)), evidence),
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


def row(name: str, kept: dict[str, Any]) -> str:
    """One line of the table."""
    total = kept["labels"]
    parts = [f"{name:22}{kept['items']:6,}{kept['annotators']:5}{total:8,}{kept['accuracy']:7.1%}"]
    for which in ("first", "mean", "stays"):
        ours, theirs = kept[which], kept[f"even {which}"]
        parts.append(f"{ours:7,.0f}{ours / total:7.1%}{theirs:8,.0f}{ours / max(theirs, 1):6.2f}")
    gap = f"{kept['points at 35 %']:+5.1f} ({kept['points at 35 %, evenly']:+.1f})"
    return "  ".join([*parts, f"{gap:>15}{kept['seconds']:6.1f}"])


def bars(figures: dict[str, dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """The bars of the issue: 35 % of the labels on average, 0.7 of even spreading on each set."""
    found = []
    countings = (("first", "first reached"), ("mean", "in the mean of the seeds"), ("stays", "reached for good"))
    for which, words in countings:
        mean = float(np.mean([kept[which] / kept["labels"] for kept in figures.values()]))
        ratios = {name: kept[which] / max(kept[f"even {which}"], 1) for name, kept in figures.items()}
        worst = max(ratios, key=lambda name: ratios[name])
        found.append((f"{words}: at most 35 % of the labels on average", f"{mean:.1%}", mean <= SHARE))
        holds = ratios[worst] <= 0.7
        found.append((f"{words}: at most 0.7 of evenly on each set", f"{ratios[worst]:.2f} on {worst}", holds))
    return found


if __name__ == "__main__":
    main()
