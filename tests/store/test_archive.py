"""A store in one file: whole or not at all, taken while others write, put back on either database."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from hitl.errors import BadInput, Busy, HitlError, StoreError
from hitl.store import CycleRecord, Store, archive, schema
from hitl.store.archive import backup, check, restore
from hitl.store.database import Database
from tests.command_line import COMMAND, Run, forked
from tests.scheduled import project
from tests.store.rows import PLAN, consensus, item, page, predicted, said

HUGE = {"text": "ünïcode \u2028 'quotes' \\ " * 3000}


def fill(url: str) -> None:
    """Rows in most tables, with what is hard to carry: text, numbers that are none, nothing, bytes."""
    with Store(url) as store:
        with store.lease("p") as lease:
            rows = [item(f"i{n}", data=HUGE if n == 0 else {"n": n}) for n in range(2500)]
            answers = [said(f"a{n}", f"i{n}", None if n % 7 == 0 else "yes", duration=0.1 * n) for n in range(2500)]
            store.save_page(lease, page(3, *rows, *answers, predicted("i1", "net", yes=1 / 3, no=2 / 3)))
            store.record_cycle(lease, CycleRecord({"q": consensus()}, PLAN, (), {"done": 1, "odd": float("nan")}))
        with store.database.write() as connection:
            row = {"name": "ann", "password": "hash", "created": 1e9 + 1 / 3}
            connection.execute(sa.insert(schema.user).values(row))
            key = {"digest": "d", "name": "ann", "csrf": "c", "created": 1.0, "seen": float("inf")}
            connection.execute(sa.insert(schema.session).values(key))


def content(url: str) -> dict[str, list[str]]:
    """Everything in a store but what a restore is to change."""
    database = Database(url)
    found = {}
    for table in schema.metadata.sorted_tables:
        columns = [one for one in table.c if one.name not in ("owner", "lease_until", "pushing")]
        if table is not schema.session:
            found[table.name] = sorted(repr(tuple(row)) for row in database.rows(sa.select(*columns)))
    database.close()
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def other(request: pytest.FixtureRequest, tmp_path: Path, postgres: str) -> Any:
    """A second, empty database, of either kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/other.db"
        return
    server = sa.create_engine(
        postgres.format("postgres").replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with server.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE IF EXISTS other WITH (FORCE)")
        connection.exec_driver_sql("CREATE DATABASE other")
    yield postgres.format("other")
    server.dispose()


def test_it_comes_back_on_either_database(url: str, other: str, tmp_path: Path) -> None:
    fill(url)
    before = content(url)
    made = backup(url, tmp_path / "b.zip")
    assert stat.S_IMODE((tmp_path / "b.zip").stat().st_mode) == 0o600
    assert made.rows["hitl_item"] == 2500
    assert check(tmp_path / "b.zip") == made
    assert restore(other, tmp_path / "b.zip") == made
    assert content(other) == before == content(url)
    with Store(other) as store:
        assert store.database.rows(sa.select(schema.session)) == [], "nobody is logged in"
        with store.lease("p") as lease:
            assert store.in_doubt(lease), "the platform may have changed since"
            store.save_page(lease, page(4, item("i1", 5)))


def test_it_is_one_moment_while_others_write(url: str, tmp_path: Path) -> None:
    """A page saves an item, its answer and the cursor together; each copy has as many of one as of the other."""
    stop = threading.Event()

    def write() -> None:
        with Store(url) as store, store.lease("p") as lease:
            for n in range(1, 100_000):
                store.save_page(lease, page(n, item(f"i{n}"), said(f"a{n}", f"i{n}")))
                if stop.is_set():
                    return

    Store(url).close()
    writer = threading.Thread(target=write)
    writer.start()
    counts = []
    try:
        for n in range(6):
            counts.append(backup(url, tmp_path / f"{n}.zip").rows["hitl_item"])
            assert writer.is_alive()
    finally:
        stop.set()
        writer.join()
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    for n, count in enumerate(counts):
        restore(f"sqlite:///{tmp_path}/{n}.db", tmp_path / f"{n}.zip")
        with Store(f"sqlite:///{tmp_path}/{n}.db") as store:
            assert store.cursor("p") == ({"page": count} if count else None)
            assert store.counts("p")["items"] == store.annotations("p", "q").num_rows == count
            with store.lease("p"):  # which was held when the copy was taken
                pass


_KILLED = """
import os, signal, sys
from hitl.store import archive
steps = int(sys.argv[4])
def progress(what, done, total):
    global steps
    steps -= 1
    if steps == 0:
        os.kill(os.getpid(), signal.SIGKILL)
from pathlib import Path
from types import SimpleNamespace
getattr(archive, sys.argv[1])(sys.argv[2], Path(sys.argv[3]), force=True, progress=progress)
"""


def killed(what: str, url: str, path: Path, step: int) -> int:
    return subprocess.run([sys.executable, "-c", _KILLED, what, url, str(path), str(step)], check=False).returncode


@pytest.mark.journey
def test_a_backup_that_is_killed_leaves_the_one_before(url: str, tmp_path: Path) -> None:
    fill(url)
    path = tmp_path / "b.zip"
    assert killed("backup", url, path, 2) == -9
    assert not path.exists()
    backup(url, path)
    before = path.read_bytes()
    assert killed("backup", url, path, 4) == -9
    assert path.read_bytes() == before
    check(path)


@pytest.mark.journey
def test_a_restore_that_is_killed_leaves_the_store_as_it_was(url: str, tmp_path: Path) -> None:
    fill(url)
    path, full = tmp_path / "b.zip", f"sqlite:///{tmp_path}/full.db"
    fill(full)
    with Store(full) as store, store.lease("p") as lease:
        store.save_page(lease, page(9, item("later")))
    backup(full, path)
    before = content(url)
    for step in (3, 5):  # the first checks the file
        assert killed("restore", url, path, step) == -9
        assert content(url) == before
    assert killed("restore", url, path, 10_000) == 0
    assert content(url) == content(full)


def test_a_file_that_is_not_whole_changes_nothing(tmp_path: Path) -> None:
    url, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    fill(url)
    backup(url, tmp_path / "b.zip")
    whole = (tmp_path / "b.zip").read_bytes()
    bad = tmp_path / "bad.zip"
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        bad.write_bytes(whole[:length])
        with pytest.raises(BadInput, match=r"bad\.zip: is not a complete backup"):
            restore(target, bad)
    for place in range(1000, len(whole) - 3000, len(whole) // 7):
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(BadInput, match=r"bad\.zip: "):
            restore(target, bad)
    with pytest.raises(BadInput, match="no such file"):
        restore(target, tmp_path / "nothing.zip")
    assert not (tmp_path / "b.db").exists()


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The same archive with another manifest."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(path.with_name("other.zip"), "w") as new:
        for name in old.namelist():
            said = old.read(name)
            if name == archive.MANIFEST:
                manifest = json.loads(said)
                change(manifest)
                said = json.dumps(manifest).encode()
            new.writestr(name, said)
    return path.with_name("other.zip")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda said: said.update(schema="9999"), StoreError, "schema is version 9999; this version of hitl knows"),
        (lambda said: said.pop("schema"), BadInput, "not a backup"),
        (lambda said: said["rows"].update(hitl_more=1), BadInput, "not a backup"),
        (lambda said: said["rows"].update(hitl_item=1), BadInput, "found 2500 rows; expected 1"),
    ],
    ids=["newer", "foreign", "lacking", "rows"],
)
def test_what_it_says_of_itself_must_be_so(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], error: type[HitlError], message: str
) -> None:
    url, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    fill(url)
    backup(url, tmp_path / "b.zip")
    with pytest.raises(error, match=message):
        restore(target, rewritten(tmp_path / "b.zip", change))
    assert all(not rows for rows in content(target).values())


