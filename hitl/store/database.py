"""Connect to a database: address, schema, transactions, clock and readable errors.

SQLite runs in WAL mode, so readers never wait. A write transaction takes the write lock when it begins (BEGIN
IMMEDIATE), so that rows it has read cannot change under it. PostgreSQL serializes the writers of one project by the row
lock on `hitl_project` that the fence takes first (see `lease`). A statement that waited for the lock sees what the
other transaction committed (READ COMMITTED).
"""

from __future__ import annotations

import json
import math
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError

from hitl.errors import BadInput, StoreError
from hitl.store import schema
from hitl.store.engine import BUSY_SECONDS, make_engine

SOUND_SECONDS = 3600.0
CONNECT_SECONDS = 10
"""Seconds to try to reach PostgreSQL, unless the address sets `connect_timeout`."""

_SQLITE = "sqlite:///"
_EXPECTED = "expected sqlite:///folder/hitl.db or postgresql://user:password@host/database"

_sound: dict[str, float] = {}
"""SQLite file -> when this process last found it sound, by the monotonic clock."""

_MIGRATION_LOCK = 0x6869_746C
"""Key of the PostgreSQL advisory lock that is held while the schema changes: "hitl" in ASCII."""

_ROWS = 1024  # rows per fetch; larger batches overflow the processor's cache and take twice as long

_ARROW = {
    sa.Text: pa.string(),
    sa.Double: pa.float64(),
    sa.Integer: pa.int64(),
    sa.BigInteger: pa.int64(),
    sa.Boolean: pa.bool_(),
    sa.LargeBinary: pa.binary(),
}

_one_migration = threading.Lock()  # alembic's `context` and `op` are global to the process


