"""The cost of the default with many classes: a fit, its memory, and its consensus.

python -m tests.bench.scale.classes [--classes 2000] [--items 10000] [--annotators 1000] [--labels 5] [--save]

time      processor seconds of a fit, after a first one of another table
memory    largest resident memory of the process, each fit in a process of its own
stored    bytes of the consensus as it is stored
right     share of labels that are right, beside that of a majority vote; log loss of the truth
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from tests.bench import results


def crowd(classes: int, items: int, annotators: int, labels: int) -> Evidence:
    """Annotators who are right in 60 to 90 of 100 cases; half of their errors are the next class, half are any."""
    rng = np.random.default_rng(0)
    truth = np.repeat(rng.integers(classes, size=items), labels)
    accuracy = rng.uniform(0.6, 0.9, size=annotators)
    annotator = np.argsort(rng.random((items, annotators)), axis=1)[:, :labels].ravel()
    wrong = np.where(rng.random(truth.size) < 0.5, (truth + 1) % classes, rng.integers(classes, size=truth.size))
    label = np.where(rng.random(truth.size) < accuracy[annotator], truth, wrong)
    said = {"item": np.repeat(np.arange(items), labels), "annotator": annotator, "label": label}
    return Evidence.from_tables(said, classes=range(classes))


def measured(shape: tuple[int, int, int, int]) -> dict[str, float]:
    """Return the figures of a fit; to be called in a process of its own."""
    DefaultCombiner().fit(crowd(20, 60, 5, 3))
    evidence = crowd(*shape)
    classes, items, *_ = shape
    truth, rows = np.random.default_rng(0).integers(classes, size=items), np.arange(items)  # as `crowd` draws it
    began = time.process_time()
    consensus = DefaultCombiner().fit(evidence)
    seconds = time.process_time() - began
    votes = np.zeros((items, classes))
    np.add.at(votes, (evidence.annotations.item, evidence.annotations.label), 1)
    return {
        "seconds": seconds,
        "memory": results.memory(),
        "stored": len(consensus.to_bytes()),
        "right": float((consensus.codes == truth).mean()),
        "majority": float((votes.argmax(axis=1) == truth).mean()),
        "log_loss": float(-np.log(np.maximum(consensus.probabilities[rows, truth], 1e-12)).mean()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, classes=[2000], items=10_000, annotators=1000, labels=5)
    page, figures = results.Page(), dict[str, Any]()
    page.tell("A fit of the default with many classes")
    for classes in options.classes:
        shape = classes, options.items, options.annotators, options.labels
        (found,) = results.side_by_side(measured, [shape], 1)
        figures[f"{classes}"] = found
        page.tell("{:,} classes, {:,} items, {} annotators, {} each".format(*shape))
        page.tell(
            f"  {found['seconds']:.1f} s   memory {found['memory'] / 1e9:.2f} GB   "
            f"stored {found['stored'] / 1e9:.2f} GB"
        )
        page.tell(f"  right {found['right']:.4f} (majority {found['majority']:.4f})   log loss {found['log_loss']:.3f}")
    if options.save:
        page.save("classes", figures, "scale.classes --save")


if __name__ == "__main__":
    main()
