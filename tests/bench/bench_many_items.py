"""Human and model on many items: a million of them, ten classes, three models, one label each.

    python -m tests.bench.bench_many_items [--items 1000000] [--save]

Simulated: people right nine times of ten, errors even; models whose scores are Gaussian around the truth, sharpened by
half. Seconds of a fit, megabytes it takes over its inputs at the most, the share of right labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models import PL, PLEM, DefaultCombiner
from tests.bench import results
from tests.bench.bench_speed import Peak

CLASSES, PEOPLE, MODELS, KNOWN = 10, 1000, 3, 5000

METHODS: dict[str, tuple[Callable[[], Any], bool]] = {
    "P+L": (PL, True),
    "P+L-EM": (PLEM, False),
    "default": (DefaultCombiner, False),
}
"""Name -> how it is made, and whether it is told KNOWN truths."""


def simulated(items: int, seed: int = 0) -> tuple[Evidence, np.ndarray]:
    """The evidence and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(CLASSES, size=items).astype(np.int32)
    wrong = (truth + rng.integers(1, CLASSES, size=items)) % CLASSES
    said = np.where(rng.random(items) < 0.9, truth, wrong).astype(np.int32)
    names = tuple(range(CLASSES))
    people = tuple(f"person-{k}" for k in range(PEOPLE))
    who = rng.integers(PEOPLE, size=items).astype(np.int32)
    labels = Annotations(np.arange(items, dtype=np.int32), who, said, tuple(range(items)), people, names, names)
    return Evidence(labels, {f"model-{m}": _model(rng, truth) for m in range(MODELS)}), truth


def _model(rng: np.random.Generator, truth: np.ndarray) -> Floats:
    p_nj = rng.standard_normal((truth.size, CLASSES))
    p_nj[np.arange(truth.size), truth] += 2.5
    p_nj *= 1.5 * 2.5
    p_nj -= p_nj.max(axis=1, keepdims=True)
    np.exp(p_nj, out=p_nj)
    p_nj /= p_nj.sum(axis=1, keepdims=True)
    return p_nj


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with --save also write docs/benchmarks/many_items.*."""
    options = results.options(__doc__, arguments, items=1_000_000)
    evidence, truth = simulated(options.items)
    warm, _ = simulated(1000)
    told = np.where(np.arange(options.items) < KNOWN, truth, -1)
    lines = [f"{options.items:,} items, {CLASSES} classes, {MODELS} models, {PEOPLE:,} people, one label an item"]
    figures: dict[str, float] = {}
    for name, (make, supervised) in METHODS.items():
        make().fit(replace(warm, truth=np.zeros(1000, np.int32)) if supervised else warm)  # compiles
        given = replace(evidence, truth=told) if supervised else evidence
        peak = Peak()
        peak.start()
        began = time.perf_counter()
        found = make().fit(given)
        seconds = time.perf_counter() - began
        peak.done.set()
        peak.join()
        right = float(np.mean(found.labels == truth))
        over = (peak.bytes - peak.before) / 1e6
        lines.append(f"{name:8} {seconds:6.2f} s   {over:7.0f} MB over the inputs   {right:.4f} right")
        figures |= {f"{name} seconds": seconds, f"{name} MB": over, f"{name} right": right}
    worst = {unit: max(figures[f"{name} {unit}"] for name in METHODS) for unit in ("seconds", "MB")}
    bars = [
        ("seconds at most 10", f"{worst['seconds']:.1f}", worst["seconds"] <= 10),
        ("MB over the inputs at most 1000", f"{worst['MB']:.0f}", worst["MB"] <= 1000),
    ]
    lines += results.held(bars)
    print("\n".join(lines))
    if options.save:
        results.save("many_items", lines, figures)


if __name__ == "__main__":
    main()
