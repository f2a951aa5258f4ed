"""Back up a whole store to one file while others write, and restore it completely or not at all, to either database.

    backup    reads all tables in one transaction, as of one moment, without blocking anyone
    restore   checks the file first, then creates and fills the tables in one transaction

The file is a ZIP archive. It has one member per table, an Arrow stream, and a final `manifest.json` with the schema
version and, per table, the number of rows and the SHA-256 of the member.

Browser sessions are left out, because restoring them would log users in again who had logged out. Scheduler times are
left out, because the scheduler derives them from the settings.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import sqlalchemy as sa

from hitl.errors import BadInput, Busy, StoreError
from hitl.store import schema
from hitl.store.database import Database, is_there, require_known
from hitl.store.lease import holders
from hitl.tables.write import atomic, require_file

Progress = Callable[[str, int, int | None], None]

FORM = 1
"""Version of the file format; readers refuse any other."""

MANIFEST = "manifest.json"

LEFT_OUT = {schema.session.name}

_ROWS = 1000  # rows held in memory and written per batch
_BYTES = 1 << 20

_KINDS: tuple[tuple[type[sa.types.TypeEngine[Any]], pa.DataType, sa.types.TypeEngine[Any]], ...] = (
    (sa.Boolean, pa.bool_(), sa.Boolean()),
    (sa.Integer, pa.int64(), sa.BigInteger()),
    (sa.Float, pa.float64(), sa.Double()),
    (sa.types._Binary, pa.large_binary(), sa.LargeBinary()),
    (sa.String, pa.large_string(), sa.Text()),
)
"""Type of a column in the database, in the file, and in the statement that fills it; the first match applies."""

_CUT_SHORT = json.dumps({"epoch": 0, "until": None, "began": 0.0})
"""Note of an unfinished push (see `pushes`), because the platform may have changed since the backup."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a backup: schema version, time (ISO 8601, UTC), version of hitl, and table -> rows and digest."""

    schema: str
    made: str
    hitl: str
    tables: Mapping[str, Mapping[str, Any]]

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows per table."""
        return {name: int(one["rows"]) for name, one in self.tables.items()}


# -- backup----------------------------------------------------------------------------------------------------


def backup(
    url: str, path: Path, *, force: bool = False, progress: Progress = lambda what, done, total: None
) -> Manifest:
    """Write the store at this address to a file. The file appears complete or not at all, readable only by its owner.

    The schema is not upgraded. Raises BadInput if the file exists and `force` is False, or if the path is not a regular
    file; StoreError if there is no store.
    """
    require_file(path)
    if path.exists() and not force:
        raise BadInput(f"{path}: is there already; name another file, or replace this one with --force")
    nothing = "there is no store of hitl yet, and nothing to back up"
    if not is_there(url):
        raise StoreError(f"{url.removeprefix('sqlite:///')}: {nothing}")
    with closing(Database(url, migrate=False)) as database, database.snapshot() as connection:
        version = database.version(connection)
        if version is None:
            raise StoreError(f"{database.name}: {nothing}")
        with atomic(path, private=True) as raw:
            return _write(connection, raw, version, progress)


def _write(connection: sa.Connection, raw: IO[bytes], version: str, progress: Progress) -> Manifest:
    from hitl import __version__

    made = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    tables = {}
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as archive:
        for table in _tables(connection):
            with archive.open(_member(table.name), "w", force_zip64=True) as member:
                hashed = _Hashed(member)
                rows = _write_table(connection, table, hashed, progress)
            tables[table.name] = {"rows": rows, "sha256": hashed.digest.hexdigest()}
        manifest = Manifest(version, made, __version__, tables)
        said = {"form": FORM, "schema": version, "made": made, "hitl": __version__, "tables": tables}
        archive.writestr(MANIFEST, json.dumps(said, indent=1))
    return manifest


def _tables(connection: sa.Connection) -> list[sa.Table]:
    """Return our tables as they are in this database, referenced tables first."""
    there = set(sa.inspect(connection).get_table_names())
    found = sa.MetaData()
    return [
        sa.Table(table.name, found, autoload_with=connection)
        for table in schema.metadata.sorted_tables
        if table.name in there and table.name not in LEFT_OUT
    ]


def _write_table(connection: sa.Connection, table: sa.Table, sink: _Hashed, progress: Progress) -> int:
    fields = [(column.name, _arrow_of(column.type)) for column in table.columns]
    columns = pa.schema(fields)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    rows = 0
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), columns, options=options) as stream:
        found = connection.execution_options(yield_per=_ROWS).execute(sa.select(table))
        for part in found.partitions():
            arrays = [pa.array(values, kind) for values, (_, kind) in zip(zip(*part, strict=True), fields, strict=True)]
            stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=columns))
            rows += len(part)
            progress(f"back up {table.name}", rows, None)
    return rows


def _arrow_of(kind: sa.types.TypeEngine[Any]) -> pa.DataType:
    return next(arrow for ours, arrow, _ in _KINDS if isinstance(kind, ours))


class _Hashed:
    """Writable file that hashes all content written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.closed = False

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


# -- restore------------------------------------------------------------------------------------------------


def check(path: Path, progress: Progress = lambda what, done, total: None) -> Manifest:
    """Check a backup and return its contents.

    Raises BadInput if it is damaged, StoreError if its schema is newer than ours.
    """
    with _opened(path, progress) as (_, manifest):
        return manifest


