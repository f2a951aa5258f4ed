"""Labels that come, change and go, at a million labels: time a label, and agreement with a refit.

    python -m tests.bench.bench_update [--changes 10000] [--crowds ...] [--methods ...] [--save]

Simulated crowds of a million labels by annotators of Beta(3, 2) accuracy. A third of the changes are new labels, a
third edited, a third withdrawn, all of items and annotators at random. For each method, in one run:

single      `follow(...).label` and `.withdraw`, change by change: ms of the median, the 99th percentile, the slowest
mean        the same, all changes and the consensus after them, over their number; cpu: processor time of that
together    the same changes as one `change` and the consensus after it, over their number, ms
update      one `update` of the consensus of before with the labels of after, seconds; over the changes, ms

and the share of items whose label is that of a refit of the labels of after (it starts from the votes; P+L-EM, from
the prior): before (judged with what was learned before), at once (the beliefs after the changes), live (the consensus
after them), update, and restart: a refit that starts from the live consensus. Where a method has several answers to
the same labels, restart says how far apart two refits are; what goes on from what was believed comes no nearer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene
from hitl.models.default import DefaultCombiner
from hitl.models.pl_em import PLEM
from hitl.models.vb_ibcc import VBIBCC
from tests.bench import results
from tests.changing_crowds import Answer, Change, random_changes, simulated, take_in, take_in_together

CROWDS: dict[str, tuple[int, int, int, int]] = {
    "5 labels": (200_000, 1_000, 5, 5),
    "10 labels": (100_000, 1_000, 10, 10),
    "thin": (100_000, 10_000, 10, 10),
    "10 million labels": (2_000_000, 10_000, 5, 5),
}
"""Name -> items, annotators, labels an item, classes. In the thin crowd a confusion cell has one label."""

METHODS: dict[str, Any] = {
    "dawid-skene": DawidSkene(),
    "vb-ibcc": VBIBCC(),
    "vb-ibcc anchored": VBIBCC(anchor=0.5, least_labels=2),
    "pl-em": PLEM(),
    "default": DefaultCombiner(),
    "default+model": DefaultCombiner(),
}

BESIDE_MODELS = {"pl-em", "default+model"}


def run(method: Any, evidence: Evidence, answer: Answer, changes: int) -> dict[str, float]:
    """All figures of one method on one crowd."""
    names = evidence.annotations
    stream = list(random_changes(names, answer, changes))
    before = method.fit(evidence)
    figures, live, at_once, now = single(method, evidence, before, stream)
    together = method.follow(before, evidence)
    began = time.perf_counter()
    take_in_together(together, names, stream)
    together.consensus()
    figures["together ms"] = 1000 * (time.perf_counter() - began) / changes
    began = time.perf_counter()
    updated = method.update(before, now)
    figures["update s"] = time.perf_counter() - began
    figures["update ms"] = 1000 * figures["update s"] / changes
    began = time.perf_counter()
    refit = method.fit(now)
    figures["refit s"] = time.perf_counter() - began
    compared = {
        "before": method.apply(before, now),
        "at once": at_once,
        "live": live,
        "update": updated,
        "restart": method.fit(now, start=live),
    }
    return figures | {
        f"{name} agrees": float(np.mean(found.labels == refit.labels)) for name, found in compared.items()
    }


def single(
    method: Any, evidence: Evidence, before: Consensus, stream: Sequence[Change]
) -> tuple[dict[str, float], Consensus, Consensus, Evidence]:
    """Times of the changes one by one; the consensus after them, what is believed without it, and the evidence."""
    names = evidence.annotations
    take_in(method.follow(before, evidence), names, stream[0])  # compiled before the clock starts
    live, at_once = method.follow(before, evidence), before
    seconds = np.empty(len(stream))
    processor = time.process_time()
    for position, change in enumerate(stream):
        if position == len(stream) - 1:
            at_once = live.snapshot()  # before the last change, with which all may be refreshed
        began = time.perf_counter()
        take_in(live, names, change)
        seconds[position] = time.perf_counter() - began
    spent = time.process_time() - processor
    now = live.evidence()
    began, processor = time.perf_counter(), time.process_time()
    consensus = live.consensus()
    total = seconds.sum() + time.perf_counter() - began
    spent += time.process_time() - processor
    figures = {
        "median ms": 1000 * float(np.median(seconds)),
        "p99 ms": 1000 * float(np.quantile(seconds, 0.99)),
        "slowest ms": 1000 * float(seconds.max()),
        "mean ms": 1000 * float(total) / len(stream),
        "cpu ms": 1000 * spent / len(stream),
    }
    return figures, consensus, at_once, now


COLUMNS = {
    "median ms": "median",
    "p99 ms": "p99",
    "slowest ms": "slowest",
    "mean ms": "mean",
    "cpu ms": "cpu",
    "together ms": "together",
    "update s": "update s",
    "update ms": "update ms",
    "refit s": "refit s",
    "before agrees": "before",
    "at once agrees": "at once",
    "live agrees": "live",
    "update agrees": "update",
    "restart agrees": "restart",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of each crowd; with --save also write docs/benchmarks/update.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--crowds", nargs="+", default=list(CROWDS), choices=list(CROWDS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/update.txt and .json")
    options = parser.parse_args(arguments)
    lines: list[str] = []
    figures: dict[str, dict[str, float]] = {}
    for crowd in options.crowds:
        n, k, labels, classes = CROWDS[crowd]
        lines += [
            "",
            f"{crowd}: {n:,} items x {labels} labels, {k:,} annotators, {classes} classes; {options.changes:,} changes",
            f"{'':16s} {'ms a label':44s} {'':26s} agrees with the refit",
            f"{'method':16s}" + "".join(f" {name:>9s}" for name in COLUMNS.values()),
        ]
        print("\n".join(lines[-4:]), flush=True)
        for name in options.methods:
            evidence, _, answer = simulated(n, k, labels, classes, models=name in BESIDE_MODELS)
            found = figures[f"{crowd}, {name}"] = run(METHODS[name], evidence, answer, options.changes)
            values = [
                f"{100 * found[column]:8.2f}%" if column.endswith("agrees") else f"{found[column]:9.3f}"
                for column in COLUMNS
            ]
            lines.append(f"{name:16s} " + " ".join(values))
            print(lines[-1], flush=True)
    slowest = max(found["median ms"] for found in figures.values())
    least = {column: min(found[f"{column} agrees"] for found in figures.values()) for column in ("update", "live")}
    bars = [
        ("ms a label at most 1 (median)", f"{slowest:.2f}", slowest <= 1),
        ("an update agrees with a refit on 99.9 %", f"{least['update']:.2%}", least["update"] >= 0.999),
        ("so does who follows label by label", f"{least['live']:.2%}", least["live"] >= 0.999),
    ]
    lines += results.held(bars)
    print("\n".join(lines[-len(bars) :]))
    if options.save:
        results.save("update", lines, figures)


if __name__ == "__main__":
    main()
