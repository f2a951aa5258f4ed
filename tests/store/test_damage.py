"""Damaged SQLite files: a run and the doctor notice them, and say the way back."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import select

from hitl.errors import StoreError
from hitl.store import Store, database
from hitl.store.schema import item
from tests.command_line import Run

PAGE = 4096


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, which has checked nothing."""
    monkeypatch.setattr(database, "_sound", {})


@pytest.fixture
def file(run: Run) -> Path:
    """The store of a project after a run."""
    rows = [f"i{n},{who},{'cat' if n % 2 else 'dog'}" for n in range(300) for who in ("ann", "bob", "cyd")]
    Path("annotations.csv").write_text("\n".join(["item,annotator,label", *rows, ""]))
    assert run("init", "annotations.csv")[0] == 0
    assert run("run")[0] == 0
    assert run("backup", "backup.zip")[0] == 0
    return Path(".hitl/hitl.db")


def damage(file: Path, page: int, how: str) -> None:
    with file.open("r+b") as opened:
        opened.seek(page * PAGE)
        opened.write(bytes(PAGE) if how == "zeros" else os.urandom(PAGE))


@pytest.mark.parametrize("how", ["zeros", "noise"])
def test_damaged_pages_are_noticed(file: Path, tmp_path: Path, how: str) -> None:
    """Except within a value: a page that only continues one."""
    pages, unnoticed = file.stat().st_size // PAGE, []
    for page in range(pages):
        copy = tmp_path / "copy.db"
        shutil.copy(file, copy)
        damage(copy, page, how)
        with suppress(StoreError), Store(f"sqlite:///{copy}") as store:
            database._sound.clear()
            store.database.require_sound()
            unnoticed.append(page)
        for each in tmp_path.glob("copy.db*"):
            each.unlink()
    assert pages > 30
    assert len(unnoticed) <= pages // 8, unnoticed


def test_a_missing_table_is_damage(run: Run, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE hitl_annotation")
    code, _, err = run("status")
    assert (code, "the database is damaged (no such table: hitl_annotation): move it" in err) == (74, True)


def test_the_tables_of_another_commit_are_told_from_damage(run: Run, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("ALTER TABLE hitl_project DROP COLUMN looked_at")
    for command in ("status", "run"):
        code, _, err = run(command)
        assert code == 74
        assert f"{file.absolute()}: its tables are those of another state of hitl (no such column: " in err
        assert "looked_at): move it and its -wal and -shm files away" in err


@pytest.mark.parametrize("is_written", [False, True], ids=["nobody writes", "somebody writes"])
def test_a_store_that_cannot_be_written_is_read(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """While a writer has it open, too: what it has committed is in a second file."""
    with ExitStack() as writer:
        if is_written:
            writer.enter_context(Store(f"sqlite:///{file}")).database.rows(select(item))
        assert Path(f"{file}-wal").exists() == is_written
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
        assert "300 items" in run("status")[1]
        assert "ok    store: 300 items" in run("doctor")[1]
        assert "300 items" in run("backup", "again.zip")[1]
        for words in (["users", "list"], ["export", "labels.csv"], ["report", "--output", "report.html"]):
            assert run(*words)[0] == 0
        code, _, err = run("run", "--again")
        assert (code, "hitl.db: cannot be written: check the permissions" in err) == (74, True)


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_a_command_says_the_way_back_and_it_works(run: Run, file: Path, command: str) -> None:
    labels = Path("labels.csv")
    assert run("export", "labels.csv")[0] == 0
    before = labels.read_text()
    for page in range(8, 20):
        damage(file, page, "noise")
    code, out, err = run(command)
    assert code != 0
    assert "the database is damaged: move it and its -wal and -shm files away, then `hitl restore BACKUP`" in out + err
    for each in file.parent.glob("hitl.db*"):
        each.rename(f"{each}.damaged")
    assert run("restore", "backup.zip")[0] == 0
    assert run("run")[0] == 0
    assert run("export", "labels.csv")[0] == 0
    assert labels.read_text() == before
