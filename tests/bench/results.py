"""What benchmarks share: arguments, tables that are printed as they come and saved, processes side by side, memory.

The last figures are in docs/benchmarks/: text for people and JSON for tests.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from hitl.annotations import Floats

T = TypeVar("T")
Bar = tuple[str, str, bool]
"""(claim, figure, whether it holds)."""

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"


def options(doc: str | None, arguments: Sequence[str] | None, /, **defaults: Any) -> argparse.Namespace:
    """Parse --save and an option for each default: a flag if False, several values if a sequence, text if None."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write the figures to docs/benchmarks/")
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, Sequence) and not isinstance(default, str):
            parser.add_argument(flag, nargs="+", type=type(default[0]) if default else str, default=list(default))
        else:
            parser.add_argument(flag, type=str if default is None else type(default), default=default)
    return parser.parse_args(arguments)


class Page(list[str]):
    """Lines that are printed as they come."""

    def tell(self, *lines: str) -> None:
        """Print and keep these lines."""
        print("\n".join(lines), flush=True)
        self.extend(lines)

    def held(self, *bars: Bar) -> None:
        """Tell a line for each bar."""
        self.tell(*held(*bars))

    def parts(self, parts: Mapping[str, Callable[..., Any]], chosen: Sequence[str], *arguments: Any) -> dict[str, Any]:
        """Tell the lines that each chosen part returns beside its figures; return the figures by part."""
        figures = {}
        for name in chosen:
            lines, figures[name] = parts[name](*arguments)
            self.tell(name, *lines, "")
        return figures

    def save(self, name: str, figures: Mapping[str, Any], command: str | None = None) -> None:
        """Write <name>.txt and <name>.json; `command`: default bench_<name> --save."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        made = f"$ python -m tests.bench.{command or f'bench_{name} --save'}"
        (FOLDER / f"{name}.txt").write_text("\n".join([made, *self]) + "\n")
        (FOLDER / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")


def held(*bars: Bar) -> list[str]:
    """A line for each bar."""
    return ["", *(f"{'holds' if ok else 'FAILS'}  {claim}: {figure}" for claim, figure, ok in bars)]


def at_most(name: str, figure: float, limit: float, shown: str = ".4f") -> Bar:
    """Return the bar of a figure that may not be above its limit."""
    return f"{name} at most {limit:g}", format(figure, shown), bool(figure <= limit)


def at_least(name: str, figure: float, limit: float, shown: str = ".4f") -> Bar:
    """Return the bar of a figure that may not be below its limit."""
    return f"{name} at least {limit:g}", format(figure, shown), bool(figure >= limit)


def at_most_of(name: str, other: str, figure: float, theirs: float, share: float) -> Bar:
    """Return the bar of a figure that may be at most this share of another's."""
    return f"{name} at most {share:g} of {other}", f"{figure:.4f} / {theirs:.4f}", bool(figure <= share * theirs)


def at_most_each(name: str, figures: Mapping[str, float], limit: float, shown: str = ".2f") -> Bar:
    """Return the bar of figures none of which may be above the limit, with the largest."""
    worst = max(figures, key=lambda key: figures[key])
    return f"{name} at most {limit:g} on each", f"{figures[worst]:{shown}} on {worst}", bool(figures[worst] <= limit)


def table(rows: Mapping[Any, Mapping[str, Any]] | pd.DataFrame, digits: int = 3) -> list[str]:
    """Lines of a table, by row names; nothing stands for NaN."""
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame.from_dict(rows, orient="index")
    lines: list[str] = frame.to_string(float_format=lambda value: f"{value:.{digits}f}", na_rep="").splitlines()
    return lines


def spread(values: Sequence[float] | Floats, digits: int = 3) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(values):.{digits}f} ({np.std(values):.{digits}f})"


def load(name: str) -> dict[str, Any]:
    """Return the figures last saved."""
    figures: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return figures


def side_by_side(
    work: Callable[[Any], T], jobs: Sequence[Any], workers: int, start: Callable[[], None] | None = None
) -> list[T]:
    """Return the results of all jobs in their order, from `workers` processes; print a line as each is done."""
    began = time.perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn"), start) as pool:
        waiting = {pool.submit(work, job): job for job in jobs}
        for done, future in enumerate(as_completed(waiting), 1):
            print(f"{done:4d}/{len(jobs)} {time.perf_counter() - began:6.0f} s  {waiting[future]}", flush=True)
        return [future.result() for future in waiting]


@contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Measure a block on Linux: seconds, processor seconds (cpu) and megabytes of memory over those before (MB)."""
    most, over, figures = [memory("VmRSS")], threading.Event(), dict[str, float]()

    def watch() -> None:
        while not over.wait(0.002):
            most.append(max(most.pop(), memory("VmRSS")))

    before, thread = most[0], threading.Thread(target=watch, daemon=True)
    thread.start()
    began, busy = time.perf_counter(), time.process_time()
    yield figures
    figures |= {"seconds": time.perf_counter() - began, "cpu": time.process_time() - busy}
    over.set()
    thread.join()
    figures["MB"] = (most[0] - before) / 1e6


def memory(what: str = "VmHWM", process: int | str = "self") -> int:
    """Bytes of memory of a process: VmHWM, the most it has held, or VmRSS, what it holds (not on Linux: the most)."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # on Linux it begins with that of the parent
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) * 1024
