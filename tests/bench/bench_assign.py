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
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hitl.active.acquisition.expected_gain import ACCURACY, INFORMATION, Gains, Measure, Question
from hitl.active.assignment.assign import Pair, assign
from hitl.active.assignment.batch import shares
from hitl.active.assignment.eligibility import Eligibility
from hitl.annotations import Annotations, Floats
from hitl.crew import UNLIMITED, Crew
from tests.active.assignment.test_assign import best_by_program, crowded, total
from tests.bench import results

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
    options = results.options(__doc__, arguments, items=1_000_000)
    rng = np.random.default_rng(0)
    q, confusion = beliefs(options.items, rng), people(rng)
    names, who = tuple(range(CLASSES)), tuple(f"person-{k}" for k in range(PEOPLE))
    annotator, label = (rng.integers(high, size=options.items).astype(np.int32) for high in (PEOPLE, CLASSES))

    def given(n: int) -> Annotations:
        return Annotations(np.arange(n, dtype=np.int32), annotator[:n], label[:n], tuple(range(n)), who, names, names)

    for one in (INFORMATION, ACCURACY):  # compiles
        plan(q[:99], confusion, given(99), Crew(who, default_capacity=50), one, 9)
    with results.measured() as once:
        q.sum()
    page, figures = results.Page(), dict[str, dict[str, float]]()
    page.tell(
        f"{options.items:,} items, {PEOPLE:,} annotators, {CLASSES} classes; pass over the beliefs: "
        f"{once['seconds']:.3f} s",
        f"{'':14s} {'items':>9s} {'s':>6s} {'cpu s':>6s} {'/ pass':>7s} {'MB':>6s} {'looked at':>9s} {'pairs':>6s}"
        f" {'worth':>8s}",
    )
    for name, (share, limit, capacity, measure, even) in CASES.items():
        n = int(share * options.items)
        belief, answers = np.full((n, CLASSES), 1 / CLASSES) if even else q[:n], given(n)
        crew = Crew(who, default_capacity=capacity)
        with results.measured() as took:
            found, looked = plan(belief, confusion, answers, crew, measure, limit)
        took["passes"] = took["seconds"] / (once["seconds"] * share)
        figures[name] = took | {"looked at": looked, "pairs": len(found), "worth": total(found)}
        page.tell(
            f"{name:14s} {n:9,d} {took['seconds']:6.2f} {took['cpu']:6.2f} {took['passes']:7.0f} {took['MB']:6.0f}"
            f" {looked:9,d} {len(found):6,d} {total(found):8.1f}"
        )
    least = exact()
    figures["200 x 50"] = {"of the exact solver's": least}
    page.held(
        *(
            results.at_most(f"{name}: seconds", figures[name]["seconds"], 2, ".2f")
            for name in ("1,000 pairs", "spread")
        ),
        results.at_most("1,000 pairs: MB over the inputs", figures["1,000 pairs"]["MB"], 2000, ".0f"),
        results.at_least("200 x 50: share of an exact solver's value", least, 0.99, ".3%"),
    )
    if options.save:
        page.save("assign", figures)


if __name__ == "__main__":
    main()
