"""Where a row of a table stands in the file it was read from, for messages: `labels.csv, line 7`.

A table that was read from a file names it in the metadata of its schema; rows that were chosen or put in another order
are no longer those of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from hitl.tables import delimited

FILE = b"hitl.file"
"""Key of the metadata."""

Place = Callable[[int], str]
"""Row number -> where it stands."""


def from_file(table: pa.Table, path: Path) -> pa.Table:
    """The table as it was read from this file, which its messages name."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), FILE: str(path)})


def name_of(table: pa.Table, otherwise: str) -> str:
    """The file of the table; `otherwise` of a table that is not from a file."""
    file = _file(table)
    return otherwise if file is None else str(file)


def row_number(row: int) -> str:
    """The place of a row that is in no file."""
    return f"row {row}"


def place_in(table: pa.Table, otherwise: Place = row_number) -> Place:
    """Row number of this table -> its file and line; the file and the row (counted from 0) where rows are no lines.

    `otherwise` of a table that is not from a file.
    """
    file = _file(table)
    return otherwise if file is None else place_in_file(file)


def place_in_file(file: Path) -> Place:
    """The same for a file, of which no table is at hand: its rows are counted from its beginning."""
    lines: list[int] | None = None

    def place_of(row: int) -> str:
        nonlocal lines
        if lines is None:  # once for all rows that are named
            lines = list(_lines(file))
        return f"{file}, line {lines[row]}" if row < len(lines) else f"{file}, {row_number(row)}"

    return place_of


def _file(table: pa.Table) -> Path | None:
    name = (table.schema.metadata or {}).get(FILE)
    return None if name is None else Path(name.decode())


def _lines(file: Path) -> Iterator[int]:
    """The line, counted from 1, on which each row begins; nothing where rows are no lines."""
    suffix = (file.with_suffix("") if file.suffix == ".gz" else file).suffix.lower()
    if suffix in (".csv", ".tsv"):
        yield from delimited.lines(file)
    elif suffix in (".jsonl", ".ndjson"):
        yield from delimited.lines_with_text(file)
    elif suffix == ".xlsx":
        from hitl.tables import excel

        yield from excel.lines(file)
