"""Back up a whole store to one file while others write, and restore it completely or not at all, to either database.

    backup    reads all tables in one transaction, as of one moment, without blocking anyone
    restore   checks the file first, then creates and fills the tables in one transaction

The file is a ZIP archive, whose checksums detect damage. It has one member per table, an Arrow stream, and a final
`manifest.json` with the schema version and the number of rows per table. Browser sessions are left out, because
restoring them would log users in again who had logged out.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import pyarrow as pa
import sqlalchemy as sa

from hitl.errors import BadInput, Busy, StoreError
from hitl.platform import Progress, silent
from hitl.store import schema
from hitl.store.database import Database, exists, require_supported
from hitl.store.lease import holders
from hitl.store.outbox import CUT_SHORT
from hitl.tables.write import atomic, require_place

MANIFEST = "manifest.json"

TABLES = [table for table in schema.metadata.sorted_tables if table is not schema.session]
"""Tables in a backup. Each one comes after the tables that it references."""

_ROWS = 1000  # rows held in memory and written per batch

_ARROW = {
    sa.Text: pa.large_string(),
    sa.Double: pa.float64(),
    sa.Integer: pa.int64(),
    sa.BigInteger: pa.int64(),
    sa.Boolean: pa.bool_(),
    sa.LargeBinary: pa.large_binary(),
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a backup: schema version, time (ISO 8601, UTC), version of hitl, and table -> number of rows."""

    schema: str
    made: str
    hitl: str
    rows: Mapping[str, int]


def backup(url: str, path: Path, *, force: bool = False, progress: Progress = silent) -> Manifest:
    """Write the store at this address to a file. The file appears complete or not at all, readable only by its owner.

    The schema is not upgraded. Raises BadInput if the file exists and `force` is False, or if the path is not a regular
    file; StoreError if there is no store.
    """
    require_place(path)
    if path.exists() and not force:
        raise BadInput(f"{path}: exists already; name another file, or use --force to overwrite it")
    nothing = "there is no store yet, so nothing to back up"
    if not exists(url):
        raise StoreError(f"{url.removeprefix('sqlite:///')}: {nothing}")
    with closing(Database(url, migrate=False)) as database, database.read() as connection:
        version = database.version(connection)
        if version is None:
            raise StoreError(f"{database.name}: {nothing}")
        with atomic(path, private=True) as file:
            return _write(connection, file, version, progress)


def _write(connection: sa.Connection, file: IO[bytes], version: str, progress: Progress) -> Manifest:
    from hitl import __version__

    rows = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for table in TABLES:
            with archive.open(_member(table.name), "w", force_zip64=True) as member:
                rows[table.name] = _write_table(connection, table, member, progress)
        manifest = Manifest(version, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", __version__, rows)
        archive.writestr(MANIFEST, json.dumps(asdict(manifest), indent=1))
    return manifest


def _write_table(connection: sa.Connection, table: sa.Table, member: IO[bytes], progress: Progress) -> int:
    columns = pa.schema([(column.name, _ARROW[type(column.type)]) for column in table.columns])
    options, rows = pa.ipc.IpcWriteOptions(compression="zstd"), 0
    with pa.ipc.new_stream(pa.PythonFile(member, mode="w"), columns, options=options) as stream:
        stored = connection.execution_options(yield_per=_ROWS).execute(sa.select(table)).mappings()
        for part in stored.partitions():
            stream.write_batch(pa.RecordBatch.from_pylist(part, schema=columns))
            rows += len(part)
            progress(f"back up {table.name}", rows, None)
    return rows


def check(path: Path, progress: Progress = silent) -> Manifest:
    """Check a backup and return its contents.

    Raises BadInput if it is damaged, StoreError if its schema is newer than ours.
    """
    with _opened(path, progress) as (_, manifest):
        return manifest


def restore(url: str, path: Path, *, force: bool = False, progress: Progress = silent) -> Manifest:
    """Fill the store at this address from a backup, completely or not at all. Leases and sessions end.

    The next push of each project compares everything with the platform, which may have changed since the backup. Raises
    BadInput if the file is damaged, or if the store is not empty and `force` is False; StoreError if the schema of the
    file or of the store is newer than ours; Busy while a run holds a project.
    """
    with (
        _opened(path, progress) as (archive, manifest),
        closing(Database(url, migrate=False)) as database,
        database.migration() as connection,
    ):
        _clear(database, connection, force)
        database.upgrade(connection)
        for table in TABLES:
            _fill(connection, table, archive, manifest.rows[table.name], progress)
        connection.execute(sa.update(schema.project).values(owner="", lease_until=0.0, pushing=CUT_SHORT))
        database.analyse(connection)
    return manifest


@contextmanager
def _opened(path: Path, progress: Progress) -> Iterator[tuple[zipfile.ZipFile, Manifest]]:
    """Open a backup, verify every byte, and yield the archive and its manifest."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _manifest(path, archive)
            progress("check", 0, None)
            if damaged := archive.testzip():
                raise BadInput(f"{path}: {damaged} is damaged (checksum mismatch); use another copy")
            yield archive, manifest
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; expected a file written by `hitl backup`") from None
    except zipfile.BadZipFile:
        raise BadInput(f"{path}: is not a complete backup; it may have been cut off. Use another copy") from None


def _manifest(path: Path, archive: zipfile.ZipFile) -> Manifest:
    try:
        manifest = Manifest(**json.loads(archive.read(MANIFEST)))
        require_supported(str(path), manifest.schema)
        is_backup = manifest.rows.keys() == {table.name for table in TABLES}
    except (AttributeError, KeyError, TypeError, ValueError):
        is_backup = False
    if not is_backup or not {_member(table.name) for table in TABLES} <= set(archive.namelist()):
        raise BadInput(f"{path}: not a backup; expected a file written by `hitl backup`")
    return manifest


def _member(table: str) -> str:
    return f"{table}.arrows"


def _clear(database: Database, connection: sa.Connection, force: bool) -> None:
    """Drop our tables. Raises Busy while a run holds a project, and BadInput if `force` is False and there are rows."""
    if database.version(connection) is None:
        return
    if database.postgres:  # every writer locks the project's row first, so this lock stops all writers
        connection.execute(sa.text(f"LOCK TABLE {schema.project.name} IN ACCESS EXCLUSIVE MODE"))
    if busy := holders(database, connection):
        held = "; ".join(f"project {name!r} is held by {who}" for name, who in busy.items())
        raise Busy(f"{database.name}: {held}. Stop it, or try again later")
    full = [table.name for table in TABLES if connection.execute(sa.select(table).limit(1)).first() is not None]
    if full and not force:
        raise BadInput(
            f"{database.name}: is not empty (table {full[0]}); restore into an empty store, or use "
            "--force to replace everything in this one"
        )
    schema.metadata.drop_all(connection)
    sa.Table(schema.VERSION_TABLE, sa.MetaData()).drop(connection)


def _fill(
    connection: sa.Connection, table: sa.Table, archive: zipfile.ZipFile, expected: int, progress: Progress
) -> None:
    rows = 0
    with archive.open(_member(table.name)) as member, pa.ipc.open_stream(pa.PythonFile(member, mode="r")) as stream:
        if stream.schema.names != table.columns.keys():
            raise BadInput(f"table {table.name}: columns {', '.join(stream.schema.names)} are not those of its schema")
        for batch in stream:
            connection.execute(sa.insert(table), batch.to_pylist())
            rows += batch.num_rows
            progress(f"restore {table.name}", rows, expected)
    if rows != expected:
        raise BadInput(f"table {table.name}: found {rows} rows; expected {expected}")
