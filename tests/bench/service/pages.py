"""How long the pages of a large project take at the server, and what memory they need.

    python -m tests.bench.service.pages --items 1000000 --labels 10 --annotators 10000 --save

A project over tables, one cycle, then every page is asked for REPEATS times through a real server on this machine.
The bar: 300 ms at the server for each page, 4 GB.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv

from tests.bench import results
from tests.service.web.processes import log_in, serving

REPEATS = 7
PAGES = {
    "projects": "/",
    "overview": "/projects/p",
    "items": "/projects/p/items",
    "items, page 1000": "/projects/p/items?page=1000",
    "items, contested": "/projects/p/items?show=contested",
    "items, changed first": "/projects/p/items?sort=change",
    "items, done": "/projects/p/items?show=done&sort=surest",
    "items, most labels": "/projects/p/items?sort=labels",
    "items, of one annotator": "/projects/p/items?annotator=p17&said=c1&label=c2",
    "items, text": "/projects/p/items?q=number+77",
    "item": "/projects/p/items/4711",
    "annotators": "/projects/p/annotators",
    "annotators, by name": "/projects/p/annotators?sort=name",
    "annotators, one name": "/projects/p/annotators?q=p17",
    "annotator": "/projects/p/annotators/p17",
    "team": "/projects/p/team",
    "models": "/projects/p/models",
    "plan": "/projects/p/plan",
    "runs": "/projects/p/runs",
    "items, JSON": "/projects/p/items?format=json&size=1000",
    "metrics": "/metrics",
}

SETTINGS = """name = "p"
store = "sqlite:///hitl.db"

[source]
kind = "tables"
path = "d"

[limits]
rows = 200000000

[budget]
open_questions = 1000
target_confidence = 0.95
max_labels = 20
"""


def write(folder: Path, n: int, labels: int, annotators: int) -> None:
    """A project of n items with so many labels each; annotators differ in how much they label, as they do."""
    (folder / "d").mkdir(parents=True)
    rng = np.random.default_rng(0)
    truth, item = rng.integers(4, size=n), np.repeat(np.arange(n), labels)
    share = rng.gamma(0.7, size=annotators)
    first = rng.choice(annotators, size=n, p=share / share.sum())
    annotator = (np.repeat(first, labels) + np.tile(np.arange(labels) * 37, n)) % annotators
    right = rng.beta(8, 3, size=annotators)
    label = np.where(rng.random(labels * n) < right[annotator], truth[item], rng.integers(4, size=labels * n))
    named = {"item": item, "annotator": np.char.add("p", annotator.astype(str))}
    when = 1.7e9 + rng.random(labels * n) * 1e6
    table = pa.table({**named, "label": np.char.add("c", label.astype(str)), "time": when.round()})
    pyarrow.csv.write_csv(table, folder / "d" / "annotations.csv")
    texts = [f"this is the text of number {k}" for k in range(n)]
    pyarrow.csv.write_csv(pa.table({"item": np.arange(n), "text": texts}), folder / "d" / "items.csv")
    (folder / "hitl.toml").write_text(SETTINGS)


def measure(folder: Path) -> tuple[list[str], dict[str, Any]]:
    """Milliseconds of each page at the server, and the memory of the process."""
    start, figures = time.perf_counter(), {}
    with serving(folder, "serve", "--no-scheduler") as (address, said, process):
        client = log_in(address, said)
        ready = time.perf_counter() - start
        for name, path in PAGES.items():
            took, size = _asked(client, path)
            figures[name] = {"median ms": float(np.median(took)), "worst ms": max(took), "kB": size / 1e3}
        memory, most = (results.memory(what, process.pid) / 1e9 for what in ("VmRSS", "VmHWM"))
    lines = [f"ready after {ready:.0f} s", "", *results.table(figures, 0), ""]
    return [*lines, f"memory: {memory:.2f} GB, {most:.2f} GB at most"], figures


def _asked(client: httpx.Client, path: str) -> tuple[list[float], int]:
    took, size = [], 0
    for _ in range(REPEATS):
        start = time.perf_counter()
        answer = client.get(path)
        took.append((time.perf_counter() - start) * 1e3)
        answer.raise_for_status()
        size = len(answer.content)
    return took, size


def main(
    doc: str | None = __doc__,
    name: str = "pages",
    measured: Callable[[Path], tuple[list[str], dict[str, Any]]] = measure,
) -> None:
    """Make the project that the command line asks for, run a cycle, and measure."""
    options = results.options(doc, None, items=100_000, labels=10, annotators=10_000)
    page = results.Page()
    page.tell(f"{options.items:,} items, {options.items * options.labels:,} labels, {options.annotators:,} annotators")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder, options.items, options.labels, options.annotators)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "hitl", "run"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        page.tell(f"first cycle: {time.perf_counter() - start:.0f} s")
        lines, figures = measured(folder)
    page.tell(*lines)
    if options.save:
        page.save(f"service_{name}", figures, f"service.{name} --items {options.items} --save")


if __name__ == "__main__":
    main()
