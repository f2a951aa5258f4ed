"""Who is asked what, among a million items and a thousand annotators.

    python -m tests.bench.bench_assign [--items 1000000] [--save]

Simulated: beliefs of a model whose scores are Gaussian around the truth; annotators right four times of five on
average, some nearly always, some hardly better than chance, each with errors of their own; one label an item so far.
The time is all that a plan needs beside the beliefs: who may be asked, bounds for all items, the choice. `pass`: the
time to read the beliefs once, which nobody can save. MB: memory over the inputs at the most. `looked at`: items whose
values were computed. `spread`: nobody has a capacity, and beyond two even shares of the questions answers count half,
as the policy has it; elsewhere all counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hitl.active.acquisition.expected_gain import ACCURACY, INFORMATION, Gains, Measure, Question
from hitl.active.assignment.assign import Pair, assign
from hitl.active.assignment.eligibility import Eligibility
from hitl.active.assignment.load_balancing import shares
from hitl.annotations import Annotations, Floats
from hitl.crew import UNLIMITED, Crew
from tests.active.assignment.test_assign import best_by_program, crowded, total
from tests.bench import results
from tests.bench.bench_speed import Peak

CLASSES, PEOPLE = 10, 1000

CASES: dict[str, tuple[float, int, int, Measure, bool]] = {
    "1,000 pairs": (1.0, 1000, 50, INFORMATION, False),
    "by accuracy": (1.0, 1000, 50, ACCURACY, False),
    "nothing known": (1.0, 1000, 5, INFORMATION, True),
    "all busy": (1.0, 1000, 2, INFORMATION, False),
    "20,000 pairs": (0.1, 20_000, 50, INFORMATION, False),
    "20,000, busy": (0.1, 20_000, 25, INFORMATION, False),
    "spread": (1.0, 1000, UNLIMITED, INFORMATION, False),
    "20,000, spread": (0.1, 20_000, UNLIMITED, INFORMATION, False),
}
"""Name -> share of the items, pairs wanted, capacity of each, measure, whether all beliefs are even."""

SPREAD = 2.0
"""Even shares beyond which answers count half, where nobody has a capacity."""


def beliefs(items: int, rng: np.random.Generator) -> Floats:
    """(N, J) softmax of scores."""
    truth = rng.integers(CLASSES, size=items)
    q = rng.standard_normal((items, CLASSES))
    q[np.arange(items), truth] += 2.5
    q *= 2.5
    q -= q.max(axis=1, keepdims=True)
    np.exp(q, out=q)
    q /= q.sum(axis=1, keepdims=True)
    return q


def people(rng: np.random.Generator) -> Floats:
    """(K, J, J) confusion matrices."""
    right = np.clip(rng.beta(8, 2, (PEOPLE, 1)) + 0.08 * rng.standard_normal((PEOPLE, CLASSES)), 0.1, 0.98)
    errors = rng.gamma(1.0, size=(PEOPLE, CLASSES, CLASSES)) * (1 - np.eye(CLASSES))
    errors *= ((1 - right) / errors.sum(axis=2))[:, :, None]
    return 0.99 * (errors + right[:, :, None] * np.eye(CLASSES)) + 0.01 / CLASSES


def plan(
    q: Floats, confusion: Floats, given: Annotations, crew: Crew, measure: Measure, limit: int
) -> tuple[tuple[Pair, ...], int]:
    """All that is measured, and the number of items looked at."""
    free = Eligibility.of(crew, [given])
    gains = Gains(measure, [Question(q, confusion)])
    rows, looked = np.arange(len(q)), 0
    times = SPREAD if crew.default_capacity == UNLIMITED else math.inf

    def values(at: npt.NDArray[np.int64]) -> Floats:
        nonlocal looked
        looked += len(at)
        return gains.values(at)

    pairs = assign(rows, gains.bound(rows), values, free, limit, share=shares(free, rows, limit, times))
    return pairs, looked


def exact() -> float:
    """The least share of the exact solver's total in five choices of 200 x 50."""
    least = 1.0
    for seed in range(5):
        crew, given, gains = crowded(seed)
        free, rows = Eligibility.of(crew, [given]), np.arange(200)
        found = assign(rows, gains.bound(rows), gains.values, free, 90)
        best = best_by_program(gains.values(rows), free.mask_rows(rows), free.capacity.tolist(), 90)
        least = min(least, total(found) / best)
    return least


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with --save also write docs/benchmarks/assign.*."""
    options = results.options(__doc__, arguments, items=1_000_000)
    rng = np.random.default_rng(0)
    q, confusion = beliefs(options.items, rng), people(rng)
    names, who = tuple(range(CLASSES)), tuple(f"person-{k}" for k in range(PEOPLE))
    annotator, label = (rng.integers(high, size=options.items).astype(np.int32) for high in (PEOPLE, CLASSES))
    began = time.perf_counter()
    q.sum()
    once = time.perf_counter() - began
    lines = [
        f"{options.items:,} items, {PEOPLE:,} annotators, {CLASSES} classes; pass over the beliefs: {once:.3f} s",
        f"{'':14s} {'items':>9s} {'s':>6s} {'cpu s':>6s} {'/ pass':>7s} {'MB':>6s} {'looked at':>9s} {'pairs':>6s}"
        f" {'worth':>8s}",
    ]
    print("\n".join(lines), flush=True)
    figures: dict[str, dict[str, float]] = {}
    for name, (share, limit, capacity, measure, even) in CASES.items():
        n = int(share * options.items)
        belief = np.full((n, CLASSES), 1 / CLASSES) if even else q[:n]
        item = np.arange(n, dtype=np.int32)
        given = Annotations(item, annotator[:n], label[:n], tuple(range(n)), who, names, names)
        crew = Crew(who, default_capacity=capacity)
        if not figures:  # compiles
            small = Annotations(item[:99], annotator[:99], label[:99], tuple(range(99)), who, names, names)
            for one in (INFORMATION, ACCURACY):
                plan(belief[:99], confusion, small, crew, one, 9)
        peak = Peak()
        peak.start()
        began, busy = time.perf_counter(), time.process_time()
        found, looked = plan(belief, confusion, given, crew, measure, limit)
        seconds, cpu = time.perf_counter() - began, time.process_time() - busy
        peak.done.set()
        peak.join()
        over = (peak.bytes - peak.before) / 1e6
        figures[name] = {
            "seconds": seconds,
            "cpu": cpu,
            "passes": seconds / (once * share),
            "MB": over,
            "looked at": looked,
            "pairs": len(found),
            "worth": total(found),
        }
        lines.append(
            f"{name:14s} {n:9,d} {seconds:6.2f} {cpu:6.2f} {seconds / (once * share):7.0f} {over:6.0f}"
            f" {looked:9,d} {len(found):6,d} {total(found):8.1f}"
        )
        print(lines[-1], flush=True)
    main_case, spread, least = figures["1,000 pairs"], figures["spread"], exact()
    figures["200 x 50"] = {"of the exact solver's": least}
    bars = [
        ("1,000 pairs: seconds at most 2", f"{main_case['seconds']:.2f}", main_case["seconds"] <= 2),
        ("1,000 pairs: MB over the inputs at most 2000", f"{main_case['MB']:.0f}", main_case["MB"] <= 2000),
        ("1,000 pairs, spread: seconds at most 2", f"{spread['seconds']:.2f}", spread["seconds"] <= 2),
        ("200 x 50: within 1 % of an exact solver", f"{least:.3%}", least >= 0.99),
    ]
    lines += results.held(bars)
    print("\n".join(lines[-len(bars) :]))
    if options.save:
        results.save("assign", lines, figures)


if __name__ == "__main__":
    main()
