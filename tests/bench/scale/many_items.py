"""Human and model on many items: a million of them, ten classes, three models, one label each.

    python -m tests.bench.scale.many_items [--items 1000000] [--save]

Simulated: people right nine times of ten, errors even; models whose scores are Gaussian around the truth, sharpened by
half. Seconds of a fit, megabytes it takes over its inputs at the most, the share of right labels. P+L knows the truth
of 5,000 items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import softmax

from hitl.annotations import Annotations, Ints
from hitl.evidence import Evidence
from hitl.models import PL, PLEM, DefaultCombiner
from tests.bench import results

CLASSES, PEOPLE, MODELS, KNOWN = 10, 1000, 3, 5000


def simulated(items: int, seed: int = 0) -> tuple[Evidence, Ints]:
    """The evidence and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(CLASSES, size=items).astype(np.int32)
    wrong = (truth + rng.integers(1, CLASSES, size=items)) % CLASSES
    label = np.where(rng.random(items) < 0.9, truth, wrong).astype(np.int32)
    names = tuple(range(CLASSES))
    people = tuple(f"person-{k}" for k in range(PEOPLE))
    who = rng.integers(PEOPLE, size=items).astype(np.int32)
    labels = Annotations(np.arange(items, dtype=np.int32), who, label, tuple(range(items)), people, names, names)
    models = {}
    for m in range(MODELS):
        score_nj = rng.standard_normal((items, CLASSES))
        score_nj[np.arange(items), truth] += 2.5
        models[f"model-{m}"] = softmax(1.5 * 2.5 * score_nj, axis=1)
    return Evidence(labels, models), truth


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, items=1_000_000)
    evidence, truth = simulated(options.items)
    known = replace(evidence, truth=np.where(np.arange(options.items) < KNOWN, truth, -1).astype(np.int32))
    warm, warm_truth = simulated(1000)
    figures = {}
    for name, made, given in (
        ("P+L", PL(), known),
        ("P+L-EM", PLEM(), evidence),
        ("default", DefaultCombiner(), evidence),
    ):
        made.fit(replace(warm, truth=warm_truth) if given is known else warm)  # compiles
        with results.measured() as took:
            found = made.fit(given)
        figures[name] = took | {"right": float(np.mean(found.codes == truth))}
    page = results.Page()
    page.tell(f"{options.items:,} items, {CLASSES} classes, {MODELS} models, {PEOPLE:,} people, one label an item")
    page.tell(*results.table(figures, 4))
    page.held(
        results.at_most("seconds", max(one["seconds"] for one in figures.values()), 10, ".1f"),
        results.at_most("MB over the inputs", max(one["MB"] for one in figures.values()), 1000, ".0f"),
    )
    if options.save:
        page.save("many_items", figures, "scale.many_items --save")


if __name__ == "__main__":
    main()
