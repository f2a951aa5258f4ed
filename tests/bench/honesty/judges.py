"""Do the intervals of `hitl judge` cover, how narrow are they, and what is a panel worth? Simulated panels.

    python -m tests.bench.honesty.judges [--draws 1000] [--workers 2] [--save]

A draw has 1,000 items, .6 to .9 of which pass, some of them hard for all judges, and three judges who are right on .75
to .95 of the items: for themselves, as clones of one (each answers otherwise on 2 % of the items), or with a bias
towards passing. People read 100 items, without error. Alone, they have the interval of Clopper and Pearson.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from hitl.active.guarantees.intervals import clopper_pearson
from hitl.active.guarantees.panel import judged
from hitl.models.combine import fit
from hitl.models.default import DefaultCombiner
from tests.active.guarantees.panels import KINDS, panel
from tests.bench import results

READ = 100


def measured(job: tuple[str, int]) -> tuple[bool, float, list[bool], float]:
    """Return whether the pass rate is covered, width / that of people alone, whether accuracies are, and the worth."""
    kind, seed = job
    made = panel(kind, seed, items=1_000, read=READ)
    found = judged(made.evidence, [1], partial(fit, DefaultCombiner()), 0)
    passing, alone = found.passing, clopper_pearson(int(made.truth_n[made.read].sum()), READ)
    assert passing is not None
    right = [
        one.right is not None and one.right.low <= share <= one.right.high
        for one, share in zip(found.judges, made.right, strict=True)
    ]
    covers = passing.low <= made.truth_n.mean() <= passing.high
    return covers, passing.width / alone.width, right, np.nan if found.worth is None else found.worth.share


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, draws=1_000, workers=2)
    page, rows = results.Page(), dict[str, dict[str, Any]]()
    for kind in KINDS:
        jobs = [(kind, seed) for seed in range(options.draws)]
        cover, width, right, worth = zip(*results.side_by_side(measured, jobs, options.workers), strict=True)
        rows[kind] = {
            "covers": float(np.mean(cover)),
            "width": float(np.mean(width)),
            "covers accuracies": float(np.mean(right)),
            "worth": float(np.nanmedian(worth)),
            "worth, 95 %": float(np.nanquantile(worth, 0.95)),
        }
        page.tell(f"{kind}: {rows[kind]}")
    page.tell("", "coverage; mean width / people alone; coverage of accuracies; judges", *results.table(rows))
    error = 2 * np.sqrt(0.05 * 0.95 / options.draws)
    page.held(
        results.at_least("coverage, worst kind", min(row["covers"] for row in rows.values()), 0.95 - error),
        results.at_most("width / people alone, independent judges", rows["independent"]["width"], 0.8, ".3f"),
        results.at_most("worth of three clones", rows["clones"]["worth"], 1.2, ".2f"),
    )
    if options.save:
        page.save("judges", rows, "honesty.judges --save")


if __name__ == "__main__":
    main()
