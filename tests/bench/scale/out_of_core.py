"""Labels that do not fit in memory: names to shards, a pass, a fit, beside the same in memory and on a cluster.

    python -m tests.bench.scale.out_of_core [--rows 100000000] [--parts 1] [--kind csv|parquet] [--save]

Simulated annotators (10,000, accuracies Beta(3, 2), errors even over the ten classes), ten labels an item, all names
text, a million rows at a time in no order. Each step is a process of its own, whose greatest resident memory is read
(VmHWM: pages of mapped files that it looks at are in it); compiled code is on disk. The tables are removed when they
are encoded, all else at the end. With several parts the disk holds the tables of one at a time: each becomes a folder
of shards like the first.

The cluster is Dask's of this machine, with two workers of one thread. What an iteration costs beside its work: a pass
whose work is nothing but that each shard gives a table of the size that a fit's are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from hitl.models.inference.engine import SERIAL, Engine
from hitl.models.numerics import kernels
from hitl.models.vb_ibcc import VBIBCC
from hitl.shards.cluster import on_dask
from hitl.shards.combining import combine
from hitl.shards.encoding import encode
from hitl.shards.reading import StoredShards
from tests.bench import results
from tests.bench.bench_speed import best, crowd

ANNOTATORS, EACH, CLASSES = 10_000, 10, 10
IN_MEMORY = 10_000_000
"""Labels of the fit in memory."""

FILE = 10_000_000
"""Rows of a table; there are as many tables as it takes."""


def make(folder: str, part: int, rows: int, kind: str) -> dict[str, float]:
    """Write the tables of a part."""
    right = np.random.default_rng(0).beta(3, 2, size=ANNOTATORS)
    rng = np.random.default_rng([0, part])
    writer: Any = csv.CSVWriter if kind == "csv" else parquet.ParquetWriter
    for first in range(0, rows, FILE):
        path = Path(folder, f"labels-{first // FILE:03}.{kind}")
        open_table = None
        for begin in range(first, min(first + FILE, rows), 1_000_000):
            table = _rows(rng, right, (part * rows + begin) // EACH, min(1_000_000, rows - begin) // EACH)
            open_table = open_table or writer(str(path), table.schema)
            open_table.write_table(table)
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


def encoded(folder: str, shards: str, kind: str, like: str | None = None) -> dict[str, float]:
    """Tables to shards."""
    began, first = time.perf_counter(), time.process_time()
    made = encode([f"{folder}/*.{kind}"], shards, like=like)
    took = {"s": time.perf_counter() - began, "processor s": time.process_time() - first}
    size = sum(path.stat().st_size for path in Path(shards).iterdir())
    return took | {"peak": results.memory(), "shards": len(made.shards), "bytes": size}


def fitted(folders: str, out: str, runs: str) -> dict[str, float]:
    """VB-IBCC over shards to convergence, with checkpoints; results written. The best of so many runs."""
    found = [_fitted(folders, f"{out}-{number}", Timed(), VBIBCC()) for number in range(int(runs))]
    return min(found, key=lambda run: run["s"]) | {"peak": results.memory(), "overhead s": _overhead(Timed(), folders)}


def fitted_by_default(folders: str, out: str, runs: str) -> dict[str, float]:
    """The same by the default, once."""
    return _fitted(folders, f"{out}-default", Timed(), DefaultCombiner()) | {"peak": results.memory()}


def on_cluster(folders: str, out: str, runs: str) -> dict[str, float]:
    """The same on two workers of this machine, which have compiled and seen the shards before."""
    with on_dask(None, 2) as cluster:
        cluster.total(_Nothing(touch=True), StoredShards.open(folders))
        found = [_fitted(folders, f"{out}-{number}", Timed(cluster), VBIBCC()) for number in range(int(runs))]
        most = max(cluster._client.run(results.memory).values())
        return min(found, key=lambda run: run["s"]) | {"peak": most, "overhead s": _overhead(cluster, folders)}


def _fitted(folders: str, out: str, timed: Timed, method: Any) -> dict[str, float]:
    shards = StoredShards.open(folders)
    fit = combine(shards, out, method, engine=timed).learned.fit
    whole = time.perf_counter() - timed.began
    shutil.rmtree(out)
    figures = {"s": fit.seconds, "all s": whole, "processor s": timed.processor}
    return figures | {"iterations": fit.iterations, "converged": float(fit.converged)}


@dataclass(frozen=True, eq=False)
class _Nothing:
    """A table of each shard; the labels are looked at only where they should be in memory."""

    touch: bool = False

    def __call__(self, evidence: Evidence) -> Floats:
        table = np.zeros((ANNOTATORS, CLASSES, CLASSES))
        if not self.touch:
            return table
        return kernels.counts(evidence.annotations, kernels.messages(evidence.annotations, table))


def _overhead(engine: Engine, folders: str) -> float:
    """Seconds of a pass without work: tables are sent, added up and given back."""
    shards = StoredShards.open(folders)
    return best({"nothing": lambda: engine.total(_Nothing(), shards)}, 3)["nothing"]


class Timed:
    """An engine, by default this process; notes the processor's time from its making to the end of the last pass."""

    def __init__(self, engine: Engine = SERIAL) -> None:
        self._engine, self.each = engine, engine.each
        self.began, self._first, self.processor = time.perf_counter(), time.process_time(), 0.0

    def total(self, work: Any, shards: Any) -> Any:
        found = self._engine.total(work, shards)
        self.processor = time.process_time() - self._first
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
    return min(runs, key=lambda run: run["s"]) | {"peak": results.memory()}