def test_it_replaces_nothing_unless_told_to(url: str, tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with pytest.raises(StoreError, match="nothing to back up"):
        backup(url, path)
    assert list(tmp_path.glob("*")) == [] or "postgres" in url
    fill(url)
    backup(url, path)
    before = content(url)
    with pytest.raises(BadInput, match="exists already"):
        backup(url, path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="a pipe or a socket; expected the name of a file"):
        backup(url, tmp_path / "pipe", force=True)
    assert (tmp_path / "pipe").is_fifo()
    with Store(url) as store, store.lease("p") as lease:
        store.save_page(lease, page(9, item("later")))
        with pytest.raises(Busy, match="project 'p' is held by"):
            restore(url, path, force=True)
    with pytest.raises(BadInput, match="is not empty"):
        restore(url, path)
    assert content(url) != before
    restore(url, path, force=True)
    assert content(url) == before
    with Store(url) as store, store.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    for does in (backup, restore):
        with pytest.raises(StoreError, match="version 9999"):
            does(url, path, force=True)


@pytest.mark.journey
def test_the_commands_while_a_cycle_runs(tmp_path: Path, run: Run) -> None:
    project(tmp_path)
    (tmp_path / "copies").mkdir()
    made = {"from": None, "to": schema.HEAD}
    assert run("migrate", "--json")[:2] == (0, json.dumps({**made, "access": None}) + "\n")
    _, out, _ = run("migrate", "--json", "--access", f"sqlite:///{tmp_path}/access.db")
    assert json.loads(out) == {"from": schema.HEAD, "to": schema.HEAD, "access": made}
    _, out, _ = run("migrate", "--access", f"sqlite:///{tmp_path}/other.db")
    assert out == f"already up to date ({schema.HEAD})\nschema {schema.HEAD}, from nothing\n"
    ended: list[int] = []
    cycle = threading.Thread(target=lambda: ended.append(forked(COMMAND, "run", folder=tmp_path).returncode))
    cycle.start()
    taken = []
    while cycle.is_alive() and len(taken) < 200:
        taken.append(tmp_path / "copies" / f"{len(taken)}.zip")
        code, out, err = run("backup", str(taken[-1]))
        assert (code, err) == (0, ""), err
        assert out.startswith(f"wrote {taken[-1]}: ")
    cycle.join()
    assert ended == [0]
    assert run("backup", "copies")[0] == 0
    assert run("backup", "others/")[0] == 0
    assert [path.suffix for path in (tmp_path / "others").iterdir()] == [".zip"]
    assert "does not exist; create it first" in run("backup", "nowhere/new")[2]
    assert len(list((tmp_path / "copies").glob("hitl-*Z.zip"))) == 1
    expected = (tmp_path / "hitl-output" / "consensus.csv").read_bytes()
    for path in {taken[0], taken[len(taken) // 2], taken[-1]}:
        code, out, _ = run("restore", str(path), "--force")
        assert (code, f"{path}: restored " in out) == (0, True)
        assert run("run")[0] == 0
        assert (tmp_path / "hitl-output" / "consensus.csv").read_bytes() == expected
    before = (tmp_path / "hitl.db").read_bytes()
    assert "is intact; would restore" in run("restore", str(taken[-1]), "--dry-run")[1]
    assert (tmp_path / "hitl.db").read_bytes() == before
    assert os.listdir(tmp_path / "copies")


def test_a_full_disk_names_the_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("annotations.csv").write_text("item,annotator,label\na,ann,x\nb,ann,y\n")
    assert run("init", "annotations.csv")[0] == run("run")[0] == 0
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert run("backup", "b.zip") == (74, "", f"hitl: {Path.cwd() / 'b.zip'}: No space left on device\n")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=3_000_000))
    code, out, _ = run("doctor")
    assert (code, "warn  disk: only 3 MB are free on the disk of" in out) == (0, True)
