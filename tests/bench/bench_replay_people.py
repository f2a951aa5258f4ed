"""Replay without a model: labels that named people must give until nearly all is known that they could tell.

    python -m tests.bench.bench_replay_people                                     all five sets, 5 seeds
    python -m tests.bench.bench_replay_people --sets rte weather_amt --seeds 1 --steps 200
    python -m tests.bench.bench_replay_people --policy my.module:MyPolicy --set weight=2.5

Reads rte, tweet_sentiment, sentence_polarity_amt, bluebirds and weather_amt from HITL_DATA. An answer that was not
recorded is not available. Needed are the labels after which the accuracy is within half a point of the same
combiner's with all labels, and never lower again, to the last label. Beside it the same combiner with the same number
of labels spread evenly over the items, at random. The truth scores only. A seed orders items and people anew, so that
ties fall differently; the recording is the same.
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

from hitl import catalog
from hitl.active.policy import Policy
from hitl.active.replay import Replay, accuracy_of, spread_evenly
from hitl.active.trials import reordered
from hitl.annotations import Floats
from hitl.crew import Budget
from tests.bench import results
from tests.reference_data import crowd

SETS = ("rte", "tweet_sentiment", "sentence_polarity_amt", "bluebirds", "weather_amt")
WITHIN = 0.005
"""How far below the accuracy with all labels is near enough."""


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


@dataclass(frozen=True)
class Needed:
    """Labels needed by the policy and by even spreading; None where the policy ended below the target.

    `first` and `even_first` are those after which the target was met first, perhaps to be lost again.
    """

    policy: int | None
    even: int
    first: int | None
    even_first: int
    seconds: float


def policy_of(name: str, settings: Sequence[tuple[str, Any]]) -> Policy:
    """A policy of the catalog, or module:Class."""
    if ":" in name:
        module, _, attribute = name.partition(":")
        made: Policy = getattr(import_module(module), attribute)(**dict(settings))
        return made
    return catalog.policy(name, **dict(settings))


def settings_of(entries: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """KEY=VALUE, a value in JSON, or as it stands where it is none."""
    return tuple((key, _value(text)) for key, _, text in (entry.partition("=") for entry in entries))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def run(job: Job) -> Needed:
    """One replay to the last label, and the even spreading with the same steps."""
    rng = np.random.default_rng(np.random.SeedSequence([job.seed, SETS.index(job.data)]))
    evidence = reordered(crowd(job.data), rng)
    combiner = catalog.combiner(job.combiner)
    batch = math.ceil(len(evidence.annotations) / job.steps)
    target = accuracy_of(combiner.fit(replace(evidence, truth=None)), evidence) - WITHIN
    budget = Budget(labels=batch, target_confidence=job.target, min_labels=0, max_labels=2**31 - 1)
    began = time.perf_counter()
    policy, most = policy_of(job.policy, job.settings), math.ceil(job.until * len(evidence.annotations))
    result = Replay(combiner, policy, budget, most_labels=most).run(evidence, rng)
    seconds = time.perf_counter() - began
    labels = np.unique([*range(0, len(evidence.annotations), batch), len(evidence.annotations)])
    even = spread_evenly(evidence, combiner, labels.tolist(), rng)
    target -= 1e-12
    return Needed(
        result.labels_to_reach(target),
        int(labels[np.flatnonzero(np.append(True, even < target))[-1]]),
        _first(result.labels, result.accuracy, target),
        int(labels[np.argmax(even >= target)]),
        seconds,
    )


def _first(labels: npt.NDArray[np.int64], accuracy: Floats, target: float) -> int | None:
    met = np.flatnonzero(accuracy >= target)
    return int(labels[met[0]]) if met.size else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with --save also write docs/benchmarks/replay_people.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", type=int, default=5)
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
        f"{'set':22}{'N':>6}{'K':>5}{'M':>8}{'full':>7}   {'labels (min-max)':>22}{'share':>7}"
        f"{'evenly (min-max)':>24}{'ratio':>7}{'first':>8}{'evenly':>8}{'s':>6}",
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


def in_parallel(jobs: Sequence[Job], workers: int) -> list[Needed]:
    """All jobs, in order."""
    if workers == 1:
        return [run(job) for job in jobs]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return list(pool.map(run, jobs))


def figures_of(name: str, combiner: str, found: Sequence[Needed]) -> dict[str, Any]:
    """What is kept of one set; a replay that ended below the target counts as all its labels."""
    evidence = crowd(name)
    total = len(evidence.annotations)
    needed = [total if one.policy is None else one.policy for one in found]
    even = [one.even for one in found]
    return {
        "items": evidence.annotations.n_items,
        "annotators": evidence.annotations.n_annotators,
        "labels": total,
        "accuracy": accuracy_of(catalog.combiner(combiner).fit(replace(evidence, truth=None)), evidence),
        "needed": needed,
        "missed": sum(one.policy is None for one in found),
        "even": even,
        "first": [one.first for one in found],
        "even first": [one.even_first for one in found],
        "share": float(np.median(needed)) / total,
        "ratio": float(np.median(needed) / np.median(even)),
        "seconds": float(np.median([one.seconds for one in found])),
    }


def row(name: str, kept: dict[str, Any]) -> str:
    """One line of the table."""
    needed, even, total = kept["needed"], kept["even"], kept["labels"]
    missed = f" ({kept['missed']} never)" if kept["missed"] else ""
    ours = f"{np.median(needed):,.0f} ({min(needed):,}-{max(needed):,})"
    theirs = f"{np.median(even):,.0f} ({min(even):,}-{max(even):,})"
    first, even_first = _middle(kept["first"], total), _middle(kept["even first"], total)
    return (
        f"{name:22}{kept['items']:6,}{kept['annotators']:5}{total:8,}{kept['accuracy']:7.1%}   {ours:>22}"
        f"{kept['share']:7.1%}{theirs:>24}{kept['ratio']:7.2f}{first:8,.0f}{even_first:8,.0f}"
        f"{kept['seconds']:6.1f}{missed}"
    )


def _middle(labels: Sequence[int | None], never: int) -> float:
    return float(np.median([never if one is None else one for one in labels]))


def bars(figures: dict[str, dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """The bars of the issue: 35 % of the labels on average, 0.7 of even spreading on each set."""
    mean = float(np.mean([kept["share"] for kept in figures.values()]))
    worst = max(figures, key=lambda name: figures[name]["ratio"])
    ratio = figures[worst]["ratio"]
    return [
        ("at most 35 % of the labels on average", f"{mean:.1%}", mean <= 0.35),
        ("on each set at most 0.7 of the labels spread evenly", f"{ratio:.2f} on {worst}", ratio <= 0.7),
    ]


if __name__ == "__main__":
    main()
