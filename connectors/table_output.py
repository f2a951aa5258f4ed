"""Tables that are written to a folder: from rows, whole or not at all, and only where their content changes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from hitl.tables.files import atomic, bytes_of


def table_of_rows(rows: list[dict[str, Any]], columns: list[str]) -> pa.Table:
    """A table with every column that any row has; a column of mixed kinds becomes text."""
    names = dict.fromkeys([*(columns if not rows else ()), *(name for row in rows for name in row)])
    arrays = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            arrays[name] = pa.array(values) if rows else pa.array([], pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays[name] = pa.array([None if value is None else str(value) for value in values], pa.string())
    return pa.table(arrays)


def write_if_changed(path: Path, table: pa.Table) -> bool:
    """Write the table unless the file holds the same bytes already."""
    return write_bytes_if_changed(path, bytes_of(path, table))


def write_bytes_if_changed(path: Path, content: bytes) -> bool:
    """Write these bytes, whole or not at all, unless the file holds them already."""
    if _holds(path, content):
        return False
    with atomic(path) as file:
        file.write(content)
    return True


def _holds(path: Path, content: bytes) -> bool:
    """Whether the file is there, with these bytes: its time says nothing, as two writes may come within one tick."""
    with suppress(FileNotFoundError):
        return path.stat().st_size == len(content) and path.read_bytes() == content
    return False
