"""What the command line prints: progress on standard error, results on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from hitl.exchange import Progress

SHOW_AFTER = 1.0
"""Seconds after which long work gets a progress bar."""


def as_json(data: Any) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, default=str) + "\n")


def line(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(text + "\n")


def warning(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"hitl: warning: {text}\n")


def problems(found: Sequence[str]) -> None:
    """What a pull did not understand, the first ten."""
    for problem in found[:10]:
        warning(problem)
    if len(found) > 10:
        warning(f"and {len(found) - 10} more like these")


def counted(number: int, noun: str) -> str:
    """A number and what it counts: 1 question, 1,200 questions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def table(title: str, frame: pd.DataFrame, rows: int = 20) -> None:
    """The first rows of a table."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=f"{title} ({min(rows, len(frame))} of {len(frame):,})" if len(frame) > rows else title)
    for name in frame.columns:
        shown.add_column(str(name), justify="right" if frame[name].dtype.kind in "fi" else "left")
    for row in frame.head(rows).itertuples(index=False):
        shown.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row))
    Console().print(shown)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Progress]:
    """A progress bar on standard error, shown when the work takes over a second; nothing where it is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    tasks: dict[str, Any] = {}

    def show(what: str, done: int, total: int | None) -> None:
        if time.monotonic() - began > SHOW_AFTER and not bars.live.is_started:
            bars.start()
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total)
        bars.update(tasks[what], completed=done, total=total)

    try:
        yield show
    finally:
        bars.stop()
