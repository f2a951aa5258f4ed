"""Print output of the command line: progress on standard error, results on standard output.

Names come from users and platforms. Every text passes through `plain`, so that none can control the terminal. JSON
keeps names unchanged; commands pass its messages and addresses through `without_passwords`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from hitl.formatting import counted as counted
from hitl.formatting import escaped, masked, plain

if TYPE_CHECKING:
    import pandas as pd
    from rich.text import Text

    from hitl.platform import Progress

SHOW_AFTER = 1.0
"""Seconds after which long work gets a progress bar."""


def as_json(data: Any) -> None:
    """Print one JSON object on standard output."""
    sys.stdout.write(escaped(json.dumps(data, ensure_ascii=False, default=str)) + "\n")


def without_passwords(data: Any) -> Any:
    """Replace passwords in messages and addresses by stars, in nested containers too."""
    if isinstance(data, Mapping):
        return {key: without_passwords(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [without_passwords(value) for value in data]
    return masked(data) if isinstance(data, str) else data


def line(text: str = "") -> None:
    """Print one line on standard output."""
    sys.stdout.write(plain(text) + "\n")


def result(data: Any, lines: Iterable[str], json_wanted: bool) -> None:
    """Print the result of a command, as JSON for machines or as lines of text."""
    if json_wanted:
        as_json(data)
        return
    for text in lines:
        line(text)


def wrote(paths: Iterable[Path | None]) -> None:
    """Print the files that were written, one per line."""
    for path in paths:
        if path is not None:
            line(f"wrote {path}")


def warning(text: str) -> None:
    """Print a warning on standard error."""
    error(f"warning: {text}")


def error(text: str) -> None:
    """Print one line on standard error, after the name of the program."""
    sys.stderr.write(f"hitl: {plain(text)}\n")


def problems(found: Sequence[str]) -> None:
    """Print the first ten problems of a pull."""
    for problem in found[:10]:
        warning(problem)
    if len(found) > 10:
        warning(f"and {len(found) - 10} more like these")


def frame(title: str, data: pd.DataFrame, rows: int = 20) -> None:
    """Print the first rows of a table."""
    few = f" ({min(rows, len(data))} of {len(data):,})" if len(data) > rows else ""
    cells = data.head(rows).itertuples(index=False)
    shown = ([_cell(one) for one in row] for row in cells)
    words = [str(name) for name in data.columns if data[name].dtype.kind not in "fi"]
    table(title + few, [str(name) for name in data.columns], shown, words)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str | Text]], words: Sequence[str], gap: int = 1
) -> None:
    """Print a table. Columns named in `words` hold text, the others numbers; `gap` is the space between columns."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    def cell(content: str | Text) -> str | Text:
        if isinstance(content, str):
            return escape(plain(content))
        return content if plain(content.plain) == content.plain else Text(plain(content.plain))

    shown = Table(title=cell(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False)
    for name in header:
        shown.add_column(cell(name), justify="left" if name in words else "right")
    for row in rows:
        shown.add_row(*map(cell, row))
    Console().print(shown)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Progress]:
    """Show a progress bar on standard error if the work takes over a second and it is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    tasks: dict[str, Any] = {}
    later = Timer(SHOW_AFTER, bars.start)  # shows a long first step before it is done
    later.daemon = True

    def show(what: str, done: int, total: int | None) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(plain(what), total=total)
        bars.update(tasks[what], completed=done, total=total)

    later.start()
    try:
        yield show
    finally:
        later.cancel()
        later.join()
        bars.stop()