def one_pass(folder: str) -> dict[str, float]:
    """Nanoseconds a label of gather and scatter over shards, each mapped again, and over the same labels in one."""
    shards, taken = StoredShards.open(folder), list[Annotations]()
    while len(taken) < len(shards) and sum(map(len, taken)) < IN_MEMORY:
        taken.append(shards[len(taken)].annotations)
    first = np.cumsum([0, *(part.n_items for part in taken)])
    item = np.concatenate([part.item + begin for part, begin in zip(taken, first[:-1], strict=True)]).astype(np.int32)
    annotator, label = (np.concatenate([getattr(part, name) for part in taken]) for name in ("annotator", "label"))
    a, labels = taken[0], len(item)
    table = Annotations(item, annotator, label, tuple(range(first[-1])), a.annotators, a.classes, a.options)
    log_pi_klj = np.random.default_rng(0).random((a.n_annotators, a.n_options, a.n_classes))

    def over(annotations: Annotations) -> None:
        kernels.counts(annotations, kernels.messages(annotations, log_pi_klj))

    works: dict[str, Callable[[], Any]] = {
        "in memory": lambda: over(table),
        "over shards": lambda: [over(shards[number].annotations) for number in range(len(taken))],
        "open shards": lambda: [shards[number].annotations.cell[::1024].sum() for number in range(len(taken))],
    }
    return {name: 1e9 * value / labels for name, value in best(works, 5).items()} | {"labels": labels}


