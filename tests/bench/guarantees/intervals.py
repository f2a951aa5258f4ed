"""Do intervals of the error cover, and how wide are they beside those of Clopper and Pearson? Public labels.

    python -m tests.bench.guarantees.intervals [--draws 2000] [--save]

Each set's labels are those of hitl's default (`public`). 30, 100 or 300 items are drawn at random and known; the share
of wrong labels is estimated from them and from the belief about all. From 100 on, also of items that are drawn half by
doubt, as `hitl estimate --draw` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hitl.active.guarantees.intervals import FEW, chances, clopper_pearson, draw, drawn_share, share_of
from tests.bench import results
from tests.bench.guarantees.public import SETS

KNOWN = (30, 100, 300)


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, draws=2_000)
    page, rows = results.Page(), dict[str, dict[str, Any]]()
    for name, make in SETS.items():
        doubt, wrong = make()
        rng, row = np.random.default_rng(0), rows.setdefault(name, {"wrong": float(wrong.mean())})
        for known in KNOWN:
            covers, width, exact, of_doubt = [], [], [], []
            chance_n = chances(doubt, min(known, len(wrong) - 1))
            for _ in range(options.draws):
                drawn = rng.choice(len(wrong), min(known, len(wrong)), replace=False)
                own = share_of(wrong[drawn].astype(float), doubt[drawn], float(doubt.mean()), len(wrong))
                covers.append(own.low <= wrong.mean() <= own.high)
                width.append(own.width)
                exact.append(clopper_pearson(int(wrong[drawn].sum()), len(drawn)).width)
                if known >= FEW:
                    drawn = draw(chance_n, rng)
                    answers = wrong[drawn].astype(float)
                    of_doubt.append(
                        drawn_share(answers, doubt[drawn], chance_n[drawn], float(doubt.mean()), len(wrong))
                    )
            row |= {
                f"covers at {known}": float(np.mean(covers)),
                f"width at {known}": float(np.mean(width) / np.mean(exact)),
            }
            if of_doubt:
                row |= {
                    f"covers by doubt at {known}": float(np.mean([a.low <= wrong.mean() <= a.high for a in of_doubt])),
                    f"width by doubt at {known}": float(np.mean([a.width for a in of_doubt]) / np.mean(exact)),
                }
        page.tell(f"{name}: {row}")
    page.tell(
        "", "coverage of 95 % intervals of the error, and their mean width / Clopper-Pearson's", *results.table(rows)
    )
    error = 2 * np.sqrt(0.05 * 0.95 / options.draws)
    page.held(
        results.at_least("coverage at 30, worst set", min(row["covers at 30"] for row in rows.values()), 0.95 - error),
        *(
            results.at_least(f"coverage at {n}, worst set", min(row[f"covers at {n}"] for row in rows.values()), 0.935)
            for n in KNOWN[1:]
        ),
        *(
            results.at_most_each(
                f"width at {n}", {name: row[f"width at {n}"] for name, row in rows.items()}, 1.0, ".3f"
            )
            for n in KNOWN[1:]
        ),
        *(
            results.at_least(
                f"coverage by doubt at {n}, worst set",
                min(row[f"covers by doubt at {n}"] for row in rows.values()),
                0.935,
            )
            for n in KNOWN[1:]
        ),
        results.at_most_each(
            "width by doubt at 300, photos",
            {name: row["width by doubt at 300"] for name, row in rows.items() if name.startswith("cifar10h")},
            0.62,
            ".3f",
        ),
        results.at_most_each(
            "width at 300, crowds",
            {name: row["width at 300"] for name, row in rows.items() if not name.startswith("cifar10h")},
            0.9,
            ".3f",
        ),
    )
    if options.save:
        page.save("intervals", rows, "guarantees.intervals --save")


if __name__ == "__main__":
    main()
