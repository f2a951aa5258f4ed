"""Replay on CIFAR-10H: human labels needed with resnet-110's probabilities, beside majority vote spread evenly.

    python -m tests.bench.bench_replay_cifar10h [--seeds 3] [--labels 16000] [--figure docs/images/cifar10h.svg]

Every image's recorded labels come in a seeded random order from an anonymous pool, none used twice. Nothing is
known of the truth; it scores only.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from hitl.active.replay import Replay, ReplayResult, spread_evenly
from hitl.annotations import Annotations
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote
from hitl.models.pl_em import PLEM
from tests.reference_data import cifar10h_labels, cifar10h_probabilities, cifar10h_truth

TARGETS = (0.98, 0.985, 0.99)
EVEN = (10_000, 20_000, 30_000, 40_000, 50_000, 75_000, 100_000, 140_000, 200_000, 400_000)


def recorded(model: str = "resnet-110") -> Evidence:
    """All recorded labels of all images, from one anonymous pool, with the model's probabilities."""
    truth, classes = cifar10h_truth()
    labels = cifar10h_labels(0)
    item = np.repeat(np.arange(len(labels), dtype=np.int32), [len(row) for row in labels])
    annotations = Annotations(
        item, np.zeros_like(item), np.concatenate(labels), tuple(range(len(labels))), ("people",), classes, classes, 0
    )
    return Evidence(annotations, {model: cifar10h_probabilities(model)}, truth=truth)


def run(evidence: Evidence, seed: int, most_labels: int, batch: int = 200) -> ReplayResult:
    budget = Budget(labels=batch, target_confidence=1.0, min_labels=0, max_labels=40)
    replay = Replay(PLEM(), budget=budget, most_labels=most_labels)
    return replay.run(evidence, np.random.default_rng(seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--labels", type=int, default=16_000)
    arguments = parser.parse_args()
    evidence = recorded()
    results = []
    for seed in range(arguments.seeds):
        began = time.perf_counter()
        results.append(run(evidence, seed, arguments.labels))
        reached = {target: results[-1].labels_to_reach(target) for target in TARGETS}
        print(f"seed {seed}: {reached}  ({time.perf_counter() - began:.1f} s)", flush=True)
        at = {
            n: round(float(results[-1].accuracy[np.searchsorted(results[-1].labels, n)]), 4)
            for n in (0, 1000, 2000, 4000, 6000, 8000, 10000, 14000)
            if n <= arguments.labels
        }
        print("   ", at, flush=True)
    even = spread_evenly(evidence, MajorityVote(), EVEN, np.random.default_rng(0))
    print("majority vote spread evenly:", {n: round(float(a), 4) for n, a in zip(EVEN, even, strict=True)})


if __name__ == "__main__":
    main()
