"""Replay on CIFAR-10H: human labels needed with models' probabilities, beside labels spread evenly.

    python -m tests.bench.bench_replay_cifar10h                              reads $HITL_DATA/cifar10h
    python -m tests.bench.bench_replay_cifar10h --file resnet-110.csv        reads the file as published

The published file is cifar10h/resnet-110.csv of github.com/GavinKerrigan/conf_matrix_and_calibration: 10,000 rows of
truth, 10 human label counts, 10 class probabilities, no header. Every image's recorded labels come in a seeded random
order from an anonymous pool, none used twice. Nothing is known of the truth; it scores only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hitl.active.replay.replay import Replay, ReplayResult, spread_evenly
from hitl.annotations import Annotations, Floats, Ints
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote
from hitl.models.pl_em import PLEM
from tests.bench import results
from tests.reference_data import cifar10h_counts, cifar10h_probabilities, cifar10h_truth

TARGETS = (0.98, 0.985, 0.99)
MODELS = ("resnet-110", "resnet-low-acc", "preresnet-110")
BATCH = 25
"""The smaller, the sooner an answer is heard: 200 instead of 50 need 5 to 10 % more labels, 50 instead of 25 1 %."""

AT = (0, 1_000, 2_000, 4_000, 6_000, 8_000, 10_000, 14_000)
EVEN = (10_000, 20_000, 30_000, 40_000, 50_000, 75_000, 100_000, 140_000, 200_000, 300_000)


def recorded(file: Path | None = None) -> Evidence:
    """All recorded labels of all images, from one anonymous pool, with the probabilities of resnet-110."""
    if file is None:
        truth, counts, probabilities = cifar10h_truth()[0], cifar10h_counts(), cifar10h_probabilities(MODELS[0])
    else:
        table = np.loadtxt(file, delimiter=",")
        truth, counts = table[:, 0].astype(np.int32), table[:, 1:11].astype(np.int64)
        probabilities = table[:, 11:] / table[:, 11:].sum(axis=1, keepdims=True)
    n, j = counts.shape
    item = np.repeat(np.arange(n, dtype=np.int32), counts.sum(axis=1))
    label = np.repeat(np.tile(np.arange(j, dtype=np.int32), n), counts.ravel())
    classes = tuple(range(j))
    people = Annotations(item, np.zeros_like(item), label, tuple(range(n)), ("people",), classes, classes, anonymous=0)
    return Evidence(people, {MODELS[0]: probabilities}, truth=truth)


def run(evidence: Evidence, seed: int, most_labels: int, batch: int = BATCH) -> ReplayResult:
    """Replay to `most_labels` labels in batches."""
    budget = Budget(open_questions=batch, target_confidence=1.0, min_labels=0, max_labels=40)
    return Replay(PLEM(), budget=budget, most_labels=most_labels).run(evidence, np.random.default_rng(seed))


def needed(curves: Floats, labels: Ints, target: float) -> dict[str, list[int | None]]:
    """Labels until each seed first has the target, and from where it keeps it (None: never)."""
    found: dict[str, list[int | None]] = {"first": [], "stays": []}
    for accuracy in curves:
        above, below = np.flatnonzero(accuracy >= target), np.flatnonzero(accuracy < target)
        after = int(below[-1]) + 1 if below.size else 0
        found["first"].append(int(labels[above[0]]) if above.size else None)
        found["stays"].append(int(labels[after]) if after < len(labels) else None)
    return found


MOST = {("resnet-110", 0.985): 3_600, ("resnet-110", 0.99): 9_000, ("three models", 0.99): 5_000}
"""(models, accuracy) -> labels that must be enough for good."""


def middle(labels: Sequence[int | None]) -> float:
    """The median, where never is more than any number."""
    return float(np.median([np.inf if one is None else one for one in labels]))


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, file=None, seeds=5, labels=12_000)
    seeds = range(options.seeds)
    people = recorded(options.file and Path(options.file))
    known = {"resnet-110": people}
    if options.file is None:
        three = {model: cifar10h_probabilities(model) for model in MODELS}
        known["three models"] = Evidence(people.annotations, three, truth=people.truth)
    figures: dict[str, object] = {"seeds": options.seeds}
    curves: dict[str, tuple[Ints, Floats]] = {}
    page, asked = results.Page(), list[results.Bar]()
    page.tell(f"CIFAR-10H, {options.seeds} seeds, batches of {BATCH}: labels until first reached, and for good")

    def row(n: int, at: Floats) -> str:
        return f"{n:8,}   {at.mean():.4f} ({at.min():.4f}-{at.max():.4f})"

    for name, evidence in known.items():
        began = time.perf_counter()
        runs = [run(evidence, seed, options.labels) for seed in seeds]
        steps = min(len(result.labels) for result in runs)
        labels, accuracy = runs[0].labels[:steps], np.stack([result.accuracy[:steps] for result in runs])
        curves[name] = labels, accuracy
        page.tell(f"hitl, {name} ({(time.perf_counter() - began) / options.seeds:.0f} s a replay)")
        for target in TARGETS:
            found = figures[f"{name}, labels to {target}"] = needed(accuracy, labels, target)
            cells = (f"{middle(found[which]):,.0f} {found[which]}" for which in ("first", "stays"))
            page.tell(f"  {target:.1%}: {'   '.join(cells)}")
            if most := MOST.get((name, target)):
                claim = f"{name}: labels to {target:.1%} for good"
                asked.append(results.at_most(claim, middle(found["stays"]), most, ",.0f"))
        page.tell(*(row(n, accuracy[:, np.searchsorted(labels, n)]) for n in AT if n <= labels[-1]))
    even = {}
    for name, combiner in (("P+L-EM, resnet-110", PLEM()), ("majority vote", MajorityVote())):
        name = f"{name}, spread evenly"
        even[name] = np.stack([spread_evenly(people, combiner, EVEN, np.random.default_rng(seed)) for seed in seeds])
        page.tell(name, *(row(n, even[name][:, column]) for column, n in enumerate(EVEN)))
        figures[name] = dict(zip(EVEN, even[name].mean(axis=0).tolist(), strict=True))
    page.held(*asked)
    if options.save:
        page.save("replay_cifar10h", figures)
        draw(curves, even)


def draw(curves: Mapping[str, tuple[Ints, Floats]], even: Mapping[str, Floats]) -> None:
    """Draw the curve of the README."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "hitl"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 3.8), layout="constrained")
    for (name, (labels, accuracy)), color in zip(curves.items(), ("#0072b2", "#009e73"), strict=False):
        percent = 100 * accuracy[:, 1:]
        low, high = percent.min(axis=0), percent.max(axis=0)
        axes.fill_between(labels[1:], low, high, color=color, alpha=0.25, linewidth=0)
        axes.plot(labels[1:], percent.mean(axis=0), color=color, label=f"hitl asks, {name}")
    for (name, values), color in zip(even.items(), ("#cc79a7", "#d55e00"), strict=True):
        axes.plot(EVEN, 100 * values.mean(axis=0), color=color, marker="o", markersize=3, label=name)
    axes.axhline(93.89, color="#777777", linewidth=0.8, linestyle=":")
    axes.annotate("resnet-110 alone", (100_000, 93.97), color="#777777", fontsize=8)
    axes.set(
        xscale="log", xlabel="human labels (log scale)", ylabel="accuracy (%)", xlim=(200, 300_000), ylim=(93.5, 99.5)
    )
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 0.08))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(results.FOLDER / "replay_cifar10h.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
