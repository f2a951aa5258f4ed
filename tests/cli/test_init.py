"""`hitl init`: what it finds in tables and what it refuses; for Label Studio see test_command_line there."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tests.command_line import Run

ROWS = "t1,ann,cat\nt1,bob,cat\nt2,ann,dog\nt2,bob,dog\n"


def source() -> dict[str, object]:
    return dict(tomllib.loads(Path("hitl.toml").read_text())["source"])


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("item,annotator,label", {}),
        ("task,worker,label", {"item": "task", "annotator": "worker"}),
        ("Task ID,Worker-ID,Answer", {"item": "Task ID", "annotator": "Worker-ID", "label": "Answer"}),
        ("id,rater,class", {"item": "id", "annotator": "rater", "label": "class"}),
    ],
)
@pytest.mark.parametrize("where", ["answers.csv", "here"])
def test_the_columns_are_found_in_the_header(run: Run, header: str, columns: dict[str, str], where: str) -> None:
    Path("here").mkdir()
    file = Path("answers.csv" if where == "answers.csv" else "here/annotations.csv")
    file.write_text(f"{header}\n{ROWS}")
    code, out, err = run("init", where)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "next: `hitl doctor`, then `hitl run`"
    assert source() == {"kind": "tables", "path": where, **columns}
    assert run("run")[0] == 0
    assert run("export", "labels.csv")[0] == 0
    assert '"t2","dog"' in Path("labels.csv").read_text()


def test_a_header_in_doubt_names_the_flag_and_the_columns(run: Run) -> None:
    Path("a.csv").write_text(f"picture,worker,said\n{ROWS}")
    code, _, err = run("init", "a.csv")
    assert (code, "hitl init a.csv --item picture --annotator worker --label said" in err) == (78, True)
    assert run("init", "a.csv", "--item", "picture", "--label", "sayd")[0] == 78
    assert not Path("hitl.toml").exists()
    code, _, _ = run("init", "a.csv", "--item", "picture", "--label", "said")
    assert (code, source()["annotator"]) == (0, "worker")
    assert run("run")[0] == 0


def test_labels_without_annotators_and_items_without_labels(run: Run) -> None:
    Path("a.csv").write_text("item,label\n1,cat\n2,dog\n")
    code, out, _ = run("init", "a.csv", "--config", "a.toml")
    assert (code, "no column of annotators" in out, "`hitl run --config a.toml`" in out) == (0, True, True)
    Path("new").mkdir()
    Path("new/items.csv").write_text("id,text\n1,hello\n")
    assert run("init", "new")[0] == 0
    assert source() == {"kind": "tables", "path": "new", "item": "id"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--label-studio or --tables is missing"),
        ("nowhere", "no file or folder here, and no address"),
        ("nowhere.csv", "no file or folder here, and no address"),
        ("--tables nowhere", "no such file or folder"),
        ("empty", "neither annotations.* nor items.*"),
        ("picture.png", "unknown table format"),
        ("a.csv --control topic", "--control is for Label Studio"),
        ("http://127.0.0.1:9/projects/1 --item id", "--item is for tables"),
        ("--tables a.csv --label-studio http://localhost", "expected one source"),
        ("a.csv --config nowhere/hitl.toml", "the folder nowhere does not exist"),
        ("http://127.0.0.1:9/projects/1 --project 2", "the address is of project 1, and --project says 2"),
        ("http://127.0.0.1:9/projects/1", "HITL_LABEL_STUDIO_TOKEN is not set; take the access token from"),
        ("http://[::1/projects/1", "expected the address"),
        ("http://ann:secret@127.0.0.1:9/projects/1", "holds a name or a password"),
        ("ftp://127.0.0.1/projects/1", "expected the address"),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_is_written(run: Run, arguments: str, message: str) -> None:
    Path("a.csv").write_text(f"item,annotator,label\n{ROWS}")
    Path("empty").mkdir()
    Path("picture.png").write_bytes(b"\x89PNG")
    code, out, err = run("init", *arguments.split())
    assert (code in (65, 78), out, message in err, "secret" in err) == (True, "", True, False), err
    assert not Path("hitl.toml").exists()


def test_a_missing_extra_is_said_before_a_token_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "label_studio_sdk", None)
    code, _, err = run("init", "http://127.0.0.1:9/projects/1")
    assert (code, "pip install 'hitl-toolkit[label-studio]'" in err, "TOKEN" in err) == (78, True, False), err


def test_nothing_is_overwritten(run: Run) -> None:
    Path("a.csv").write_text(f"item,annotator,label\n{ROWS}")
    for place in (Path("hitl.toml"), Path("linked.toml")):
        if place.name == "linked.toml":
            place.symlink_to("elsewhere.toml")
        else:
            place.write_text("mine")
        assert run("init", "a.csv", "--config", str(place))[0] == 78
    assert Path("hitl.toml").read_text() == "mine"
    assert not Path("elsewhere.toml").exists()