class Database:
    """A connection pool to one database. The schema is upgraded to the newest, unless `migrate` is False.

    Attributes:
        engine: SQLAlchemy engine.
        name: path or address to show in messages, without a password.
        postgres: True for PostgreSQL, False for SQLite.
    """

    def __init__(self, url: str, *, migrate: bool = True) -> None:
        self._url = parse(url)
        self.postgres = self._url.get_backend_name() == "postgresql"
        self.name = str(self._url.database)
        if self.postgres:
            self.name = self._url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
        self.engine = make_engine(self._url)
        self._has_new_statistics = False
        try:
            if migrate:
                self._migrate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    # -- transactions --------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a read transaction. All its queries see the same data, even while others write."""
        with self._in_words(), self.engine.connect() as connection:
            if self.postgres:  # on SQLite every read transaction is a snapshot
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a write transaction. It commits at the end and rolls back on an exception."""
        with self._in_words(), self.engine.connect() as connection:
            connection.execution_options(hitl_write=True)
            with connection.begin():
                yield connection
        if self._has_new_statistics:  # SQLite reads statistics only when it opens a connection
            self._has_new_statistics = False
            self.engine.dispose()

    def rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        """Return the rows of a query, read in its own transaction."""
        with self.read() as connection:
            return connection.execute(query).all()

    def scalar(self, query: sa.Select[Any]) -> Any:
        """Return the first value of a query's first row, or None if there are no rows."""
        with self.read() as connection:
            return connection.execute(query).scalar()

    def change(self, statement: sa.Executable) -> int:
        """Run one write statement in its own transaction. Return the number of rows changed."""
        with self.write() as connection:
            return int(connection.execute(statement).rowcount)

    def table(self, query: sa.Select[Any]) -> pa.Table:
        """Return the rows of a query as an Arrow table with the query's column names and types."""
        columns = pa.schema([(column.name, _ARROW[type(column.type)]) for column in query.selected_columns])
        batches = []
        with self.read() as connection:
            cursor = connection.execute(query).cursor
            assert cursor is not None
            while rows := cursor.fetchmany(_ROWS):
                arrays = [
                    _array(values, field.type) for values, field in zip(zip(*rows, strict=True), columns, strict=True)
                ]
                batches.append(pa.RecordBatch.from_arrays(arrays, schema=columns))
            cursor.close()
        return pa.Table.from_batches(batches, schema=columns).combine_chunks()

    def analyse(self, connection: sa.Connection) -> None:
        """Refresh the query planner's statistics, within milliseconds on SQLite.

        Without them, finding a few items may scan all annotations. SQLite updates statistics only on request;
        PostgreSQL does so by itself, but up to a minute after a large write.
        """
        if self.postgres:
            connection.exec_driver_sql(f"ANALYZE (SKIP_LOCKED) {schema.item.name}, {schema.annotation.name}")
        else:  # by name, because PRAGMA optimize skips a table that was written but not queried
            connection.exec_driver_sql("PRAGMA analysis_limit=10000")
            for table in (schema.item, schema.annotation):
                connection.exec_driver_sql(f"ANALYZE {table.name}")
            self._has_new_statistics = True

    def require_sound(self) -> None:
        """Raise StoreError if pages of a SQLite file are damaged, unless it was found sound in the last SOUND_SECONDS.

        This reads the whole file, about a second per GB. Damage inside a value is not noticed.
        """
        if self.postgres or time.monotonic() < _sound.get(self.name, -math.inf) + SOUND_SECONDS:
            return
        with self.read() as connection:
            problems = connection.exec_driver_sql("PRAGMA quick_check(1)").scalars().all()
        if problems != ["ok"]:
            raise StoreError(self._sentence(f"malformed: {problems[0]}", connecting=False))
        _sound[self.name] = time.monotonic()

    def free_bytes(self) -> int | None:
        """Return the free bytes on the disk of a SQLite file, or None for PostgreSQL."""
        return None if self.postgres else shutil.disk_usage(Path(self.name).absolute().parent).free

    # -- dialects ------------------------------------------------------------------------------------------

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT that supports ON CONFLICT."""
        return postgresql_insert(table) if self.postgres else sqlite_insert(table)

    def upsert(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], *, versions: bool = True
    ) -> int:
        """Insert rows, or overwrite stored rows with the same primary key. Return how many rows were new or changed.

        If the table has a version column, newer stored rows are not overwritten, unless `versions` is False.
        """
        if not rows:
            return 0
        insert = self.insert(table)
        written = {column.name: insert.excluded[column.name] for column in table.c if not column.primary_key}
        wanted = sa.or_(*(table.c[name].is_distinct_from(value) for name, value in written.items()))
        if versions and "version" in table.c:
            wanted &= insert.excluded.version >= table.c.version
        statement = insert.on_conflict_do_update(index_elements=[*table.primary_key], set_=written, where=wanted)
        return int(connection.execute(statement.execution_options(preserve_rowcount=True), [*rows]).rowcount)

    def insert_columns(
        self, connection: sa.Connection, table: sa.Table, columns: Mapping[str, Any], constants: Mapping[str, Any]
    ) -> int:
        """Insert new rows from Arrow columns and constants shared by all rows. Return the number of rows."""
        names = ", ".join([*columns, *constants])
        values = [column.to_pylist() for column in columns.values()]
        n_rows = len(values[0])
        if self.postgres:
            driver: Any = connection.connection.driver_connection
            with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
                for row in zip(*values, *map(repeat, constants.values()), strict=False):
                    copy.write_row(row)
        elif n_rows:  # constants are part of the statement, because binding them to each row takes a fifth longer
            literals = [
                str(sa.literal(value, table.c[name].type).compile(connection, compile_kwargs={"literal_binds": True}))
                for name, value in constants.items()
            ]
            marks = ", ".join(["?"] * len(values) + literals)
            insert = f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # nosec B608
            connection.exec_driver_sql(insert, [*zip(*values, strict=True)])
        return n_rows

    def among(self, column: sa.Column[Any], keys: Sequence[str]) -> sa.ColumnElement[bool]:
        """Return `column IN keys` for any number of keys, passed as one parameter."""
        if self.postgres:
            return column == sa.any_(sa.literal([*keys], sa.ARRAY(sa.Text())))
        each = sa.func.json_each(json.dumps([*keys])).table_valued("value")
        return column.in_(sa.select(each.c.value))

    def now(self) -> sa.ColumnElement[float]:
        """Return an SQL expression for the current time, in seconds since the epoch.

        On PostgreSQL, it uses the server's clock because clients' clocks may differ.
        """
        if self.postgres:
            return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double())
        return sa.literal(time.time(), sa.Double())

    # -- schema --------------------------------------------------------------------------------------------

    def version(self, connection: sa.Connection) -> str | None:
        """Return the schema version, or None if there is no schema. Raises StoreError if it is newer than ours."""
        if not sa.inspect(connection).has_table(schema.VERSION_TABLE):
            return None
        version: str = connection.exec_driver_sql(f"SELECT version_num FROM {schema.VERSION_TABLE}").scalar_one()  # nosec B608
        require_supported(self.name, version)
        return version

    @contextmanager
    def migration(self) -> Iterator[sa.Connection]:
        """Open a transaction that may change the schema. Other migrations wait until it ends."""
        with _one_migration, self.write() as connection:
            if self.postgres:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            yield connection

    def upgrade(self, connection: sa.Connection) -> None:
        """Upgrade the schema within a `migration`."""
        from alembic import command

        self.version(connection)
        command.upgrade(migrations(connection), "head")

    def _migrate(self) -> None:
        with self.read() as connection:
            if self.version(connection) == schema.HEAD:
                return
        with self.migration() as connection:
            self.upgrade(connection)

    # -- errors --------------------------------------------------------------------------------------------

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            raise BadInput(f"{self.name}: this cannot be stored: {self.without_secrets(str(error.orig))}") from None
        except DBAPIError as error:
            raise StoreError(self._sentence(str(error.orig), connecting=error.statement is None)) from None
        except UnicodeEncodeError as error:
            raise BadInput(f"{self.name}: text that is not valid Unicode cannot be stored: {error.reason}") from None

    def _sentence(self, text: str, *, connecting: bool) -> str:
        text = re.sub(r"(?<=\w)\s*\n\s*(?=[A-Z])", ". ", self.without_secrets(text))  # libpq puts sentences on lines
        text = " ".join(text.split()) or "no reason given"
        if self.postgres:
            hint = " Is the server running, and are host, database, user and password right?" if connecting else ""
            return f"{self.name}: {text.rstrip('.')}{hint and ('' if text.endswith('?') else '.' + hint)}"
        folder = Path(self.name).absolute().parent
        hints = [hint.format(folder=folder, text=text) for sign, hint in _SQLITE_HINTS.items() if sign in text]
        return f"{self.name}: {hints[0] if hints else text}"

    def without_secrets(self, text: str) -> str:
        """Replace passwords with asterisks, both verbatim and URL-encoded."""
        secrets = [self._url.password, *(self._url.query.get(key) for key in ("password", "sslpassword"))]
        for secret in map(str, filter(None, secrets)):
            for spelled in (secret, quote(secret, safe="")):
                text = text.replace(spelled, "***")
        return text


_BACK = (
    "move it and its -wal and -shm files away, then `hitl restore BACKUP` and `hitl run`. Without a backup, `hitl run` "
    "in each project pulls its labels again; users, tokens, items sent back and the history of plans are lost"
)
_OTHER_COMMIT = f"its tables are those of another state of hitl ({{text}}): {_BACK}"
_SQLITE_HINTS = {
    "unable to open": "cannot be opened: the folder {folder} must exist and you must be allowed to write there",
    "not a database": f"is a file, but not a database, or its first page is damaged. Name another one, or {_BACK}",
    "malformed": f"the database is damaged: {_BACK}",
    "no such column": _OTHER_COMMIT,
    "has no column": _OTHER_COMMIT,
    "no such table": f"the database is damaged ({{text}}): {_BACK}",
    "readonly": "cannot be written: check the permissions of the file and of the folder {folder}",
    "locked": f"another program has kept the database locked for {BUSY_SECONDS} s: try again when it is done",
    "disk is full": "the disk is full: free space in {folder}",
}


def parse(text: str) -> sa.URL:
    """Parse the address of a store. Raises StoreError, which shows no password, if the address is invalid."""
    if text.startswith(_SQLITE):  # the rest is a literal path, without escapes or options
        path = text.removeprefix(_SQLITE)
        if path in ("", ":memory:"):
            raise StoreError(f"the store needs a file; {_EXPECTED}")
        return sa.URL.create("sqlite", database=str(Path(path).expanduser()))
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):  # the original message could show a password
        raise StoreError(f"the address of the store is malformed; {_EXPECTED}") from None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise StoreError(f"the store cannot be in {text.partition(':')[0]!r}; {_EXPECTED}")
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(CONNECT_SECONDS)})
    return url.set(drivername="postgresql+psycopg")


def exists(url: str) -> bool:
    """Return True if the database exists. PostgreSQL databases are assumed to exist."""
    parsed = parse(url)
    return parsed.get_backend_name() != "sqlite" or Path(str(parsed.database)).exists()


def migrate(url: str) -> tuple[str | None, str]:
    """Upgrade the schema of the store at this address. Return the old version (None if it was new) and the new one."""
    version = None
    if exists(url):
        with closing(Database(url, migrate=False)) as database, database.read() as connection:
            version = database.version(connection)
    Database(url).close()
    return version, schema.HEAD


def migrations(connection: sa.Connection) -> Any:
    """Return the alembic configuration of our migrations, bound to a connection. There is no ini file."""
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def require_supported(place: str, version: str) -> None:
    """Raise StoreError if this schema version is newer than ours."""
    if version > schema.HEAD:
        raise StoreError(
            f"{place}: its schema is version {version}; this version of hitl knows {schema.HEAD} at most. "
            "Install the version of hitl that made it, or a newer one. To go back to this version: move the SQLite "
            "file and its -wal and -shm files away, or name an empty database, then `hitl restore` an older backup"
        )


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):  # SQLite has no booleans; they arrive as 0 and 1
        values = [None if value is None else bool(value) for value in values]
    return pa.array(values, kind)