def restore(
    url: str, path: Path, *, force: bool = False, progress: Progress = lambda what, done, total: None
) -> Manifest:
    """Fill the store at this address from a backup, completely or not at all. Leases and sessions end.

    The next push of each project compares everything with the platform, which may have changed since. Raises BadInput
    if the file is damaged, or if the store is not empty and `force` is False; StoreError if a schema is newer than
    ours; Busy while a run holds a project.
    """
    with _opened(path, progress) as (archive, manifest), closing(Database(url, migrate=False)) as database:
        with database.one_migration() as connection:
            _clear(database, connection, force)
            database.upgrade(connection)
            tables = {table.name: table for table in _tables(connection)}
            if unknown := manifest.tables.keys() - tables.keys():
                raise BadInput(f"{path}: table {min(unknown)} is not one of its schema, version {manifest.schema}")
            for name in (name for name in tables if name in manifest.tables):  # referenced tables first
                _fill(database, connection, tables[name], archive, manifest, progress)
            free = sa.update(schema.project).values(owner="", lease_until=0.0, pushing=_CUT_SHORT)
            connection.execute(free)
        database.analyse()
    return manifest


@contextmanager
def _opened(path: Path, progress: Progress) -> Iterator[tuple[zipfile.ZipFile, Manifest]]:
    """Open a backup, verify every byte, and yield the archive and its manifest."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _manifest(path, archive)
            for name, one in manifest.tables.items():
                progress("check", 0, None)
                if _digest(archive, name) != one["sha256"]:
                    raise BadInput(f"{path}: table {name} is damaged: its checksum is another; use another copy")
            _require_known(path, manifest)
            yield archive, manifest
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; expected one that `hitl backup` wrote") from None
    except zipfile.BadZipFile:
        raise BadInput(
            f"{path}: is no whole backup, it may have been cut short; expected a file that `hitl backup` wrote. "
            "Use another copy"
        ) from None


def _manifest(path: Path, archive: zipfile.ZipFile) -> Manifest:
    try:
        said = json.loads(archive.read(MANIFEST))
        form = said["form"]
        found = Manifest(str(said["schema"]), str(said["made"]), str(said["hitl"]), dict(said["tables"]))
        whole = all(
            _member(name) in archive.namelist() and {"rows", "sha256"} <= set(found.tables[name])
            for name in found.tables
        )
    except (KeyError, TypeError, ValueError):
        form, whole = None, False
    if not whole and form in (None, FORM):
        raise BadInput(f"{path}: is an archive of something else; expected a file that `hitl backup` wrote")
    if form != FORM:
        raise BadInput(f"{path}: is a backup of form {form}; this version of hitl knows {FORM}. Upgrade hitl")
    return found


def _require_known(path: Path, manifest: Manifest) -> None:
    with sa.create_engine("sqlite://").connect() as nowhere:
        require_known(str(path), manifest.schema, nowhere)


def _digest(archive: zipfile.ZipFile, table: str) -> str:
    digest = hashlib.sha256()
    with archive.open(_member(table)) as member:
        while content := member.read(_BYTES):
            digest.update(content)
    return digest.hexdigest()


def _member(table: str) -> str:
    return f"{table}.arrows"


def _clear(database: Database, connection: sa.Connection, force: bool) -> None:
    """Drop our tables if nobody is using them. Tables with rows are dropped only with `force`."""
    if database.version(connection) is None:
        return
    if database.postgres:  # every writer of a project locks its row first
        connection.execute(sa.text(f"LOCK TABLE {schema.project.name} IN ACCESS EXCLUSIVE MODE"))
    if busy := holders(database, connection):
        raise Busy(f"{database.name}: {'; '.join(busy)}. Stop it, or try again later")
    tables = _tables(connection)
    full = [table.name for table in tables if connection.execute(sa.select(table).limit(1)).first() is not None]
    if full and not force:
        raise BadInput(
            f"{database.name}: holds something already (table {full[0]}); restore into an empty store, or replace "
            "everything in this one with --force"
        )
    names = {*schema.metadata.tables, schema.VERSION_TABLE} & set(sa.inspect(connection).get_table_names())
    found = sa.MetaData()
    found.reflect(connection, only=sorted(names))
    found.drop_all(connection)


def _fill(
    database: Database,
    connection: sa.Connection,
    table: sa.Table,
    archive: zipfile.ZipFile,
    manifest: Manifest,
    progress: Progress,
) -> None:
    rows, expected = 0, manifest.rows[table.name]
    with archive.open(_member(table.name)) as member, pa.ipc.open_stream(pa.PythonFile(member, mode="r")) as stream:
        if lacking := set(stream.schema.names) ^ set(table.columns.keys()):
            raise BadInput(f"table {table.name}: columns {', '.join(sorted(lacking))} are not those of its schema")
        for batch in stream:
            _insert(database, connection, table, batch)
            rows += batch.num_rows
            progress(f"restore {table.name}", rows, expected)
    if rows != expected:
        raise BadInput(f"table {table.name}: found {rows} rows; expected {expected}")


def _insert(database: Database, connection: sa.Connection, table: sa.Table, batch: pa.RecordBatch) -> None:
    kinds = {field.name: next(sql for _, arrow, sql in _KINDS if arrow == field.type) for field in batch.schema}
    if not database.postgres:
        connection.execute(sa.insert(table), batch.to_pylist())
        return
    columns = [sa.literal(batch.column(name).to_pylist(), sa.ARRAY(kind)) for name, kind in kinds.items()]
    values = sa.func.unnest(*columns).table_valued(*kinds, name="new").render_derived()
    chosen = sa.select(*(values.c[name] for name in kinds))
    connection.execute(sa.insert(table).from_select(list(kinds), chosen))
