"""Print the output of the command line: results on standard output, everything else on standard error.

A result is printed as JSON (`--json`), or as lines and tables for people. Names come from users and platforms, so
printed text passes through `plain`, which removes everything that could control the terminal. JSON contains names
unchanged, so commands pass messages and addresses in it through `without_passwords`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from hitl.formatting import UNKNOWN as UNKNOWN
from hitl.formatting import counted as counted
from hitl.formatting import escaped, hidden, masked, plain
from hitl.formatting import percent as percent

if TYPE_CHECKING:
    import pandas as pd
    from rich.text import Text

    from hitl.platform import Progress

SHOW_AFTER = 1.0
"""Seconds of work after which the progress bar appears."""


@dataclass(frozen=True)
class Table:
    """A table to print. Columns named in `words` hold text, the others numbers. `gap`: spaces between columns."""

    title: str
    header: Sequence[str]
    rows: Iterable[Sequence[str | Text]]
    words: Collection[str]
    gap: int = 1


Line = str | Table


def result(data: Mapping[str, Any] | Callable[[], Any], lines: Iterable[Line], as_json: bool) -> None:
    """Print the result of a command: its data as one JSON object, or its lines."""
    if as_json:
        value = data() if callable(data) else data
        is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        sys.stdout.write(escaped(hidden(json.dumps(value, ensure_ascii=not is_unicode, default=str))) + "\n")
        sys.stdout.flush()
        return
    for each in lines:
        if isinstance(each, Table):
            _print_table(each)
        else:
            line(each)


def without_passwords(data: Any) -> Any:
    """Replace passwords in messages and addresses by stars, in nested containers too."""
    if isinstance(data, Mapping):
        return {key: without_passwords(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [without_passwords(value) for value in data]
    return masked(data) if isinstance(data, str) else data


def line(text: str = "") -> None:
    """Print one line on standard output, and flush it even if the output is a file."""
    sys.stdout.write(plain(text) + "\n")
    sys.stdout.flush()


def wrote(paths: Iterable[Path | None]) -> list[str]:
    """Return a line per written file, skipping None."""
    return [f"wrote {path}" for path in paths if path is not None]


def warning(text: str) -> None:
    """Print a warning on standard error."""
    error(f"warning: {text}")


def note(text: str) -> None:
    """Print on standard error how the input was understood."""
    error(text)


def error(text: str) -> None:
    """Print one line on standard error, after the name of the program."""
    sys.stderr.write(f"hitl: {plain(text)}\n")


def problems(texts: Sequence[str]) -> None:
    """Print the first ten problems of a pull."""
    for problem in texts[:10]:
        warning(problem)
    if len(texts) > 10:
        warning(f"and {len(texts) - 10} more like these")


def figure(value: float, form: str = ".2f") -> str:
    """Format a number, or a dash if it is unknown."""
    return format(value, form) if math.isfinite(value) else UNKNOWN


def within(share: float, low: float, high: float, digits: int = 1) -> str:
    """Format a share in % with its interval, or a dash if the share is unknown."""
    if not math.isfinite(share):
        return UNKNOWN
    return f"{percent(share, digits)} ({figure(low * 100, f'.{digits}f')}–{figure(high * 100, f'.{digits}f')})"


def frame(title: str, data: pd.DataFrame, rows: int = 20) -> Table:
    """Return the first rows of a table, with three decimals for floats and empty cells for missing values."""

    def cell(value: object) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    few = f" ({min(rows, len(data))} of {len(data):,})" if len(data) > rows else ""
    cells = [[cell(value) for value in row] for row in data.head(rows).itertuples(index=False)]
    words = [str(name) for name in data.columns if data[name].dtype.kind not in "fi"]
    return Table(title + few, [str(name) for name in data.columns], cells, words)


def _print_table(table: Table) -> None:
    from rich import box, markup
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    def cell(content: str | Text) -> str | Text:
        if isinstance(content, str):
            return markup.escape(plain(content))
        return content if plain(content.plain) == content.plain else Text(plain(content.plain))

    shown = RichTable(
        title=cell(table.title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, table.gap, 0, 0), pad_edge=False
    )
    for name in table.header:
        shown.add_column(cell(name), justify="left" if name in table.words else "right")
    for row in table.rows:
        shown.add_row(*map(cell, row))
    Console().print(shown)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Progress]:
    """Show a progress bar if standard error is a terminal and the work takes longer than `SHOW_AFTER`."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich import progress as bar
    from rich.console import Console

    columns = (
        bar.TextColumn("{task.description}", markup=False),
        bar.BarColumn(),
        bar.MofNCompleteColumn(),
        bar.TimeElapsedColumn(),
    )
    bars = bar.Progress(*columns, console=Console(stderr=True), transient=True)
    tasks: dict[str, Any] = {}
    later = Timer(SHOW_AFTER, bars.start)  # a timer shows the bar even before a long first step is done
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
