"""What a cycle says of each of many items, as a whole and the rows that changed since (`hitl.tables.row_differences`).

    name, "whole"      the columns of all items, written anew when much has changed
    name, "changes"    the rows that differ from them; written with each cycle that changes any
    "items", digest    the names of the items, once for all that is said of them

They are written in the transaction of the cycle, and read through `rows_of` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from hitl.errors import StoreError
from hitl.store.database import Database
from hitl.store.schema import whole
from hitl.tables.row_differences import RowsByDifference

WHOLE, CHANGES, ITEMS = "whole", "changes", "items"

DAMAGED = "is damaged: restore a copy of the store, or move it away and pull again"


def rows_of(connection: sa.Connection, project: str, names: Iterable[str]) -> dict[str, RowsByDifference]:
    """What is stored under those of these names that are there. Raises StoreError where its parts do not fit."""
    found: dict[str, dict[str, Any]] = {}
    columns = (whole.c.name, whole.c.part, whole.c.named, whole.c.version, whole.c.packed)
    query = sa.select(*columns).where(whole.c.project == project, whole.c.name.in_([*names]))
    for row in connection.execute(query).all():
        found.setdefault(row.name, {})[row.part] = row
    return {name: _joined(name, parts) for name, parts in found.items()}


def _joined(name: str, parts: Mapping[str, Any]) -> RowsByDifference:
    base, changes = parts.get(WHOLE), parts.get(CHANGES)
    if base is None or (changes is not None and changes.version != base.version):
        raise StoreError(f"what is stored as {name!r} {DAMAGED}")
    return RowsByDifference.unpacked(
        base.named, base.version, bytes(base.packed), None if changes is None else bytes(changes.packed)
    )


def items_of(connection: sa.Connection, project: str, digest: str) -> pa.Array:
    """The names with this digest. Raises StoreError where they are not there."""
    query = sa.select(whole.c.packed).where(whole.c.project == project, whole.c.name == ITEMS, whole.c.part == digest)
    packed = connection.execute(query).scalar()
    if packed is None:
        raise StoreError(f"what is stored as {ITEMS!r} {DAMAGED}")
    return pa.ipc.open_stream(bytes(packed)).read_all().column("name").combine_chunks()


def write(
    database: Database,
    connection: sa.Connection,
    project: str,
    rows: Mapping[str, RowsByDifference],
    items: Mapping[str, Callable[[], pa.Array]],
) -> None:
    """Store what of these is not; of the names `items`, by digest, those that are not there."""
    values = []
    for name, each in rows.items():
        said = {"project": project, "name": name, "named": each.items, "version": each.version}
        if each.unwritten == WHOLE:
            forget(connection, project, [name])
            values.append({**said, "part": WHOLE, "packed": each.packed_whole()})
        elif each.unwritten == CHANGES:
            values.append({**said, "part": CHANGES, "packed": each.packed_changes()})
    database.upsert(connection, whole, values, versions=False)
    needed = {each.items for each in rows.values()}
    there = sa.select(whole.c.part).where(whole.c.project == project, whole.c.name == ITEMS)
    lacking = needed - set(connection.execute(there).scalars())
    named = [
        {"project": project, "name": ITEMS, "part": digest, "named": "", "version": digest, "packed": _names(named())}
        for digest, named in items.items()
        if digest in lacking
    ]
    database.upsert(connection, whole, named, versions=False)


def names_in(connection: sa.Connection, project: str) -> set[str]:
    """All names but that of the items."""
    query = sa.select(whole.c.name).where(whole.c.project == project, whole.c.name != ITEMS)
    return set(connection.execute(query.distinct()).scalars())


def forget(connection: sa.Connection, project: str, names: Iterable[str]) -> None:
    """Drop what is stored under these names."""
    connection.execute(sa.delete(whole).where(whole.c.project == project, whole.c.name.in_([*names])))


def forget_items(connection: sa.Connection, project: str) -> None:
    """Drop names of items of which nothing is said any more."""
    other = whole.alias()
    used = sa.select(other.c.named).where(other.c.project == project, other.c.name != ITEMS)
    mine = sa.and_(whole.c.project == project, whole.c.name == ITEMS)
    connection.execute(sa.delete(whole).where(mine, whole.c.part.not_in(used)))


def _names(column: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_stream(sink, pa.schema([("name", pa.string())]), options=options) as writer:
        writer.write_table(pa.table({"name": column.cast(pa.string())}))
    return bytes(sink.getvalue().to_pybytes())