STEPS: dict[str, Callable[..., dict[str, float]]] = {
    "make": lambda folder, part, rows, kind: make(folder, int(part), int(rows), kind),
    "encode": encoded,
    "fit": fitted,
    "default": fitted_by_default,
    "cluster": on_cluster,
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


def sharded(rows: int, parts: int, kind: str, folder: Path) -> dict[str, dict[str, float]]:
    """Tables of names to shards, part by part; of both the sums, of memory the most."""
    made: list[dict[str, float]] = []
    encodings: list[dict[str, float]] = []
    tables = folder / "tables"
    for part in range(parts):
        tables.mkdir()
        made.append(step("make", str(tables), str(part), str(rows // parts), kind))
        like = [str(folder / "shards-000")] if part else []
        encodings.append(step("encode", str(tables), str(folder / f"shards-{part:03d}"), kind, *like))
        shutil.rmtree(tables)
    whole = {name: sum(one[name] for one in encodings) for name in encodings[0]}
    return {
        "make": {"bytes": sum(one["bytes"] for one in made)},
        "encode": whole | {"peak": max(one["peak"] for one in encodings)},
    }


def report(rows: int, kind: str, found: dict[str, dict[str, float]]) -> results.Page:
    """Tell the figures of all steps."""
    made, fit, memory, cluster, default = (found[name] for name in ("encode", "fit", "memory", "cluster", "default"))
    each, each_in_memory = 1e9 * fit["s"] / rows, 1e9 * memory["s"] / IN_MEMORY
    page, one = results.Page(), found["pass"]
    page.tell(
        f"{rows:,} labels of {ANNOTATORS:,} annotators, {EACH} an item, {CLASSES} classes; {os.cpu_count()} cores",
        "",
        f"names to shards: {kind}, {found['make']['bytes'] / 1e9:.1f} GB -> {made['bytes'] / 1e9:.1f} GB in "
        f"{made['shards']:.0f} shards, {made['s']:.0f} s ({made['processor s']:.0f} of a processor), "
        f"{1e6 * made['s'] / rows:.2f} us a label, at most "
        f"{made['peak'] / 1e9:.2f} GB of memory",
        f"a pass (gather and scatter) over {one['labels']:,.0f} labels: {one['over shards']:.2f} ns a label over "
        f"shards (to open them: {one['open shards']:.3f}), {one['in memory']:.2f} in memory",
        f"VB-IBCC to convergence over shards: {fit['iterations']:.0f} passes, {fit['s']:.0f} s, {each:.0f} ns a label "
        f"({1e9 * fit['processor s'] / rows:.0f} of a processor); with results written {fit['all s']:.0f} s; at most "
        f"{fit['peak'] / 1e9:.2f} GB of memory; {1e3 * fit['overhead s']:.0f} ms a pass without work",
        f"the same on a Dask cluster of two workers: {cluster['s']:.0f} s, with results {cluster['all s']:.0f} s; at "
        f"most {cluster['peak'] / 1e9:.2f} GB a worker; {1e3 * cluster['overhead s']:.0f} ms a pass without work",
        f"the default to convergence over shards: {default['s']:.0f} s ({1e9 * default['processor s'] / rows:.0f} ns a "
        f"label of a processor); with results {default['all s']:.0f} s; at most {default['peak'] / 1e9:.2f} GB",
        f"VB-IBCC of {IN_MEMORY:,} labels in memory: {memory['iterations']:.0f} passes, {memory['s']:.1f} s, "
        f"{each_in_memory:.0f} ns a label ({1e9 * memory['processor s'] / IN_MEMORY:.0f} of a processor); at most "
        f"{memory['peak'] / 1e9:.2f} GB",
    )
    ratio, slower = each / each_in_memory, cluster["s"] / fit["s"]
    page.held(
        ("encoding in at most 2 GB", f"{made['peak'] / 1e9:.2f} GB", made["peak"] <= 2e9),
        ("a fit over shards in at most 1.5 GB", f"{fit['peak'] / 1e9:.2f} GB", fit["peak"] <= 1.5e9),
        ("of the default too", f"{default['peak'] / 1e9:.2f} GB", default["peak"] <= 1.5e9),
        ("at most 1.5 times the time per label in memory", f"{ratio:.2f}", ratio <= 1.5),
        ("converged", str(bool(fit["converged"])), bool(fit["converged"])),
        ("on a cluster at most 1.3 times as long", f"{slower:.2f}", slower <= 1.3),
    )
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, rows=10_000_000, parts=1, runs=2, kind="csv", folder=None, step=())
    if options.step:
        print(json.dumps(STEPS[options.step[0]](*options.step[1:])))
        return
    rows, kind, parts = options.rows, options.kind, options.parts
    with tempfile.TemporaryDirectory(prefix="hitl-scale-", dir=options.folder) as folder:
        found = sharded(rows, parts, kind, Path(folder)) | {"memory": step("memory")}
        found["pass"] = step("pass", f"{folder}/shards-000")
        places = f"{folder}/shards-*", f"{folder}/results", str(options.runs)
        found |= {name: step(name, *places) for name in ("fit", "cluster", "default")}
    page = report(rows, kind, found)
    if options.save:
        name = f"scale_out_of_core{'' if parts == 1 else '_in_parts'}"
        command = f"scale.out_of_core --rows {rows} --kind {kind} --parts {parts} --save"
        page.save(name, {"rows": rows, **found}, command)


if __name__ == "__main__":
    main()
