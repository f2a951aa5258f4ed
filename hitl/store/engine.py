"""Open connections to SQLite, also to a file that can only be read, and to PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from hitl.errors import MissingExtra

BUSY_SECONDS = 30
"""Seconds that a SQLite writer waits for another writer."""


def make_engine(url: sa.URL) -> sa.Engine:
    """Return the engine of a database. A SQLite file that cannot be written is opened for reading."""
    if url.get_backend_name() == "sqlite":
        # Only the owner may read the file. SQLite gives its log and shared memory the same permissions.
        with suppress(OSError):  # the file exists, or cannot be created, which SQLite will report
            os.close(os.open(str(url.database), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS}}
        if _is_read_only(Path(str(url.database))):
            options = {"creator": partial(_connect_read_only, Path(str(url.database)))}
        engine = sa.create_engine(url, hide_parameters=True, pool_recycle=300, **options)
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:  # the ping detects pooled connections that died when the server restarted
        return sa.create_engine(url, isolation_level="READ COMMITTED", hide_parameters=True, pool_pre_ping=True)
    except ImportError:
        raise MissingExtra("a store on PostgreSQL needs an extra: pip install 'hitl-toolkit[postgres]'") from None


def _is_read_only(file: Path) -> bool:
    return file.is_file() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def _connect_read_only(file: Path) -> sqlite3.Connection:
    """Open a file that cannot be written. While others write to it, its -wal file is read too."""
    mode = "mode=ro" if Path(f"{file}-wal").exists() else "immutable=1"
    address = f"file:{quote(str(file.absolute()))}?{mode}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)


def _prepare_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # we begin transactions explicitly, the driver does not
    connection.execute("PRAGMA foreign_keys=ON")
    if _is_read_only(Path(connection.execute("PRAGMA database_list").fetchone()[2])):
        return
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
