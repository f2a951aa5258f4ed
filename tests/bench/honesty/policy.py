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

import numpy as np

from hitl.active.replay.experiments import reordered
from hitl.active.replay.replay import Replay, spread_evenly
from hitl.annotations import Floats
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models.registry import combiner
from tests.bench import results
from tests.bench.honesty.crowds import INDEPENDENT, POOLED, Source, part, sources, thinned

ITEMS, LABELS = 600, 20
BATCHES = 50
"""Plans of a replay."""

SHARES = np.arange(1, 11) / 10
"""Of the labels: the budgets."""

COLUMNS = [f"{share:.0%}" for share in SHARES]

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
    options = results.options(__doc__, arguments, seeds=10, sets=(), workers=2)
    crowds = chosen(options.sets or None, options.seeds)
    found: dict[str, list[Floats]] = {}
    for source, points in zip(crowds, results.side_by_side(gaps, crowds, options.workers), strict=True):
        found.setdefault(source.name, []).append(points)
    kinds: dict[str, list[Floats]] = {}
    rows = {}
    for source in crowds[:: options.seeds]:
        points = np.array(found[source.name])
        mean = points.mean(axis=0)
        kinds.setdefault(f"mean of {source.kind}", []).append(mean)
        worst = int(mean.argmin())
        error = points[:, worst].std(ddof=1) / np.sqrt(len(points)) if len(points) > 1 else np.nan
        rows[source.name] = dict(zip(COLUMNS, mean, strict=True)) | {"worst": mean[worst], "+-": error}
    below = {
        name: row["worst"] for name, row in sorted(rows.items(), key=lambda one: one[1]["worst"]) if row["worst"] < -1
    }
    rows |= {kind: dict(zip(COLUMNS, np.mean(means, axis=0), strict=True)) for kind, means in kinds.items()}
    page = results.Page()
    page.tell(f"points above even spreading, {options.seeds} seeds, after this part of all labels")
    page.tell(*results.table(rows, 1))
    named = ", ".join(f"{name} {points:+.1f}" for name, points in below.items()) or "none"
    page.held(("nowhere more than 1 point below even spreading, ten budgets", named, not below))
    if options.save:
        figures = {name: np.round(each, 3).tolist() for name, each in found.items()}
        page.save("policy", figures, f"honesty.policy --seeds {options.seeds} --save")


if __name__ == "__main__":
    main()
