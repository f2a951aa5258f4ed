"""Store addresses and the connections to them."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from hitl.errors import MissingExtra, StoreError

BUSY_SECONDS = 30
"""Seconds that a SQLite writer waits for another writer."""

CONNECT_SECONDS = 10
"""Seconds to try to reach PostgreSQL, unless the address sets `connect_timeout`."""

_SQLITE = "sqlite:///"
_EXPECTED = "expected sqlite:///folder/hitl.db or postgresql://user:password@host/database"


def parse(text: str) -> sa.URL:
    """Parse the address of a store. Raises StoreError, with the password masked, if it is not a valid address."""
    if text.startswith(_SQLITE):  # the rest is a literal path, without escapes or options
        path = text.removeprefix(_SQLITE)
        if path in ("", ":memory:"):
            raise StoreError(f"the store needs a file; {_EXPECTED}")
        return sa.URL.create("sqlite", database=str(Path(path).expanduser()))
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):  # its message could show a password
        raise StoreError(f"the address of the store cannot be understood; {_EXPECTED}") from None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise StoreError(f"the store cannot be kept in {text.partition(':')[0]!r}; {_EXPECTED}")
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(CONNECT_SECONDS)})
    return url.set(drivername="postgresql+psycopg")


def shown(url: sa.URL) -> str:
    """Return the address for messages: the file's path, or the server's address without password and options."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)


def make_engine(url: sa.URL) -> sa.Engine:
    """Return the SQLAlchemy engine of a database."""
    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_SECONDS}, hide_parameters=True)
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return sa.create_engine(url, isolation_level="READ COMMITTED", hide_parameters=True)
    except ImportError:
        raise MissingExtra("a store on PostgreSQL needs more: pip install 'hitl-toolkit[postgres]'") from None


def make_private(path: Path) -> None:
    """Create a file that only its owner may read. SQLite gives its log and shared memory the same permissions."""
    with suppress(OSError):  # it exists, or cannot be created; SQLite reports the latter
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # we begin transactions explicitly, the driver does not
    connection.execute("PRAGMA foreign_keys=ON")
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            # Switching a new file to WAL does not wait if another process is doing the same.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("hitl_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
