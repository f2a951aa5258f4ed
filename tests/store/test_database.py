"""Opening a database, its schema, and what is said when it cannot be used."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from hitl.errors import BadInput, MissingExtra, StoreError
from hitl.store import Store, engine, schema
from hitl.store.database import migrations
from tests.store.rows import item, page

SECRET = "s3cret/@pass"
URL_SECRET = "s3cret%2F%40pass"


def test_migrations_lead_to_the_tables(store: Store) -> None:
    with store.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        assert compare_metadata(context, schema.metadata) == []
        assert context.get_current_revision() == schema.HEAD
        assert ScriptDirectory.from_config(migrations(connection)).get_current_head() == schema.HEAD


def test_opening_again_keeps_everything(url: str) -> None:
    for number in range(3):
        with Store(url) as store, store.lease("p") as lease:
            store.save_page(lease, page(number, item(str(number))))
            assert store.counts("p")["items"] == number + 1


_OPEN = """
import sys, time
from hitl.store import Store
print("ready", flush=True)
sys.stdin.readline()
Store(sys.argv[1]).close()
"""


def test_several_processes_open_a_new_database_at_once(url: str) -> None:
    pipe = subprocess.PIPE
    children = [
        subprocess.Popen([sys.executable, "-c", _OPEN, url], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    errors = [child.communicate()[1] for child in children]
    assert errors == [""] * 3
    with Store(url) as store:
        assert store.counts("p")["items"] == 0


def test_it_shares_a_database_with_others(url: str) -> None:
    with Store(url) as store, store.database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('theirs')")
    Store(url).close()


def test_a_newer_schema(url: str) -> None:
    with Store(url) as store, store.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(
        StoreError, match=rf"version 9999; this version of hitl knows {schema.HEAD} at most\. Install the version"
    ):
        Store(url)


def test_a_damaged_schema(store: Store) -> None:
    with store.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE hitl_item")
    for read in (store.items, store.counts):
        with pytest.raises(StoreError, match="hitl_item"):
            read("p")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///{tmp}/no/such/hitl.db", "no/such must exist"),
        ("sqlite:///{tmp}", "cannot be opened"),
        ("sqlite:///{tmp}/text", "is a file, but not a database"),
        ("sqlite:///", "needs a file; expected sqlite:///"),
        ("sqlite://", "cannot be in 'sqlite'; expected sqlite:///"),
        ("hitl.db", "is malformed; expected sqlite:///"),
        ("mysql://root:s3cret@host/db", "cannot be in 'mysql'"),
        (f"postgresql://me:{URL_SECRET}@127.0.0.1:1/db", r"refused\. Is the server running[^?]*\?$"),
    ],
)
def test_what_cannot_be_opened(tmp_path: Path, url: str, message: str) -> None:
    (tmp_path / "text").write_text("this is no database, this is text\n" * 100)
    with pytest.raises(StoreError, match=message) as caught:
        Store(url.format(tmp=tmp_path))
    assert "s3cret" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_no_message_shows_a_password(postgres_url: str) -> None:
    with_password = postgres_url.replace("postgres:@", f"postgres:{URL_SECRET}@")
    assert with_password != postgres_url
    with Store(with_password) as store:
        assert "s3cret" not in repr(store)
        with store.database.write() as connection:
            connection.exec_driver_sql("DROP TABLE hitl_item")
        with pytest.raises(StoreError) as caught:
            store.items("p")
        assert "s3cret" not in str(caught.value)
        assert store.database.without_secrets(f"{SECRET} {URL_SECRET}") == "*** ***"


def test_a_wrong_database_says_where(postgres: str) -> None:
    with pytest.raises(StoreError, match='database "nowhere" does not exist'):
        Store(postgres.format("nowhere"))


@pytest.mark.parametrize("use", ["table", "rows", "change", "write"])
def test_connections_that_broke_are_replaced(postgres_url: str, use: str) -> None:
    """As after a restart of the server; whichever way the first query takes after it."""
    with Store(postgres_url) as store:
        gone = sa.delete(schema.view).where(schema.view.c.project == "p")
        uses: dict[str, Callable[[], object]] = {
            "table": lambda: store.items("p").num_rows,
            "rows": lambda: store.counts("p")["items"],
            "change": lambda: store.database.change(gone),
            "write": lambda: store.forget_view("p", "v"),
        }
        uses[use]()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            connection.execute(kill + " AND datname = current_database()")
        uses[use]()
        assert store.items("p").num_rows == 0
        assert store.counts("p")["items"] == 0


def test_missing_extra(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match="hitl-toolkit\\[postgres\\]"):
        Store(postgres_url)


def test_text_that_is_no_unicode(store: Store) -> None:
    with pytest.raises(BadInput, match="Unicode"), store.lease("p") as lease:
        store.save_page(lease, page(1, item("\ud800")))
    assert store.cursor("p") is None


def test_text_that_a_database_does_not_take_is_no_failure_of_it(postgres_url: str) -> None:
    with Store(postgres_url) as store, pytest.raises(BadInput, match="NUL"):
        store.send_back("p", "i1", "ann", "lead", "a\0b")


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "50 % of %41 ünïts? #1"
    folder.mkdir()
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        assert store.counts("p")["items"] == 0
    assert (folder / "hitl.db").exists()


def test_another_program_keeps_it_locked(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.1)
    with Store(sqlite_url) as store, Store(sqlite_url) as other, other.database.write():
        assert store.counts("p")["items"] == 0, "reading does not wait"
        with pytest.raises(StoreError, match="kept the database locked"), store.lease("p"):
            raise AssertionError


def test_sqlite_keeps_a_log(sqlite_url: str) -> None:
    with Store(sqlite_url) as store, store.database.read() as connection:
        pragmas = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "foreign_keys")]
    assert pragmas == ["wal", 1]


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("content", ["nothing", "no tables"])
def test_an_empty_file_becomes_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, writable: bool
) -> None:
    file = tmp_path / "hitl.db"
    file.touch()
    if content == "no tables":
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript("CREATE TABLE t (x); DROP TABLE t;")
    monkeypatch.setattr("hitl.store.engine._is_read_only", lambda _: not writable)
    if writable:
        with Store(f"sqlite:///{file}") as store:
            assert not any(store.counts("p").values())
    else:
        with pytest.raises(StoreError, match="cannot be written: check the permissions"):
            Store(f"sqlite:///{file}")
