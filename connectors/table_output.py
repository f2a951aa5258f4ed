"""Tables that are written to a folder: from rows, whole or not at all, and only where their content changes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from hitl.tables.files import write_table


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
    fresh = path.with_name(f".new-{path.name}")
    write_table(fresh, table)
    if path.exists() and _same_bytes(path, fresh):
        fresh.unlink()
        return False
    fresh.replace(path)  # whole, or not at all
    return True


LONGEST = 160
"""Bytes of a file's name without its ending; file systems take 255, and a file that is being written has more."""


def file_name(name: str) -> str:
    """A file name for an annotator: itself where it is harmless, else with a digest so that no two collide."""
    plain = re.sub(r"[^\w.@+-]", "_", name)
    if plain == name and len(plain.encode()) <= LONGEST:
        return plain
    return f"{plain[: LONGEST // 4]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _same_bytes(one: Path, other: Path) -> bool:
    """Whether both files hold the same; `filecmp` would remember what files of this size and time held before."""
    return one.stat().st_size == other.stat().st_size and one.read_bytes() == other.read_bytes()
