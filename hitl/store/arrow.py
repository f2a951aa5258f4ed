"""Query results as Arrow tables, column by column, without an ORM.

PostgreSQL is read through ADBC. SQLite is not: the ADBC driver bundles its own copy of the SQLite library, and two
copies in one process break file locks (POSIX drops a process's locks when any handle to the file is closed). In our
tests, closing the ADBC connection deleted the write-ahead log under the other connection, and later commits were lost.
See https://www.sqlite.org/howtocorrupt.html, section 2.2.1. Reading tuples from the library that also writes takes
0.07 s for 50,000 rows.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from hitl.errors import MissingExtra

_BATCH = 1024  # rows per fetch; larger batches overflow the processor's cache and take twice as long

_TYPES = {
    sa.Text: pa.string(),
    sa.Double: pa.float64(),
    sa.Integer: pa.int64(),
    sa.BigInteger: pa.int64(),
    sa.Boolean: pa.bool_(),
    sa.LargeBinary: pa.binary(),
}
_DIALECT = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


class DriverError(Exception):
    """Error reported by the ADBC driver."""


def columns_of(query: sa.Select[Any]) -> pa.Schema:
    """Return the Arrow schema of a query's result."""
    return pa.schema([(column.name, _TYPES[type(column.type)]) for column in query.selected_columns])


def from_sqlite(connection: sa.Connection, query: sa.Select[Any], columns: pa.Schema) -> pa.Table:
    """Run the query and return its rows. An empty result has the same columns."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    batches = []
    while rows := cursor.fetchmany(_BATCH):
        batches.append(_batch(list(zip(*rows, strict=True)), columns))
    cursor.close()
    return pa.Table.from_batches(batches, schema=columns).combine_chunks()


def _batch(values: list[tuple[Any, ...]], columns: pa.Schema) -> pa.RecordBatch:
    # SQLite has no booleans; they arrive as 0 and 1.
    arrays = [
        pa.array(column, pa.int8()).cast(pa.bool_())
        if pa.types.is_boolean(field.type)
        else pa.array(column, field.type)
        for column, field in zip(values, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


class PostgresReader:
    """Reads through one ADBC connection, opened by the first query because opening costs as much as 10,000 rows."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: Any = None
        self._lock = threading.Lock()

    def table(self, query: sa.Select[Any], columns: pa.Schema) -> pa.Table:
        """Run the query and return its rows. An empty result has the same columns. Raises DriverError."""
        compiled = query.compile(dialect=_DIALECT)
        values = [compiled.params[name] for name in compiled.positiontup or ()]
        with self._lock:
            fresh = self._connection is None
            try:
                found = self._fetch(str(compiled), values)
            except DriverError:
                self._close()
                if fresh:
                    raise
                found = self._fetch(str(compiled), values)  # the server may have been restarted since
        return found.rename_columns(columns.names).cast(columns)

    def close(self) -> None:
        """Close the connection; the next query opens another."""
        with self._lock:
            self._close()

    def _fetch(self, sql: str, values: list[Any]) -> pa.Table:
        try:
            from adbc_driver_postgresql import dbapi
        except ImportError:
            raise MissingExtra("a store on PostgreSQL needs more: pip install 'hitl-toolkit[postgres]'") from None
        try:
            # Autocommit makes each query its own transaction, so none stays open in between.
            self._connection = self._connection or dbapi.connect(self._address, autocommit=True)
            with self._connection.cursor() as cursor:
                cursor.execute(sql, values)
                return cursor.fetch_arrow_table()
        except dbapi.Error as error:
            raise DriverError(str(error)) from None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
