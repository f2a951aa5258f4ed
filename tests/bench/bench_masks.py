"""Masks of several annotators: Dice on simulated images with blobs, for several kinds of noise, and what a fit costs.

    python -m tests.bench.bench_masks                  all parts
    python -m tests.bench.bench_masks --parts cost

quality     six images of 256 x 256 and five annotators; the mean Dice of the images, and its standard deviation over
            seeds. "held out": the breadth that has the highest mean Dice on all other kinds of noise.
cost        100 images of 512 x 512 with five masks each: seconds, and memory over the inputs

vb-ibcc is that of pixels, each by itself: `MaskConsensus(strength=0, breadth=1)`, which is the same (see the tests).
The kinds of noise are those of tests/kinds/simulated_masks.py. Breadths were compared while the method
was made, on the seeds 0 to 3 of the same kinds; the seeds here begin at 100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hitl.kinds.label_patterns import DrawnMasks
from hitl.kinds.mask_consensus import MaskConsensus
from tests.bench import results
from tests.kinds.simulated_masks import ANNOTATORS, NOISE, crowd, dice

BREADTHS = (1, 3, 5, 9, 17)
IMAGES, SIZE, FIRST_SEED = 6, 256, 100

Part = tuple[list[str], dict[str, Any]]


def scores(kind: str, seed: int) -> dict[str, float]:
    """Mean Dice of the images by each method."""
    truths, masks = crowd(kind, IMAGES, SIZE, seed)
    images = [DrawnMasks(one, tuple(range(ANNOTATORS))) for one in masks]

    def mean(found: Callable[[int], Any]) -> float:
        return float(np.mean([dice(found(i), truth) for i, truth in enumerate(truths)]))

    methods = {"vb-ibcc": MaskConsensus(strength=0, breadth=1)}
    methods |= {f"breadth {breadth}": MaskConsensus(breadth=breadth) for breadth in BREADTHS}
    annotators = [mean(lambda i, a=a: masks[i][a]) for a in range(ANNOTATORS)]  # type: ignore[misc]
    found = {"annotator": float(np.mean(annotators)), "majority": mean(lambda i: masks[i].mean(axis=0) > 0.5)}
    return found | {name: mean(method.fit(images).mask) for name, method in methods.items()}


def quality(seeds: int) -> Part:
    drawn = {kind: [scores(kind, FIRST_SEED + seed) for seed in range(seeds)] for kind in NOISE}
    names = [f"breadth {breadth}" for breadth in BREADTHS]
    for kind in NOISE:
        others = [one for other in NOISE if other != kind for one in drawn[other]]
        chosen = max(names, key=lambda name: sum(one[name] for one in others))
        for one in drawn[kind]:
            one["held out"] = one[chosen]
    columns = {kind: {name: [one[name] for one in found] for name in found[0]} for kind, found in drawn.items()}
    figures = {kind: {name: float(np.mean(one)) for name, one in row.items()} for kind, row in columns.items()}
    cells = {kind: {name: results.spread(one) for name, one in row.items()} for kind, row in columns.items()}
    return [*results.table(cells), f"Dice: means of {seeds} seeds (standard deviation)"], figures


def cost(seeds: int) -> Part:
    lines, figures = [], {}
    small = [DrawnMasks(one, tuple(range(ANNOTATORS))) for one in crowd("boundary", 2, 64, 0)[1]]
    MaskConsensus().fit(small)  # compiles
    for kind in ("boundary", "pixel"):
        masks = crowd(kind, 10, 512, FIRST_SEED)[1] * 10
        images = [DrawnMasks(one, tuple(range(ANNOTATORS))) for one in masks]
        with results.measured() as took:
            found = MaskConsensus().fit(images)
        figures[kind] = took | {"iterations": found.fit.iterations}
        cells = f"{took['seconds']:8.1f} s ({took['cpu']:.1f} s of all threads){took['MB']:8.0f} MB"
        lines.append(f"{kind:10}{cells}   {found.fit.iterations} iterations, strength {found.strength:g}")
    return lines, figures


def main(arguments: Sequence[str] | None = None) -> None:
    parts = {"cost": cost, "quality": quality}
    options = results.options(__doc__, arguments, parts=list(parts), seeds=6)
    page = results.Page()
    figures = page.parts(parts, options.parts, options.seeds)
    if options.save:
        page.save("masks", figures)


if __name__ == "__main__":
    main()
