"""What a cycle over tables costs: the first one, one that finds nothing new, and one with 10 changed labels.

    python -m tests.bench.trust.cost 50000 200000 1000000 --save

N items have 5 labels each, of 100 annotators who are right four times of five. `ratio` is the processor time of the
cycle beside that of what has to be done, the fit and the plan; `judge` is these two and all that is read for them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from hitl import cycle, project
from hitl.connectors.tables import Tables, TablesSettings
from hitl.settings import Settings
from hitl.store import Store
from tests.bench import results

LABELS, ANNOTATORS, CHANGED = 5, 100, 10
TIMED = {"fit": "combined", "plan": "next_plan", "judge": "judge"}


def settings() -> Settings:
    """Those of the project."""
    return Settings(
        name="p",
        source=TablesSettings(path="d"),
        budget={"open_questions": 1000, "target_confidence": 0.95, "max_labels": 8},  # type: ignore[arg-type]
        crew={"annotators": tuple(f"p{k}" for k in range(ANNOTATORS))},  # type: ignore[arg-type]
    )


def write(folder: Path, n: int) -> None:
    """Labels of n items."""
    rng = np.random.default_rng(0)
    truth, item = rng.integers(4, size=n), np.repeat(np.arange(n), LABELS)
    annotator = (item * 7 + np.tile(np.arange(LABELS), n) * 13) % ANNOTATORS
    label = np.where(rng.random(LABELS * n) < 0.8, truth[item], rng.integers(4, size=LABELS * n))
    named = {"item": item, "annotator": np.char.add("p", annotator.astype(str))}
    table = pa.table({**named, "label": np.char.add("c", label.astype(str))})
    pyarrow.csv.write_csv(table, folder / "annotations.csv")


def change(folder: Path) -> None:
    """Give 10 labels, all over the file, another class."""
    path = folder / "annotations.csv"
    lines = path.read_bytes().splitlines()
    for place in range(1, len(lines), len(lines) // CHANGED)[:CHANGED]:
        head, _, label = lines[place].rpartition(b",")
        lines[place] = head + b',"c%d"' % ((int(label.strip(b'"')[1:]) + 1) % 4)
    path.write_bytes(b"\n".join(lines) + b"\n")


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Seconds of processor time that the parts of a cycle take, by name."""
    spent = dict.fromkeys(TIMED, 0.0)

    def watched(name: str, done: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return done(*arguments, **named)
            finally:
                spent[name] += time.process_time() - began

        return run

    with ExitStack() as stack:
        for name, function in TIMED.items():
            module = project if hasattr(project, function) else cycle
            stack.enter_context(patch.object(module, function, watched(name, getattr(module, function))))
        yield spent


def step(root: Path) -> dict[str, float]:
    """One cycle, as a process of its own would do it, in seconds."""
    began, used = time.perf_counter(), time.process_time()
    with timed() as spent, Store(f"sqlite:///{root}/h.db") as store:
        cycle.run_if_changed(settings(), store, Tables(root / "d"))
    return {"wall": time.perf_counter() - began, "cpu": time.process_time() - used, **spent}


def of_size(n: int) -> dict[str, dict[str, float]]:
    """The four cycles of a project of n items."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "d").mkdir()
        write(root / "d", n)
        found = {"first": step(root), "unchanged": step(root)}
        change(root / "d")
        found[f"{CHANGED} changed"] = step(root)
        found["unchanged again"] = step(root)
        store = os.path.getsize(root / "h.db") / 1e6
    return found | {"size": {"store MB": store, "peak GB": results.memory() / 1e9}}


def lines_of(n: int, found: dict[str, dict[str, float]]) -> list[str]:
    """A table of one size."""
    size, rows = found["size"], pd.DataFrame.from_dict(found, orient="index").drop(index="size").dropna(axis=1)
    rows["ratio"] = (rows["cpu"] / (rows["fit"] + rows["plan"])).where(rows["fit"] > 0)
    head = (
        f"{n:,} items, {LABELS * n:,} labels: {size['store MB']:,.0f} MB stored, peak {size['peak GB']:.1f} GB; seconds"
    )
    return [head, *results.table(rows, 2), ""]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", default=[50_000, 200_000, 1_000_000])
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/trust_cost.*")
    options = parser.parse_args(arguments)
    page, figures = results.Page(), dict[str, Any]()
    of_size(500)  # so that compiled kernels are loaded
    for n in options.sizes:
        figures[str(n)] = of_size(n)
        page.tell(*lines_of(n, figures[str(n)]))
    if options.save:
        page.save("trust_cost", figures, f"trust.cost {' '.join(map(str, options.sizes))} --save")


if __name__ == "__main__":
    main()
