"""Labels that do not fit in memory: names to shards, a pass, a fit, beside the same in memory.

    python -m tests.bench.scale.out_of_core [--rows 100000000] [--kind csv|parquet] [--save]

Simulated annotators (10,000, accuracies Beta(3, 2), errors even over the ten classes), ten labels an item, all names
text, a million rows at a time in no order. Each step is a process of its own, whose greatest resident memory is read
(VmHWM: pages of mapped files that it looks at are in it); compiled code is on disk. The tables are removed when they
are encoded, all else at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.inference.passes import InTurn
from hitl.models.numerics import kernels
from hitl.models.vb_ibcc import VBIBCC
from hitl.shards.combining import combine
from hitl.shards.encoding import encode
from hitl.shards.reading import Shards
from tests.bench import results
from tests.bench.bench_speed import best, crowd

ANNOTATORS, EACH, CLASSES = 10_000, 10, 10
IN_MEMORY = 10_000_000
"""Labels of the fit in memory."""

FILE = 10_000_000
"""Rows of a table; there are as many tables as it takes."""

MEMORY = 1.5e9
ENCODING_MEMORY = 2e9
TIMES = 1.5
"""The bars: bytes of a fit and of encoding, time per label of a fit beside the one in memory."""


def peak() -> int:
    """Bytes of memory that this process has held at most (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def make(folder: str, rows: int, kind: str) -> dict[str, float]:
    """Write the tables."""
    rng = np.random.default_rng(0)
    right = rng.beta(3, 2, size=ANNOTATORS)
    writer: Any = csv.CSVWriter if kind == "csv" else parquet.ParquetWriter
    for first in range(0, rows, FILE):
        path = Path(folder, f"labels-{first // FILE:03}.{kind}")
        open_table = None
        for begin in range(first, min(first + FILE, rows), 1_000_000):
            part = _rows(rng, right, begin // EACH, min(1_000_000, rows - begin) // EACH)
            open_table = open_table or writer(str(path), part.schema)
            open_table.write_table(part)
        assert open_table is not None
        open_table.close()
    return {"bytes": sum(path.stat().st_size for path in Path(folder).iterdir())}


def _rows(rng: np.random.Generator, right: Any, first: int, items: int) -> pa.Table:
    truth = np.repeat(rng.integers(CLASSES, size=items), EACH)
    item = np.repeat(np.arange(first, first + items), EACH)
    groups = ANNOTATORS // EACH  # one annotator of each group: all of an item are different
    annotator = (rng.integers(groups, size=(items, EACH)) * EACH + np.arange(EACH)).ravel()
    wrong = (truth + rng.integers(1, CLASSES, size=len(truth))) % CLASSES
    label = np.where(rng.random(len(truth)) < right[annotator], truth, wrong)
    order = rng.permutation(len(truth))
    columns = {"item": ("image-", item), "annotator": ("worker-", annotator), "label": ("class ", label)}
    return pa.table({name: _named(text, codes[order]) for name, (text, codes) in columns.items()})


def _named(text: str, codes: Any) -> pa.Array:
    return pc.binary_join_element_wise(text, pa.array(codes).cast(pa.string()), "")


def encoded(folder: str, shards: str, kind: str) -> dict[str, float]:
    """Tables to shards."""
    began = time.perf_counter()
    made = encode([f"{folder}/*.{kind}"], shards)
    size = sum(path.stat().st_size for path in Path(shards).iterdir())
    return {"s": time.perf_counter() - began, "peak": peak(), "shards": len(made.shards), "bytes": size}


def fitted(folder: str, out: str) -> dict[str, float]:
    """VB-IBCC over shards to convergence, with checkpoints; results written. The better of two runs."""
    runs = [_fitted(folder, f"{out}-{number}") for number in range(2)]
    return min(runs, key=lambda run: run["s"]) | {"peak": peak()}


def _fitted(folder: str, out: str) -> dict[str, float]:
    timed = Timed()
    shards = Shards.open(folder)
    fit = combine(shards, out, VBIBCC(), engine=timed).learned.fit
    whole = time.perf_counter() - timed.began
    shutil.rmtree(out)
    figures = {"s": fit.seconds, "all s": whole, "processor s": timed.processor}
    return figures | {"labels": shards.n_labels, "iterations": fit.iterations, "converged": float(fit.converged)}


class Timed(InTurn):
    """Notes the processor's time from its making to the end of the last pass."""

    def __init__(self) -> None:
        for name, now in (("began", time.perf_counter()), ("first", time.process_time())):
            object.__setattr__(self, name, now)

    def total(self, work: Any, shards: Any) -> Any:
        found = super().total(work, shards)
        object.__setattr__(self, "processor", time.process_time() - self.first)  # type: ignore[attr-defined]
        return found


def in_memory() -> dict[str, float]:
    """The fit of a table in memory, the better of two; the labels are in the codes that a table has when it is read."""
    annotations, _ = crowd(IN_MEMORY // EACH, ANNOTATORS, EACH, CLASSES)
    evidence = Evidence(annotations)
    runs = []
    for _ in range(2):
        first = time.process_time()
        fit = VBIBCC().fit(evidence).fit
        runs.append({"s": fit.seconds, "processor s": time.process_time() - first, "iterations": fit.iterations})
    return min(runs, key=lambda run: run["s"]) | {"peak": peak()}


def one_pass(folder: str) -> dict[str, float]:
    """Gather and scatter over shards, each mapped anew, and over the same labels as one table in memory."""
    shards = Shards.open(folder)
    taken, labels = 0, 0
    while taken < len(shards) and labels < IN_MEMORY:
        labels += len(shards[taken].annotations)
        taken += 1
    shards = shards[:taken]  # type: ignore[assignment]
    table = _together(shards)
    log_pi_klj = np.random.default_rng(0).random((table.n_annotators, table.n_options, table.n_classes))

    def over(annotations: Annotations) -> None:
        kernels.counts(annotations, kernels.messages(annotations, log_pi_klj))

    works: dict[str, Callable[[], Any]] = {
        "in memory": lambda: over(table),
        "over shards": lambda: [over(shards[number].annotations) for number in range(taken)],
        "open shards": lambda: [shards[number].annotations.cell[::1024].sum() for number in range(taken)],
    }
    return {name: 1e9 * value / labels for name, value in best(works, 5).items()} | {"labels": labels}


def _together(shards: Any) -> Annotations:
    parts = [shards[number].annotations for number in range(len(shards))]
    first = np.cumsum([0, *(part.n_items for part in parts)])
    item = np.concatenate([part.item + begin for part, begin in zip(parts, first[:-1], strict=True)])
    annotator, label = (np.concatenate([getattr(part, name) for part in parts]) for name in ("annotator", "label"))
    one = parts[0]
    return Annotations(
        item.astype(np.int32), annotator, label, tuple(range(first[-1])), one.annotators, one.classes, one.options
    )


STEPS: dict[str, Callable[..., dict[str, float]]] = {
    "make": lambda folder, rows, kind: make(folder, int(rows), kind),
    "encode": encoded,
    "fit": fitted,
    "memory": in_memory,
    "pass": one_pass,
}


def step(name: str, *arguments: str) -> dict[str, float]:
    """What a step says, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.scale.out_of_core", "--step", name, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(name, figures, file=sys.stderr, flush=True)
    return figures


def measured(rows: int, kind: str, folder: Path) -> dict[str, dict[str, float]]:
    """All steps."""
    tables, shards, out = (str(folder / name) for name in ("tables", "shards", "results"))
    Path(tables).mkdir()
    found = {"make": step("make", tables, str(rows), kind), "encode": step("encode", tables, shards, kind)}
    shutil.rmtree(tables)
    return found | {"memory": step("memory"), "pass": step("pass", shards), "fit": step("fit", shards, out)}


def report(rows: int, kind: str, found: dict[str, dict[str, float]]) -> tuple[list[str], dict[str, Any]]:
    """Lines for people, figures for tests."""
    made, fit, memory, one = found["encode"], found["fit"], found["memory"], found["pass"]
    each, each_in_memory = 1e9 * fit["s"] / rows, 1e9 * memory["s"] / IN_MEMORY
    ratio = each / each_in_memory
    lines = [
        f"{rows:,} labels of {ANNOTATORS:,} annotators, {EACH} an item, {CLASSES} classes; {os.cpu_count()} cores",
        "",
        f"names to shards: {kind}, {found['make']['bytes'] / 1e9:.1f} GB -> {made['bytes'] / 1e9:.1f} GB in "
        f"{made['shards']:.0f} shards, {made['s']:.0f} s, {1e6 * made['s'] / rows:.2f} us a label, at most "
        f"{made['peak'] / 1e9:.2f} GB of memory",
        f"a pass (gather and scatter) over {one['labels']:,.0f} labels: {one['over shards']:.2f} ns a label over "
        f"shards (to open them: {one['open shards']:.3f}), {one['in memory']:.2f} in memory",
        f"VB-IBCC to convergence over shards: {fit['iterations']:.0f} passes, {fit['s']:.0f} s, {each:.0f} ns a label "
        f"({1e9 * fit['processor s'] / rows:.0f} of a processor); with results written {fit['all s']:.0f} s; at most "
        f"{fit['peak'] / 1e9:.2f} GB of memory",
        f"VB-IBCC of {IN_MEMORY:,} labels in memory: {memory['iterations']:.0f} passes, {memory['s']:.1f} s, "
        f"{each_in_memory:.0f} ns a label ({1e9 * memory['processor s'] / IN_MEMORY:.0f} of a processor); at most "
        f"{memory['peak'] / 1e9:.2f} GB",
    ]
    bars = [
        ("encoding in at most 2 GB", f"{made['peak'] / 1e9:.2f} GB", made["peak"] <= ENCODING_MEMORY),
        ("a fit over shards in at most 1.5 GB", f"{fit['peak'] / 1e9:.2f} GB", fit["peak"] <= MEMORY),
        ("at most 1.5 times the time per label in memory", f"{ratio:.2f}", ratio <= TIMES),
        ("converged", str(bool(fit["converged"])), bool(fit["converged"])),
    ]
    return [*lines, *results.held(bars)], {"rows": rows, "times the time per label": ratio, **found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--kind", choices=("csv", "parquet"), default="csv")
    parser.add_argument("--folder", help="where tables and shards are kept meanwhile; default: a temporary folder")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(STEPS[given.step[0]](*given.step[1:])))
        return
    with tempfile.TemporaryDirectory(prefix="hitl-scale-", dir=given.folder) as folder:
        found = measured(given.rows, given.kind, Path(folder))
    lines, figures = report(given.rows, given.kind, found)
    print("\n".join(lines))
    if given.save:
        kind = "" if given.kind == "csv" else f" --kind {given.kind}"
        results.save("scale_out_of_core", lines, figures, f"scale.out_of_core --rows {given.rows}{kind} --save")


if __name__ == "__main__":
    main()
