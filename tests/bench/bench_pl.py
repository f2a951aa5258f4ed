"""P+L and P+L-EM on CIFAR-10H with one human label an image (Kerrigan 2021, table 3; notes of the house).

    python -m tests.bench.bench_pl [--models resnet-110 ...] [--splits 25]

Protocol: each image's labels are shuffled once with a fixed seed and the first is taken; 25 splits 70/30; the
combination is fitted on the first n of the 70 % and scored on the 30 %. ECE and class-wise ECE over 15 equal-mass
bins. Error in percent, mean over splits ± its standard error.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

from hitl import score
from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.pl import PL
from hitl.models.pl_em import PLEM
from tests.bench import results
from tests.reference_data import anonymous, cifar10h_labels, cifar10h_probabilities, cifar10h_truth

SIZES = (10, 50, 100, 500, 5000)


def evidence_of(
    rows: np.ndarray,
    human: np.ndarray,
    probabilities: Floats,
    truth: np.ndarray | None,
    classes: tuple[str, ...],
    model: str,
) -> Evidence:
    return Evidence(
        anonymous(human[rows], classes), {model: probabilities[rows]}, truth=None if truth is None else truth[rows]
    )


def run(
    model: str, splits: int, label_seed: int = 0, sizes: tuple[int, ...] = SIZES
) -> dict[tuple[str, int], np.ndarray]:
    """(method, n) -> (splits, 5): error %, ECE, cwECE, NLL, fit seconds."""
    truth, classes = cifar10h_truth()
    human = np.array([labels[0] for labels in cifar10h_labels(label_seed)], dtype=np.int32)
    probabilities = cifar10h_probabilities(model)
    rows: dict[tuple[str, int], list[list[float]]] = {}
    methods: dict[str, tuple[Callable[[], PL | PLEM], bool]] = {"P+L": (PL, True), "P+L-EM": (PLEM, False)}
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(truth))
        train, test = order[:7000], order[7000:]
        held_out = evidence_of(test, human, probabilities, None, classes, model)
        for n in sizes:
            for name, (make, supervised) in methods.items():
                known = truth if supervised else None
                fitted_on = evidence_of(train[:n], human, probabilities, known, classes, model)
                began = time.perf_counter()
                consensus = make().fit(fitted_on)
                seconds = time.perf_counter() - began
                p = make().apply(consensus, held_out).probabilities
                rows.setdefault((name, n), []).append(
                    [
                        100 * (1 - score.accuracy(p, truth[test])),
                        score.calibration_error(p, truth[test]),
                        score.classwise_calibration_error(p, truth[test]),
                        score.log_loss(p, truth[test]),
                        seconds,
                    ]
                )
        baseline = [100 * np.mean(human[test] != truth[test]), 0, 0, 0, 0]
        rows.setdefault(("human", 0), []).append(baseline)
        p = probabilities[test]
        rows.setdefault(("model", 0), []).append(
            [
                100 * (1 - score.accuracy(p, truth[test])),
                score.calibration_error(p, truth[test]),
                score.classwise_calibration_error(p, truth[test]),
                score.log_loss(p, truth[test]),
                0,
            ]
        )
    return {key: np.array(values) for key, values in rows.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of each model; with --save also write docs/benchmarks/pl.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet-110", "resnet-low-acc", "preresnet-110"])
    parser.add_argument("--splits", type=int, default=25)
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/pl.txt and .json")
    options = parser.parse_args(arguments)
    lines: list[str] = []
    figures: dict[str, float] = {}
    for model in options.models:
        lines += [
            "",
            f"{model} ({options.splits} splits)",
            "method       n   error %        ECE    cwECE    NLL   fit ms",
        ]
        for (name, n), values in sorted(run(model, options.splits).items()):
            mean, spread = values.mean(axis=0), values[:, 0].std(ddof=1) / np.sqrt(len(values))
            milliseconds = 1000 * np.median(values[:, 4])
            lines.append(
                f"{name:8s} {n:5d}   {mean[0]:5.2f} ±{spread:.2f}   {mean[1]:.4f}   {mean[2]:.4f}"
                f"  {mean[3]:.3f}   {milliseconds:6.1f}"
            )
            figures[f"{model} {name} {n}"] = float(mean[0])
    print("\n".join(lines))
    if options.save:
        results.save("pl", lines, figures)


if __name__ == "__main__":
    main()
