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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hitl.kinds.label_patterns import DrawnMasks
from hitl.kinds.mask_consensus import MaskConsensus
from tests.bench import results
from tests.kinds.simulated_masks import ANNOTATORS, NOISE, crowd, dice

COMPOUND = ("mixed", "speckled")
"""Kinds on which an average annotator has a Dice below one half: reported without a bar."""
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


def bars(
    drawn: Mapping[str, Sequence[Mapping[str, float]]], figures: Mapping[str, Mapping[str, float]]
) -> list[results.Bar]:
    """On pixel noise .05 above VB-IBCC; elsewhere not below VB-IBCC and majority by more than two standard errors."""
    found: list[results.Bar] = []
    for kind in (kind for kind in drawn if kind not in COMPOUND):
        rivals = ("vb-ibcc",) if kind == "pixel" else ("vb-ibcc", "majority")
        rival, ours = max(rivals, key=figures[kind].__getitem__), figures[kind]["held out"]
        gap = [one["held out"] - one[rival] for one in drawn[kind]]
        error = float(np.std(gap, ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else 0.0
        margin = 0.05 if kind == "pixel" else -max(2 * error, 0.005)
        claim = "above vb-ibcc by .05" if kind == "pixel" else "not below the best of both"
        holds = ours > figures[kind][rival] + margin
        found.append((f"{kind}: Dice {claim}", f"{ours:.3f}, {figures[kind][rival]:.3f}", holds))
    return found


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
    lines = [*results.table(cells), f"Dice: means of {seeds} seeds (standard deviation)"]
    return [*lines, *results.held(*bars(drawn, figures))], figures


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
    slowest, largest = (max(one[what] for one in figures.values()) for what in ("seconds", "MB"))
    bars = (
        results.at_most("100 images of 512 x 512 x 5: seconds", slowest, 30, ".1f"),
        results.at_most("100 images of 512 x 512 x 5: GiB over the inputs", largest * 1e6 / 2**30, 8, ".2f"),
    )
    return [*lines, *results.held(*bars)], figures


def main(arguments: Sequence[str] | None = None) -> None:
    parts = {"cost": cost, "quality": quality}
    options = results.options(__doc__, arguments, parts=list(parts), seeds=6)
    page = results.Page()
    figures = page.parts(parts, options.parts, options.seeds)
    if options.save:
        page.save("masks", figures)


if __name__ == "__main__":
    main()
