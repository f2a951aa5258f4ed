"""Whether the policy ever loses to labels spread evenly, at ten budgets, on crowds that it was not made for.

    python -m tests.bench.honesty.policy [--seeds 10] [--sets rte volume ...] [--workers 2] [--save]

Real crowds of named people and simulated ones (`honesty.crowds`; of the independent ones only the middle size, for
annotators there differ little). A recorded answer comes back, or the annotator is not available. Of larger sets so many
items of known truth as ITEMS are drawn for each seed, and of more labels an item than LABELS so many. A figure is the
accuracy of the policy's labels less that of as many labels spread evenly over the items at random, in points, by the
same combiner, in the mean over the seeds; `+-` is the standard error at the worst budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from hitl.active.replay.experiments import reordered
from hitl.active.replay.replay import Replay, spread_evenly
from hitl.annotations import Floats
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models.registry import combiner
from tests.bench import results
from tests.bench.honesty.crowds import INDEPENDENT, POOLED, Source, sources, thinned

ITEMS, LABELS = 600, 20
BATCHES = 50
"""Plans of a replay."""

SHARES = np.arange(1, 11) / 10
"""Of the labels: the budgets."""

BAR = 1.0
"""Points that the policy may lose."""

THREE = ("cifar10n",)
"""Sets of three people without names of their own: nobody to choose from."""


def chosen(names: Sequence[str] | None, seeds: int) -> list[Source]:
    """The crowds of named people, those that take longest first."""
    found = [source for source in sources(None, seeds) if source.name not in (POOLED, *THREE)]
    found = [source for source in found if source.kind != INDEPENDENT or "N=1000" in source.name]
    return [source for source in found if names is None or source.name in names or source.kind in names]


def recording(source: Source) -> Evidence:
    """So much of a crowd as is replayed."""
    rng = np.random.default_rng(source.seed)
    whole = thinned(source.whole(), LABELS, rng)
    rows = rng.permutation(np.flatnonzero(whole.known & (whole.annotations.labels_per_item > 0)))[:ITEMS]
    return reordered(part(whole, np.sort(rows)), rng)


def part(evidence: Evidence, rows: np.ndarray[Any, Any]) -> Evidence:
    """These items alone, and who labeled any of them."""
    annotations, code_n = evidence.annotations, np.full(evidence.annotations.n_items, -1, np.int32)
    code_n[rows] = np.arange(len(rows))
    kept = annotations.select(code_n[annotations.item] >= 0)
    people, annotator = np.unique(kept.annotator, return_inverse=True)
    assert evidence.truth is not None
    few = replace(
        kept,
        item=code_n[kept.item],
        annotator=annotator.astype(np.int32),
        items=tuple(annotations.items[n] for n in rows),
        annotators=tuple(annotations.annotators[k] for k in people),
    )
    return Evidence(few, truth=evidence.truth[rows])


def gaps(source: Source) -> Floats:
    """(10,) points above even spreading at each budget."""
    evidence = recording(source)
    total, judge = len(evidence.annotations), combiner("default")
    budget = Budget(max(1, round(total / BATCHES)), 1.0, min_labels=0, max_labels=2**31 - 1)
    found = Replay(judge, budget=budget).run(evidence, source.seed)
    at = np.round(SHARES * total).astype(int)
    even = spread_evenly(evidence, judge, at.tolist(), np.random.default_rng(source.seed))
    points: Floats = 100 * (np.interp(at, found.labels, found.accuracy) - even)
    return points


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with --save also write docs/benchmarks/policy.*."""
    options = results.options(__doc__, arguments, seeds=10, sets=(), workers=2)
    found: dict[str, list[Floats]] = {}
    lines = [
        f"points above even spreading, {options.seeds} seeds, after this part of all labels",
        f"{'':28}" + "".join(f"{share:7.0%}" for share in SHARES) + "   worst    +-",
    ]
    print("\n".join(lines), flush=True)
    crowds = chosen(options.sets or None, options.seeds)
    kinds = {source.name: source.kind for source in crowds}
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        for source, points in zip(crowds, pool.map(gaps, crowds), strict=True):
            found.setdefault(source.name, []).append(points)
            if len(found[source.name]) == options.seeds:
                lines.append(row(source.name, np.array(found[source.name])))
                print(lines[-1], flush=True)
    means = {name: np.mean(each, axis=0) for name, each in found.items()}
    for kind in dict.fromkeys(kinds.values()):
        of_kind = np.mean([mean for name, mean in means.items() if kinds[name] == kind], axis=0)
        lines.append(f"{'mean of ' + kind:28}" + "".join(f"{point:+7.1f}" for point in of_kind))
    below = {name: float(mean.min()) for name, mean in means.items() if mean.min() < -BAR}
    told = ", ".join(f"{name} {least:+.1f}" for name, least in sorted(below.items(), key=lambda pair: pair[1]))
    low = min(float(mean.min()) for mean in means.values())
    bar = ("nowhere more than 1 point below even spreading, ten budgets", told or f"lowest {low:+.1f}", not below)
    lines += results.held([bar])
    print("\n".join(lines[2 + len(means) :]))
    if options.save:
        figures = {name: np.round(each, 3).tolist() for name, each in found.items()}
        command = f"honesty.policy{'' if options.seeds == 10 else f' --seeds {options.seeds}'} --save"
        results.save("policy", lines, figures, command)


def row(name: str, points: Floats) -> str:
    """One line: (seeds, 10) points."""
    mean = points.mean(axis=0)
    worst = int(mean.argmin())
    error = points[:, worst].std(ddof=1) / np.sqrt(len(points)) if len(points) > 1 else np.nan
    return f"{name:28}" + "".join(f"{point:+7.1f}" for point in mean) + f"{mean[worst]:+8.1f}{error:6.1f}"


if __name__ == "__main__":
    main()
