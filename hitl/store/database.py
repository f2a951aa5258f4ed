"""Connection to one database: opening, schema, transactions, clock and readable errors.

SQLite runs in WAL mode, so readers never wait. A write transaction takes the write lock when it begins (BEGIN
IMMEDIATE), so that rows it has read cannot change under it. PostgreSQL serializes the writers of one project by the row
lock on `hitl_project` that the fence takes first (see `lease`). A statement that waited for the lock sees what the
other transaction committed (READ COMMITTED).
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DBAPIError

from hitl.errors import BadInput, StoreError
from hitl.store import arrow, connecting, schema
from hitl.store.connecting import make_engine, make_private, parse, shown
from hitl.store.lookups import LookedUp

_MIGRATION_LOCK = 0x6869_746C
"""PostgreSQL advisory lock held while the schema changes ("hitl")."""

_GROWN = sa.text(
    r"SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'hitl\_%' AND pg_table_is_visible(oid)"
    " AND pg_relation_size(oid) > current_setting('block_size')::int * (8 + 1.5 * relpages)"
)
"""Select PostgreSQL tables that have grown by half, and by some pages, since they were last analyzed."""

T = TypeVar("T")

_one_migration = threading.Lock()  # alembic's `context` and `op` are global to the process


class Database:
    """A connection pool to one database. The schema is upgraded to the newest, or left as it is if `migrate` is False.

    Attributes:
        engine: SQLAlchemy engine, for libraries that store their own tables beside ours (the scheduler's jobs).
    """

    def __init__(self, url: str, *, migrate: bool = True) -> None:
        self._url = parse(url)
        self.postgres = self._url.get_backend_name() == "postgresql"
        self.name = shown(self._url)
        if not self.postgres:
            make_private(Path(str(self._url.database)))
        self.engine = make_engine(self._url)
        address = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._reader = arrow.PostgresReader(address)  # not used on SQLite
        try:
            if migrate:
                self._migrate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._reader.close()
        self.engine.dispose()

    # -- transactions --------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a read transaction."""
        with self._in_words(), self._alive() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Open a transaction in which every query sees the data as of its first query, while others write."""
        with self._in_words(), self._alive() as connection:
            if self.postgres:  # on SQLite every read transaction is a snapshot
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a write transaction. It commits at the end and rolls back on an exception."""
        with self._in_words(), self._alive() as connection:
            connection.execution_options(hitl_write=True)
            with connection.begin():
                yield connection

    def rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        """Return the rows of a query, read in its own transaction."""
        return self._once(lambda connection: connection.execute(query).all())

    def scalar(self, query: sa.Select[Any]) -> Any:
        """Return the first value of a query's first row, or None if there are no rows."""
        return self._once(lambda connection: connection.execute(query).scalar())

    def change(self, statement: sa.Executable) -> int:
        """Run one write statement in its own transaction. Return the number of rows changed.

        If the connection breaks, the statement may run twice.
        """
        return self._once(lambda connection: int(connection.execute(statement).rowcount), writes=True)

    def _alive(self) -> sa.Connection:
        """Return a connection that has just answered a ping."""
        connection = self.engine.connect()
        if self.postgres:
            try:
                self.engine.dialect.do_ping(connection.connection.dbapi_connection)  # type: ignore[arg-type]
            except self.engine.dialect.loaded_dbapi.Error:  # after a server restart all pooled connections are dead
                connection.invalidate()
                connection.close()
                self.engine.dispose()
                return self.engine.connect()
        return connection

    def _once(self, do: Callable[[sa.Connection], T], *, writes: bool = False) -> T:
        """Run a single statement without ping, BEGIN or COMMIT on PostgreSQL.

        If the connection turns out to be dead, retry once on a new one.
        """
        with self._in_words():
            try:
                return self._done(do, writes)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                return self._done(do, writes)  # the pool has dropped all earlier connections

    def _done(self, do: Callable[[sa.Connection], T], writes: bool) -> T:
        with self.engine.connect() as connection:
            if self.postgres:
                connection.execution_options(isolation_level="AUTOCOMMIT")
                return do(connection)
            connection.execution_options(hitl_write=writes)
            with connection.begin():
                return do(connection)

    def table(self, query: sa.Select[Any]) -> pa.Table:
        """Return the rows of a query as an Arrow table with the query's column names and types."""
        columns = arrow.columns_of(query)
        if self.postgres:
            try:
                return self._reader.table(query, columns)
            except arrow.DriverError as error:
                raise StoreError(self._sentence(str(error))) from None
        with self.read() as connection:
            return arrow.from_sqlite(connection, query, columns)

    def analyse(self) -> None:
        """Refresh the query planner's statistics, within milliseconds.

        Without them, finding a few items may scan all annotations. SQLite updates statistics only on request;
        PostgreSQL does so by itself, but up to a minute after a large write. While another program writes, nothing is
        updated: queries return the same rows but may take longer.
        """
        if self.postgres:
            self._analyse_grown()
            return
        with self._in_words(), self.engine.connect() as connection:
            raw: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
            (patience,) = raw.execute("PRAGMA busy_timeout").fetchone()
            with suppress(sqlite3.OperationalError):
                raw.execute("PRAGMA busy_timeout=50")
                raw.execute("PRAGMA analysis_limit=400")
                raw.execute("PRAGMA optimize=0x10002")
            raw.execute(f"PRAGMA busy_timeout={int(patience)}")

    def _analyse_grown(self) -> None:
        with self.write() as connection:
            if grown := connection.execute(_GROWN).scalars().all():
                connection.execute(sa.text(f"ANALYZE (SKIP_LOCKED) {', '.join(grown)}"))

    # -- dialects ------------------------------------------------------------------------------------------

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT that supports ON CONFLICT."""
        return postgresql_insert(table) if self.postgres else sqlite_insert(table)

    def upsert(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], *, versions: bool = True
    ) -> int:
        """Write whole rows by primary key. Return how many differed from the stored ones.

        If the table has a version column, newer stored rows are not overwritten, unless `versions` is False.
        """
        if not rows:
            return 0
        insert = self.insert(table)
        if self.postgres:  # sending whole columns in one statement is several times faster than row by row
            names = [column.name for column in table.c]
            columns = [sa.literal([row[name] for row in rows], sa.ARRAY(table.c[name].type)) for name in names]
            values = sa.func.unnest(*columns).table_valued(*names, name="new").render_derived()
            insert = insert.from_select(names, sa.select(*(values.c[name] for name in names)))
        written = {column.name: insert.excluded[column.name] for column in table.c if not column.primary_key}
        wanted = sa.or_(*(table.c[name].is_distinct_from(value) for name, value in written.items()))
        if versions and "version" in table.c:
            wanted &= insert.excluded.version >= table.c.version
        key = [column.name for column in table.primary_key]
        statement = insert.on_conflict_do_update(index_elements=key, set_=written, where=wanted)
        statement = statement.execution_options(preserve_rowcount=True)
        if self.postgres:
            return int(connection.execute(statement).rowcount)
        # Call the driver directly: SQLAlchemy inspects every value, which takes longer than storing them.
        compiled = statement.compile(dialect=connection.dialect, column_keys=[*rows[0]])
        values_of = itemgetter(*(compiled.positiontup or ()))
        result = connection.exec_driver_sql(
            str(compiled), [*map(values_of, rows)], execution_options={"preserve_rowcount": True}
        )
        return int(result.rowcount)

    def insert_columns(
        self, connection: sa.Connection, table: sa.Table, columns: Mapping[str, Any], constants: Mapping[str, Any]
    ) -> int:
        """Insert new rows from Arrow columns and constants shared by all rows. Return the number of rows."""
        names, values = [*columns, *constants], [column.to_pylist() for column in columns.values()]
        if self.postgres:
            driver: Any = connection.connection.driver_connection
            with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({', '.join(names)}) FROM STDIN") as copy:
                for row in zip(*values, strict=True):
                    copy.write_row([*row, *constants.values()])
        elif values[0]:
            literal: Any = {"dialect": connection.dialect, "compile_kwargs": {"literal_binds": True}}
            shared = [
                str(sa.literal(value, table.c[name].type).compile(**literal)) for name, value in constants.items()
            ]
            marks = ", ".join([*("?" * len(columns)), *shared])
            insert = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"  # nosec B608
            connection.exec_driver_sql(insert, list(zip(*values, strict=True)))
        return len(values[0])

    def among(self, column: sa.Column[Any], keys: Sequence[str]) -> sa.ColumnElement[bool]:
        """Return `column IN keys` for any number of keys, passed as one parameter."""
        if self.postgres:
            return column == sa.any_(sa.literal(list(keys), sa.ARRAY(sa.Text())))
        each = sa.func.json_each(json.dumps(keys)).table_valued("value")
        return column.in_(sa.select(each.c.value))

    def looked_up(self, query: sa.Select[Any], column: sa.Column[Any], keys: Collection[str]) -> sa.Select[Any]:
        """Restrict a query to rows whose `column` is one of `keys`, looking each key up in an index."""
        if self.postgres:
            return query.where(self.among(column, [*keys]))
        each = sa.func.json_each(json.dumps([*dict.fromkeys(keys)])).table_valued("value")
        return query.select_from(LookedUp(each, column))

    def now(self) -> sa.ColumnElement[float]:
        """Return seconds since the epoch, by the server's clock on PostgreSQL because clients' clocks may differ."""
        if self.postgres:
            return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double())
        return sa.literal(time.time(), sa.Double())

    # -- schema --------------------------------------------------------------------------------------------

    def version(self, connection: sa.Connection) -> str | None:
        """Return the schema version, or None if there is no schema. Raises StoreError if it is newer than ours."""
        found = _version(connection)
        if found is not None:
            require_known(self.name, found, connection)
        return found

    def upgrade(self, connection: sa.Connection) -> None:
        """Upgrade the schema within the write transaction that `one_migration` opened."""
        from alembic import command

        command.upgrade(migrations(connection), "head")

    @contextmanager
    def one_migration(self) -> Iterator[sa.Connection]:
        """Open a transaction that may change the schema, excluding all other migrations."""
        with _one_migration, self.write() as connection:
            if self.postgres:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            yield connection

    def _migrate(self) -> None:
        with self.read() as connection:
            if _version(connection) == schema.HEAD:
                return
        with self.one_migration() as connection:
            self.version(connection)
            self.upgrade(connection)

    # -- errors --------------------------------------------------------------------------------------------

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StoreError(self._sentence(str(error.orig), connecting=error.statement is None)) from None
        except UnicodeEncodeError as error:
            raise BadInput(f"{self.name}: text that is not valid Unicode cannot be stored: {error.reason}") from None

    def _sentence(self, text: str, *, connecting: bool = False) -> str:
        text = " ".join(self.without_secrets(text).split()) or "no reason given"
        if self.postgres:
            hint = ". Is the server running, and are host, database, user and password right?" if connecting else ""
            return f"{self.name}: {text}{hint}"
        folder = Path(self.name).absolute().parent
        hints = [hint.format(folder=folder) for sign, hint in _SQLITE_HINTS.items() if sign in text]
        return f"{self.name}: {hints[0] if hints else text}"

    def without_secrets(self, text: str) -> str:
        """Replace the password by stars, both verbatim and URL-encoded."""
        secrets = [self._url.password, *(self._url.query.get(key) for key in ("password", "sslpassword"))]
        for secret in map(str, filter(None, secrets)):
            for spelled in (secret, quote(secret, safe="")):
                text = text.replace(spelled, "***")
        return text


_SQLITE_HINTS = {
    "unable to open": "cannot be opened: the folder {folder} must exist and you must be allowed to write there",
    "not a database": "is a file, but not a database: move it away or name another one",
    "malformed": "the database is damaged: restore a copy, or move it away and pull again",
    "readonly": "may not be written: check the rights of the file and of the folder {folder}",
    "locked": f"another program has kept the database locked for {connecting.BUSY_SECONDS} s: try again "
    "when it is done",
    "disk is full": "the disk is full: make room in {folder}",
}


def migrate(url: str) -> tuple[str | None, str]:
    """Upgrade the schema of the store at this address. Return the old version (None if it was new) and the new one."""
    found = None
    if is_there(url):
        with closing(Database(url, migrate=False)) as database, database.read() as connection:
            found = database.version(connection)
    Database(url).close()
    return found, schema.HEAD


def is_there(url: str) -> bool:
    """Return True if the database exists. A server is assumed to exist, without asking it."""
    parsed = parse(url)
    return parsed.get_backend_name() != "sqlite" or Path(str(parsed.database)).exists()


def migrations(connection: sa.Connection) -> Any:
    """Return the alembic configuration of our migrations, bound to a connection. There is no ini file."""
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def require_known(place: str, version: str, connection: sa.Connection) -> None:
    """Raise StoreError unless this schema version is ours or an earlier one."""
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(migrations(connection)).walk_revisions()}
    if version not in known:
        raise StoreError(
            f"{place}: its schema is version {version}; this version of hitl knows {schema.HEAD} at most. "
            "Upgrade hitl: `pip install .` in a newer checkout"
        )


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(schema.VERSION_TABLE):
        return None
    found = connection.execute(sa.text(f"SELECT version_num FROM {schema.VERSION_TABLE}")).scalar()  # nosec B608  # a constant
    return None if found is None else str(found)
