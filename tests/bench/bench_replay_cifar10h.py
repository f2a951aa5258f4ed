"""Replay on CIFAR-10H: human labels needed with resnet-110's probabilities, beside majority vote spread evenly.

    python -m tests.bench.bench_replay_cifar10h                              reads $HITL_DATA/cifar10h
    python -m tests.bench.bench_replay_cifar10h --file resnet-110.csv        reads the file as published

The published file is cifar10h/resnet-110.csv of github.com/GavinKerrigan/conf_matrix_and_calibration: 10,000 rows of
truth, 10 human label counts, 10 class probabilities, no header. Every image's recorded labels come in a seeded random
order from an anonymous pool, none used twice. Nothing is known of the truth; it scores only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hitl.active.replay import Replay, ReplayResult, spread_evenly
from hitl.annotations import Annotations, Floats, Ints
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote
from hitl.models.pl_em import PLEM
from tests.bench import results
from tests.reference_data import cifar10h_counts, cifar10h_probabilities, cifar10h_truth

TARGETS = (0.98, 0.985, 0.99)
AT = (0, 1_000, 2_000, 4_000, 6_000, 8_000, 10_000, 14_000)
EVEN = (10_000, 20_000, 30_000, 40_000, 50_000, 75_000, 100_000, 140_000, 200_000, 300_000)


def recorded(model: str = "resnet-110", file: Path | None = None) -> Evidence:
    """All recorded labels of all images, from one anonymous pool, with the model's probabilities."""
    if file is None:
        truth, _ = cifar10h_truth()
        return pooled(truth, cifar10h_counts(), cifar10h_probabilities(model), model)
    table = np.loadtxt(file, delimiter=",")
    probabilities = table[:, 11:] / table[:, 11:].sum(axis=1, keepdims=True)
    return pooled(table[:, 0].astype(np.int32), table[:, 1:11].astype(np.int64), probabilities, model)


def pooled(truth: Ints, counts: Ints, probabilities: Floats, model: str) -> Evidence:
    """Evidence of (N, J) label counts; a label is one answer of somebody unknown."""
    n, j = counts.shape
    item = np.repeat(np.arange(n, dtype=np.int32), counts.sum(axis=1))
    label = np.repeat(np.tile(np.arange(j, dtype=np.int32), n), counts.ravel())
    classes = tuple(range(j))
    people = Annotations(item, np.zeros_like(item), label, tuple(range(n)), ("people",), classes, classes, anonymous=0)
    return Evidence(people, {model: probabilities}, truth=truth)


def run(evidence: Evidence, seed: int, most_labels: int, batch: int = 200) -> ReplayResult:
    """One replay, to `most_labels` labels in batches."""
    budget = Budget(labels=batch, target_confidence=1.0, min_labels=0, max_labels=40)
    return Replay(PLEM(), budget=budget, most_labels=most_labels).run(evidence, np.random.default_rng(seed))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with --save also write docs/benchmarks/replay_cifar10h.* and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="resnet-110.csv as published")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--labels", type=int, default=16_000)
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/replay_cifar10h.txt, .json and .svg")
    options = parser.parse_args(arguments)
    evidence = recorded(file=options.file)
    began = time.perf_counter()
    runs = [run(evidence, seed, options.labels) for seed in range(options.seeds)]
    seconds = (time.perf_counter() - began) / options.seeds
    even = np.stack(
        [spread_evenly(evidence, MajorityVote(), EVEN, np.random.default_rng(seed)) for seed in range(options.seeds)]
    )
    lines = [f"CIFAR-10H with resnet-110, {options.seeds} seeds, {seconds:.1f} s a replay of {options.labels:,} labels"]
    figures: dict[str, object] = {"seeds": options.seeds}
    for target in TARGETS:
        needed = [result.labels_to_reach(target) for result in runs]
        lines.append(f"labels to reach {target:.1%}: {needed}")
        figures[f"labels to {target}"] = needed
    lines.append("  labels   hitl accuracy (min-max)")
    for n in (n for n in AT if n <= options.labels):
        reached = [float(result.accuracy[np.searchsorted(result.labels, n)]) for result in runs]
        lines.append(f"{n:8,}   {np.mean(reached):.4f} ({min(reached):.4f}-{max(reached):.4f})")
    lines.append("  labels   majority vote, spread evenly (min-max)")
    for column, n in enumerate(EVEN):
        lines.append(f"{n:8,}   {even[:, column].mean():.4f} ({even[:, column].min():.4f}-{even[:, column].max():.4f})")
    figures["majority"] = {n: float(even[:, column].mean()) for column, n in enumerate(EVEN)}
    print("\n".join(lines))
    if options.save:
        results.save("replay_cifar10h", lines, figures)
        draw(runs, even)


def draw(runs: list[ReplayResult], even: Floats) -> None:
    """The curve of the README."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "hitl"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 3.6), layout="constrained")
    labels = runs[0].labels[1:]
    accuracy = 100 * np.stack([result.accuracy[1 : len(labels) + 1] for result in runs])
    axes.fill_between(labels, accuracy.min(axis=0), accuracy.max(axis=0), color="#0072b2", alpha=0.25, linewidth=0)
    axes.plot(labels, accuracy.mean(axis=0), color="#0072b2")
    axes.annotate("hitl: P+L-EM, asks where\nan answer tells most", (2_700, 98.6), color="#0072b2", ha="right")
    axes.plot(EVEN, 100 * even.mean(axis=0), color="#d55e00", marker="o", markersize=3)
    axes.annotate("majority vote,\nspread evenly", (80_000, 98.1), color="#d55e00")
    axes.axhline(93.89, color="#777777", linewidth=0.8, linestyle=":")
    axes.annotate("resnet-110 alone", (100_000, 93.97), color="#777777", fontsize=8)
    axes.set(
        xscale="log", xlabel="human labels (log scale)", ylabel="accuracy (%)", xlim=(200, 300_000), ylim=(93.5, 99.5)
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(results.FOLDER / "replay_cifar10h.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
