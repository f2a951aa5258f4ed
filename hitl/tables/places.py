"""File and line of a table's rows, for messages: `labels.csv, line 7`.

A table read from a file stores the file name in its schema metadata; selecting or reordering rows makes the line
numbers invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from hitl.tables import delimited, json_lines

FILE = b"hitl.file"
"""Key of the metadata."""

Place = Callable[[int], str]
"""Row number -> description of its location."""


def from_file(table: pa.Table, path: Path) -> pa.Table:
    """Store in the table the file it was read from."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), FILE: str(path)})


def name_of(table: pa.Table, otherwise: str) -> str:
    """Return the file of the table, or `otherwise` for a table that is not from a file."""
    file = _file(table)
    return otherwise if file is None else str(file)


def row_number(row: int) -> str:
    """Name a row of a table that is not from a file."""
    return f"row {row}"


def place_in(table: pa.Table, otherwise: Place = row_number) -> Place:
    """Return a function that names the file and line of a row of this table, or `otherwise` if not from a file."""
    file = _file(table)
    return otherwise if file is None else place_in_file(file)


def place_in_file(file: Path) -> Place:
    """Return a function that names the line of a row of this file, or the row (from 0) if rows are not lines."""
    lines: list[int] | None = None

    def place_of(row: int) -> str:
        nonlocal lines
        if lines is None:  # once for all rows
            lines = list(_lines(file))
        return f"{file}, line {lines[row]}" if row < len(lines) else f"{file}, {row_number(row)}"

    return place_of


def _file(table: pa.Table) -> Path | None:
    name = (table.schema.metadata or {}).get(FILE)
    return None if name is None else Path(name.decode())


def _lines(file: Path) -> Iterator[int]:
    suffix = (file.with_suffix("") if file.suffix == ".gz" else file).suffix.lower()
    if suffix in (".csv", ".tsv"):
        yield from delimited.lines(file)
    elif suffix in (".jsonl", ".ndjson"):
        yield from (number for number, _ in json_lines.lines(file))
    elif suffix == ".xlsx":
        from hitl.tables import excel

        yield from excel.lines(file)
