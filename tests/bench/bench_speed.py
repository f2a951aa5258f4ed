"""How fast: an iteration beside the memory traffic it needs and beside crowd-kit, whole fits, files to consensus.

    python -m tests.bench.bench_speed [--sizes M L] [--save]

Simulated annotators: accuracies Beta(3, 2), errors even over the other classes; every item has the same number of
labels by different people, in random order of people. Everything that is compared runs in turns in one process and
the best of each counts: ratios survive a noisy machine, seconds do not.

The pass is what an iteration cannot do without, as plain loops with as many threads: for each label the J numbers of
its annotator's cell are added to its item's row, and the J numbers of its item to its annotator's cell. The second
half is written in two ways: by annotator (each thread writes its own annotators' cells and reads the rows of their
items, here and there), and by item (rows are read in order, each thread has its own table of cells). Both are given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import get_num_threads, njit, prange
from pyarrow import parquet
from scipy import sparse

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import Confusion, even_pseudo_counts
from hitl.models.dawid_skene import DawidSkene
from hitl.models.default import DefaultCombiner
from hitl.models.inference import em
from hitl.models.inference.engine import Table
from hitl.models.numerics.votes import voted
from hitl.models.priors.shares import Shares
from hitl.models.vb_ibcc import VBIBCC
from hitl.tables.read import read_table
from tests.bench import results

SIZES = {"tiny": (2_000, 20, 5, 5), "M": (100_000, 1_000, 5, 5), "L": (1_000_000, 10_000, 10, 10)}
"""Items, annotators, labels an item, classes."""

METHODS = {"dawid-skene": DawidSkene, "vb-ibcc": VBIBCC}
FITTED = {**METHODS, "default": DefaultCombiner}
"""What is compared by iterations, and by whole fits."""


def crowd(n_items: int, n_annotators: int, each: int, n_classes: int, seed: int = 0) -> tuple[Annotations, np.ndarray]:
    """Simulated annotations and their truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_items)
    right = rng.beta(3, 2, size=n_annotators)
    item = np.repeat(np.arange(n_items), each)
    # One of each of `each` groups of annotators, the groups dealt anew for every item: all different.
    annotator = rng.integers(n_annotators // each, size=(n_items, each)) * each + np.arange(each)
    annotator = np.sort((annotator + rng.integers(n_annotators, size=(n_items, 1))) % n_annotators, axis=1).ravel()
    wrong = (truth[item] + rng.integers(1, n_classes, size=item.size)) % n_classes
    label = np.where(rng.random(item.size) < right[annotator], truth[item], wrong)
    names = tuple(range(n_classes))
    built = Annotations(
        item.astype(np.int32),
        annotator.astype(np.int32),
        label.astype(np.int32),
        tuple(range(n_items)),
        tuple(range(n_annotators)),
        names,
        names,
    )
    return built, truth


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def best(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Name -> seconds of its best round; everybody has a turn in each round."""
    for work in works.values():
        work()
    taken = [{name: seconds(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: min(turn[name] for turn in taken) for name in works}


@njit(parallel=True, nogil=True)
def gather(start: Any, annotator: Any, label: Any, cells: Any, rows: Any) -> None:
    for n in prange(rows.shape[0]):
        row = rows[n]
        row[:] = 0.0
        for m in range(start[n], start[n + 1]):
            cell = cells[annotator[m], label[m]]
            for j in range(row.shape[0]):
                row[j] += cell[j]


@njit(parallel=True, nogil=True)
def scatter_by_annotator(start: Any, item: Any, label: Any, rows: Any, cells: Any) -> None:
    for k in prange(cells.shape[0]):
        cells[k] = 0.0
        for m in range(start[k], start[k + 1]):
            cell = cells[k, label[m]]
            row = rows[item[m]]
            for j in range(row.shape[0]):
                cell[j] += row[j]


@njit(parallel=True, nogil=True)
def scatter_by_item(runs: Any, start: Any, annotator: Any, label: Any, rows: Any, tables: Any) -> None:
    for run in prange(tables.shape[0]):
        tables[run] = 0.0
        for n in range(runs[run], runs[run + 1]):
            row = rows[n]
            for m in range(start[n], start[n + 1]):
                cell = tables[run, annotator[m], label[m]]
                for j in range(row.shape[0]):
                    cell[j] += row[j]
    for k in prange(tables.shape[1]):
        for run in range(1, tables.shape[0]):
            for option in range(tables.shape[2]):
                for j in range(tables.shape[3]):
                    tables[0, k, option, j] += tables[run, k, option, j]


def passes(annotations: Annotations) -> dict[str, Callable[[], None]]:
    """Both halves of the pass, the second in two ways."""
    rng = np.random.default_rng(1)
    shape = annotations.n_annotators, annotations.n_options, annotations.n_classes
    cells, rows = rng.random(shape), rng.random((annotations.n_items, annotations.n_classes))
    gathered, tables, scattered = np.empty_like(rows), np.empty((get_num_threads(), *shape)), np.empty(shape)
    start, order = annotations.by_annotator
    by_annotator = start, annotations.item[order], annotations.label[order]
    runs = np.linspace(0, annotations.n_items, len(tables) + 1).astype(np.int64)
    by_item = annotations.item_start, annotations.annotator, annotations.label
    return {
        "gather": lambda: gather(*by_item, cells, gathered),
        "scatter by annotator": lambda: scatter_by_annotator(*by_annotator, rows, scattered),
        "scatter by item": lambda: scatter_by_item(runs, *by_item, rows, tables),
    }


def scipy_products(annotations: Annotations) -> Callable[[], Any]:
    """Both products of the sparse table of ones, by scipy."""
    k, options, j = annotations.n_annotators, annotations.n_options, annotations.n_classes
    shape = annotations.n_items, k * options
    table = sparse.csr_array((np.ones(len(annotations)), annotations.cell, annotations.item_start), shape=shape)
    flipped = table.T.tocsr()
    rng = np.random.default_rng(1)
    cells, rows = rng.random((k * options, j)), rng.random((annotations.n_items, j))
    return lambda: (table @ cells, flipped @ rows)


def crowdkit_iteration(annotations: Annotations, rounds: int) -> float:
    """Seconds an iteration of crowd-kit's DawidSkene: the difference of fits with 3 and with 1, over 2."""
    import pandas as pd
    from crowdkit.aggregation import DawidSkene as Theirs

    frame = pd.DataFrame({"task": annotations.item, "worker": annotations.annotator, "label": annotations.label})

    def fit(iterations: int) -> float:
        return seconds(lambda: Theirs(n_iter=iterations, tol=-np.inf).fit(frame))

    fit(1)
    return min((fit(3) - fit(1)) / 2 for _ in range(rounds))


class Timed:
    """A prior that notes when it learns: once an iteration, each over all items."""

    explained = None  # without it there is no working set

    def __init__(self, prior: Any, at: list[float]) -> None:
        self._prior, self._at = prior, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prior, name)

    def learn(self, *arguments: Any) -> Timed:
        self._at.append(time.perf_counter())
        return Timed(self._prior.learn(*arguments), self._at)


def iterations(method: str, evidence: Evidence, number: int) -> Callable[[], list[float]]:
    """A function that gives the seconds of each of some iterations from the votes."""
    annotations = evidence.annotations
    if method == "vb-ibcc":
        prior, people = VBIBCC()._parts(Table(evidence), None)
    else:
        pseudo_jl = even_pseudo_counts(annotations.n_classes, annotations.n_options, 0.01)
        prior, people = Shares.even(annotations.n_classes), Confusion.unlearned(pseudo_jl, annotations.n_annotators)
    votes_nj = voted(evidence)

    def run() -> list[float]:
        at: list[float] = []
        em.run_em(evidence, Timed(prior, at), people, votes_nj, tolerance=1e-300, max_iterations=number)
        return np.diff(at).tolist()

    return run


def compare(size: str, rounds: int) -> tuple[list[str], dict[str, float]]:
    """An iteration of each method beside the pass, scipy and crowd-kit."""
    annotations, _ = crowd(*SIZES[size])
    evidence = Evidence(annotations)
    each: dict[str, list[float]] = {method: [] for method in METHODS}
    work: dict[str, Callable[[], Any]] = passes(annotations) | {"scipy": scipy_products(annotations)}
    for method in METHODS:
        run = iterations(method, evidence, 8)
        work[method] = lambda method=method, run=run: each[method].extend(run())
    took = best(work, rounds)
    took |= {method: min(each[method]) for method in METHODS}
    took["crowd-kit"] = crowdkit_iteration(annotations, 3 if size == "M" else 1)
    one_pass, quick_pass = (took["gather"] + took[f"scatter by {which}"] for which in ("annotator", "item"))
    lines = ["", f"{size}: " + "{:,} items, {:,} annotators, {} labels an item, {} classes".format(*SIZES[size])]
    lines += [f"  {name:22} {1000 * value:10.2f} ms" for name, value in took.items()]
    figures = {f"{size} {name} s": value for name, value in took.items()}
    for method in METHODS:
        ratios = {
            "of the pass": took[method] / one_pass,
            "of the pass by item": took[method] / quick_pass,
            "times as fast as scipy's products": took["scipy"] / took[method],
            "times as fast as crowd-kit": took["crowd-kit"] / took[method],
        }
        lines += [f"  an iteration of {method} is {value:7.2f} {name}" for name, value in ratios.items()]
        figures |= {f"{size} {method} {name}": value for name, value in ratios.items()}
    return lines, figures


# -- whole fits, each in a process of its own ----------------------------------------------------------------


def fit(size: str, method: str) -> dict[str, float]:
    """In a fresh process, compiled code on disk: the first fit, its memory over the table, the best of several."""
    annotations, truth = crowd(*SIZES[size])
    evidence, combiner = Evidence(annotations), FITTED[method]()
    with results.measured() as first:
        consensus = combiner.fit(evidence)
    again = [seconds(lambda: combiner.fit(evidence)) for _ in range(200 if size == "tiny" else 6)]
    return {
        "first fit s": first["seconds"],
        "fit s": min(again),
        "MB over the table": first["MB"],
        "iterations": consensus.fit.iterations,
        "converged": consensus.fit.converged,
        "accuracy": float((consensus.codes == truth).mean()),
    }


def strings(path: Path) -> None:
    """The large table as strings in Parquet, in no order."""
    annotations, _ = crowd(*SIZES["L"])
    order = np.random.default_rng(2).permutation(len(annotations))

    def named(pattern: str, codes: np.ndarray, size: int) -> pa.Array:
        return pa.array([pattern.format(code) for code in range(size)]).take(pa.array(codes[order]))

    columns = {
        "item": named("image-{:07}.jpg", annotations.item, annotations.n_items),
        "annotator": named("worker-{:05}", annotations.annotator, annotations.n_annotators),
        "label": named("class {}", annotations.label, annotations.n_classes),
    }
    parquet.write_table(pa.table(columns), path)


def start_up() -> dict[str, float]:
    """Seconds of a fresh process until its first small fit is done, compiled code on disk: the best of three."""
    code = (
        "import time; began = time.perf_counter()\nfrom hitl.evidence import Evidence\n"
        "from hitl.models import DawidSkene\nfrom hitl.testing import crowd\nimport numpy as np\n"
        "evidence = crowd(np.random.default_rng(0), 50)[0]\nready = time.perf_counter()\n"
        "DawidSkene().fit(evidence)\nprint(ready - began, time.perf_counter() - ready)"
    )
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(4)]
    imports, first = min(([float(part) for part in run] for run in runs[1:]), key=sum)
    return {"imports s": imports, "first fit s": first}


