"""What names may do to a terminal (nothing), and who may read the files that hold secrets."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from hitl.cli import show
from hitl.connectors.tables import Tables
from hitl.errors import BadSettings, Refused
from hitl.formatting import plain
from hitl.platform import Check, Page
from hitl.settings import new_settings
from hitl.settings.environment import secret
from hitl.store import Store
from tests.command_line import Run
from tests.scheduled import project

HOSTILE = (
    "\x1b[31mred",
    "\x1b]8;;http://x\x07link",
    "\x9b2J",
    "\x9d0;title\x9c",
    "\r\roverwritten",
    "\x07",
    "a\u202eb",
    "\u2066x\u2069",
    "\x7f",
    "\ud800",
)
MARKUP = ("[bold]b[/bold]", "[link=http://x]y[/link]", "[/]", "\\[red]")


@given(st.text(st.characters(), max_size=50))
def test_nothing_that_moves_a_cursor_is_left(text: str) -> None:
    shown = plain(text)
    assert not any(sign in shown for sign in "\x1b\x9b\x9d\r\x07\x08\x7f\u202e\u2066")
    assert plain(shown) == shown
    shown.encode()


def test_a_name_is_shown_as_text_wherever_it_comes_from(capfd: pytest.CaptureFixture[str]) -> None:
    for name in (*HOSTILE, *MARKUP):
        show.line(name)
        show.error(name)
        show.warning(name)
        show.result({"name": name}, (), as_json=True)
        cell = name.replace("\ud800", "")  # Arrow keeps valid text alone
        tables = (
            show.frame(name, pd.DataFrame({cell: [cell], "n": [1]})),
            show.Table(name, [name], [[Text(name)]], [name]),
        )
        show.result({}, tables, as_json=False)
        out, err = capfd.readouterr()
        for text in (out, err):
            assert not any(sign in text for sign in "\x1b\x9b\x9d\r\x07\x7f\u202e\u2066")
        if name in MARKUP:
            assert out.count(name) >= 4  # line, title, header and cell
    assert out


def test_json_says_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    for name in HOSTILE:
        show.result({"name": name}, (), as_json=True)
        assert json.loads(capfd.readouterr().out) == {"name": name}


IMAGES = ("docker://r:1.0@sha256:aa", "docker://r:2.0@sha256:aa", "http://u:s3cret@host/a.png")
"""Ids of items, which say what they say."""


def test_json_has_the_ids_as_they_are(tmp_path: Path, run: Run) -> None:
    rows = [(item, who, "xy"[n % 2]) for n, item in enumerate(IMAGES) for who in ("ann", "bob")]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "annotations.csv", index=False)
    found = json.loads(run("combine", "annotations.csv", "--json", "--labels")[1])["consensus"]
    assert [row["item"] for row in found] == list(IMAGES)
    assert run("init", "--tables", ".", "--name", "p")[0] == 0
    assert run("run")[0] == 0
    found = json.loads(run("combine", "--json", "--labels")[1])["consensus"]
    assert [row["item"] for rows in found.values() for row in rows] == list(IMAGES)
    planned = json.loads(run("plan", "--dry-run", "--json")[1])["plan"]
    assert {ask["item"] for ask in planned["asks"]} <= {*IMAGES}


def test_what_json_says_in_words_has_no_passwords(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that names an address, wherever it comes from: a check, the pull, the last failure."""
    secret, shown = "it is at postgresql://u:s3cret@h/d", "it is at postgresql://u:***@h/d"
    project(tmp_path)
    assert run("run")[0] == 0
    monkeypatch.setattr(Tables, "check", lambda self: [Check("there", False, secret, secret)])
    monkeypatch.setattr(Tables, "pull", lambda self, cursor: iter([Page({}, problems=(secret,), partial=True)]))
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store, store.lease("p") as lease:
        store.note_failure(lease, Refused(secret))
    for words in (("status",), ("run", "--again"), ("status",), ("doctor",), ("pull",)):
        _, out, err = run(*words, "--json")
        assert "s3cret" not in out + err, words
        assert shown in out, words
        json.loads(out)


def test_commands_over_hostile_names_print_no_escapes(tmp_path: Path, run: Run) -> None:
    table = pd.DataFrame(
        [(f"i{n}", who, f"{label}") for n in range(4) for who, label in zip(HOSTILE[:4], (*MARKUP, "x"), strict=False)],
        columns=["item", "annotator", "label"],
    )
    table.to_csv(tmp_path / "a.csv", index=False)
    for words in (("combine", "a.csv"), ("annotators", "a.csv"), ("combine", "\x1b[31mnone.csv")):
        _, out, err = run(*words)
        assert "\x1b" not in out + err
        assert "\x9b" not in out + err


def test_passwords_in_addresses_are_stars() -> None:
    assert plain("at postgresql://u:p@ss/w0rd@host/db now") == "at postgresql://u:***@host/db now"
    assert plain("http://u:s3cret@host:80/a") == "http://u:***@host:80/a"
    assert plain("http://host:8080/a@b") == "http://host:8080/a@b"
    assert plain("a: b@c") == "a: b@c"


def test_what_we_make_is_for_its_owner(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with Store(f"sqlite:///{tmp_path}/hitl.db") as store, store.lease("p"):
            rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert set(rights) >= {"hitl.db", "hitl.db-wal", "hitl.db-shm"}
        assert set(rights.values()) == {0o600}
        for name, store_at, mode in (("a", "sqlite:///x.db", 0o644), ("b", "postgresql://u:pw@h/d", 0o600)):
            new_settings.write(tmp_path / name, "p", {"kind": "tables", "path": "."}, store_at, [])
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    finally:
        os.umask(before)


def test_a_secret_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "HITL_X").write_text("s3cret\n")
    assert secret("HITL_X") is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert secret("HITL_X") == "s3cret"
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    monkeypatch.setenv("HITL_X_FILE", str(tmp_path / "HITL_X"))
    assert secret("HITL_X") == "s3cret"
    monkeypatch.setenv("HITL_X", "other")
    with pytest.raises(BadSettings, match="HITL_X and HITL_X_FILE are both set"):
        secret("HITL_X")
    monkeypatch.delenv("HITL_X")
    for wrong, why in ((b"", "empty"), (b"\xff", "too large or not a text")):
        (tmp_path / "HITL_X").write_bytes(wrong)
        with pytest.raises(BadSettings, match=why):
            secret("HITL_X")
    monkeypatch.setenv("HITL_X_FILE", str(tmp_path / "none"))
    with pytest.raises(BadSettings, match="No such file"):
        secret("HITL_X")


def test_the_webhook_secret_and_the_store_may_be_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hitl.project import load

    config = project(tmp_path)
    for name, text in (("WEBHOOK_SECRET", "s3cret"), ("STORE", "postgresql://u:pw@h/d")):
        (tmp_path / name).write_text(f"{text}\n")
        monkeypatch.setenv(f"HITL_{name}_FILE", str(tmp_path / name))
    found = load(config)
    assert found.webhook_secret is not None
    assert (found.webhook_secret.get_secret_value(), found.store) == ("s3cret", "postgresql://u:pw@h/d")
