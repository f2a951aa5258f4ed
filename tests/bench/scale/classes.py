"""What the default costs with many classes: a fit, its memory, and the consensus that it leaves.

    python -m tests.bench.scale.classes [--classes 2000] [--items 10000] [--annotators 50] [--labels 5] [--whole]
                                        [--save]

    time      processor seconds of a fit, after a first one of another table; `--whole`: by whole tables, as before
    memory    largest resident memory of the process, each fit in a process of its own
    kept      bytes of the consensus as it is stored; not measured by whole tables
    far       largest difference of a belief from that by whole tables

By whole tables 2,000 classes and 50 annotators take 14 GB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.models.hierarchy import hierarchical_dawid_skene
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


def measured(shape: tuple[int, int, int, int], whole: bool) -> tuple[dict[str, float], Floats]:
    """Figures of a fit, and its beliefs; to be called in a process of its own."""
    if whole:
        vars(hierarchical_dawid_skene)["is_by_cells"] = lambda _: False
    DefaultCombiner().fit(crowd(20, 60, 5, 3))
    evidence = crowd(*shape)
    began = time.process_time()
    consensus = DefaultCombiner().fit(evidence)
    seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    kept = 0 if whole else len(consensus.to_bytes())
    return {"seconds": seconds, "memory": memory, "kept": kept}, consensus.probabilities


def apart(shape: tuple[int, int, int, int], whole: bool) -> tuple[dict[str, float], Floats]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (shape, whole))


def told(name: str, found: dict[str, float]) -> str:
    kept = f"   kept {found['kept'] / 1e9:5.2f} GB" if found["kept"] else ""
    return f"  {name:14} {found['seconds']:7.1f} s   memory {found['memory'] / 1e9:5.2f} GB{kept}"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, nargs="+", default=[2000])
    for name, value in (("items", 10_000), ("annotators", 50), ("labels", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args(argv)
    lines, figures = ["A fit of the default with many classes (python -m tests.bench.scale.classes)"], dict[str, Any]()
    for classes in given.classes:
        shape = classes, given.items, given.annotators, given.labels
        lines.append(f"{classes:,} classes, {given.items:,} items, {given.annotators} annotators, {given.labels} each")
        found, q_nj = apart(shape, whole=False)
        figures[f"{classes}"] = found
        lines.append(told("as fitted", found))
        if given.whole:
            before, whole_nj = apart(shape, whole=True)
            figures[f"{classes} whole"] = before | {"far": float(np.abs(q_nj - whole_nj).max())}
            lines.append(f"{told('whole tables', before)}   far {np.abs(q_nj - whole_nj).max():.1e}")
    print("\n".join(lines))
    if given.save:
        results.save("classes", lines, figures, "scale.classes --whole --save")


if __name__ == "__main__":
    main()