def whole(path: str, folder: str) -> dict[str, float]:
    """Parquet to a saved consensus, in Python."""
    steps = [time.perf_counter()]
    annotations = Annotations.from_frame(read_table(path, ["item", "annotator", "label"]))
    steps.append(time.perf_counter())
    consensus = DawidSkene().fit(Evidence(annotations))
    steps.append(time.perf_counter())
    consensus.save(Path(folder, "consensus.npz"))
    steps.append(time.perf_counter())
    consensus.write(Path(folder, "consensus.parquet"))
    steps.append(time.perf_counter())
    each = dict(zip(("read s", "fit s", "save s", "write table s"), np.diff(steps).tolist(), strict=True))
    return each | {"file to saved consensus s": steps[3] - steps[0]}


def in_a_process(*arguments: str) -> dict[str, float]:
    """The JSON that this module prints when it is called with these arguments."""
    command = [sys.executable, "-m", "tests.bench.bench_speed", "--child", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def files(rounds: int) -> dict[str, float]:
    """Ten million rows of strings in Parquet to a saved consensus: in Python, and by the command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.parquet"
        strings(path)
        apart = [in_a_process("whole", str(path), folder) for _ in range(rounds)]
        figures = min(apart, key=lambda figures: figures["file to saved consensus s"])
        command = [sys.executable, "-m", "hitl", "combine", str(path), "--method", "dawid-skene"]
        command += ["--output", str(Path(folder) / "table.parquet")]
        runs = [seconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(rounds)]
        figures["hitl combine s"] = min(runs)
    return figures


MOST = {
    "M of the pass by item": 4.0,
    "L of the pass by item": 1.6,
    "L fit s": 3.0,
    "L MB over the table": 700.0,
    "tiny fit s": 0.010,
    "Parquet file to saved consensus s": 8.0,
}
LEAST = {"M times as fast as crowd-kit": 25.0, "L times as fast as crowd-kit": 50.0}
"""At most and at least; of every method where the figure is one of a method."""


def bars(figures: dict[str, float]) -> list[tuple[str, str, bool]]:
    """(claim, figure, whether it holds), of what was measured."""
    found = []
    for limits, word, worst in ((MOST, "at most", max), (LEAST, "at least", min)):
        for name, limit in limits.items():
            size, rest = name.split(" ", 1)
            values = [figures[key] for key in (name, *(f"{size} {m} {rest}" for m in METHODS)) if key in figures]
            if values:
                value = worst(values)
                found.append((f"{name} {word} {limit:g}", f"{value:.3g}", worst((value, limit)) == limit))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, sizes=["M", "L"], rounds=10, no_files=False, child=())
    if options.child:
        name, *values = options.child
        print(json.dumps({"fit": fit, "whole": whole}[name](*values)))
        return
    page, figures = results.Page(), dict[str, float]()
    page.tell(f"{os.cpu_count()} cores, {get_num_threads()} threads, other load {os.getloadavg()[0]:.1f}")

    def listed(title: str, prefix: str, found: dict[str, float]) -> None:
        page.tell("", title, *(f"  {name:30} {value:10.4g}" for name, value in found.items()))
        figures.update({f"{prefix} {name}": value for name, value in found.items()})

    for size in options.sizes:
        lines, found = compare(size, options.rounds)
        page.tell(*lines)
        figures |= found
    for size, method in ((size, method) for size in ("tiny", *options.sizes) for method in FITTED):
        listed(f"{method} on {size}, to convergence", f"{size} {method}", in_a_process("fit", size, method))
    listed("a fresh process, compiled code on disk", "start-up", start_up())
    if not options.no_files:
        listed("10,000,000 rows of strings in Parquet, dawid-skene", "Parquet", files(4))
    page.held(*bars(figures))
    if options.save:
        page.save("speed", figures)


if __name__ == "__main__":
    main()
