"""How far live beliefs are from a refit, at the end of a stream of labels; and how long a label takes.

    python -m tests.bench.service.beliefs [--changes 9900] [--save]

rte            800 items, 8,000 labels: the labels are new, edited and withdrawn at random, 690 changes
simulated      200,000 items, 1,000,000 labels, 1,000 annotators; new, edited and withdrawn labels at random

label by label   what is believed when the last label was taken in, and nothing was read again
read again       the consensus of before, brought up to date with all labels (what the service does every so often)
before           what was believed before the stream: how much there was to learn

A method that follows labels brings everything up to date by itself after 1 % of all labels, and at least 100, have
changed; the streams end just before.

Each is compared with `fit` of the labels of the end: largest and mean absolute difference of a probability, and the
share of items with the same label. `changed`: the items of the stream alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from tests.bench import results
from tests.changing_crowds import Change, part, random_changes, simulated, take_in
from tests.reference_data import crowd


def compared(found: Floats, fitted: Floats) -> dict[str, float]:
    """How far they are apart."""
    apart = np.abs(found - fitted)
    same = (found.argmax(axis=1) == fitted.argmax(axis=1)).mean()
    return {"largest": float(apart.max()), "mean": float(apart.mean()), "same label": float(same)}


def run(evidence: Evidence, stream: Sequence[Change]) -> dict[str, Any]:
    """The figures of one stream."""
    method, names = DefaultCombiner(), evidence.annotations
    before = method.fit(evidence)
    live = method.follow(before, evidence)
    began = time.perf_counter()
    for change in stream:
        take_in(live, names, change)
    seconds = time.perf_counter() - began
    now = live.evidence()
    place = {item: row for row, item in enumerate(now.annotations.items)}
    touched = sorted({place[names.items[item]] for item, _, _ in stream})
    began = time.perf_counter()
    again = method.update(before, now)
    update = time.perf_counter() - began
    fitted = method.fit(now).probabilities
    at_once = live.snapshot().probabilities
    first = method.apply(before, now).probabilities
    return {
        "labels": len(now.annotations),
        "changes": len(stream),
        "ms a label": 1000 * seconds / len(stream),
        "read again s": update,
        "label by label": compared(at_once, fitted),
        "label by label, changed": compared(at_once[touched], fitted[touched]),
        "read again": compared(again.probabilities, fitted),
        "before, changed": compared(first[touched], fitted[touched]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures; with --save also write docs/benchmarks/service_beliefs.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=9_900)
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/service_beliefs.txt and .json")
    options = parser.parse_args(arguments)
    seen, answer = part(crowd("rte").annotations, 0.9)
    large, _, other = simulated(200_000, 1_000, 5, 5)
    streams = {
        "rte": (Evidence(seen), list(random_changes(seen, answer, 690))),
        "simulated": (large, list(random_changes(large.annotations, other, options.changes))),
    }
    lines, figures = list[str](), dict[str, Any]()
    for name, (evidence, stream) in streams.items():
        found, shown = run(evidence, stream), len(lines)
        figures[name] = found
        lines += ["", f"{name}: {found['labels']:,} labels, {found['changes']:,} changes"]
        lines += [f"  {found['ms a label']:.3f} ms a label; read again in {found['read again s']:.2f} s"]
        lines += [f"  {'':26s} {'largest':>9s} {'mean':>9s} {'same label':>11s}"]
        for what, values in found.items():
            if isinstance(values, dict):
                largest, mean, same = values.values()
                lines.append(f"  {what:26s} {largest:9.4f} {mean:9.5f} {100 * same:10.2f}%")
        print("\n".join(lines[shown:]), flush=True)
    bars = [
        (f"{name}: {what} within {bound} of a refit (mean)", f"{value:.5f}", value <= bound)
        for name, found in figures.items()
        for what, bound in (("label by label", 0.01), ("read again", 0.001))
        for value in [found[what]["mean"]]
    ]
    lines += results.held(bars)
    print("\n".join(lines[-len(bars) :]))
    if options.save:
        results.save("service_beliefs", lines, figures, "service.beliefs --save")


if __name__ == "__main__":
    main()
