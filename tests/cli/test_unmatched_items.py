"""Item names of a second file that match only some of the items: every command says so once, with both counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import Run

MINE = ["i0", "i1", "i2", "i3", "i4"]
THEIRS = ["i0", "i1", "x0", "x1", "x2", "x3"]
LABELS = "item,annotator,label\n" + "".join(f"{item},{who},cat\n" for item in MINE for who in ("ann", "bob"))
LABELS += "i0,cy,dog\n"
P = "item,p_cat,p_dog\n"

DOORS = {
    "models": (P, ",0.9,0.1", '[models]\nnet = "other.csv"\n'),
    "features": ("item,x\n", ",1.5", '[features]\nfile = "other.csv"\n'),
    "graph": ("item,neighbour\n", ",i0", '[graph]\nfile = "other.csv"\n'),
}


def other(door: str, names: list[str]) -> str:
    head, row, _ = DOORS[door]
    return head + "".join(f"{name}{row}\n" for name in names if (door, name) != ("graph", "i0"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "annotations.csv").write_text(LABELS)
    return tmp_path


@pytest.mark.parametrize("door", DOORS)
def test_a_project_says_once_which_items_do_not_match(run: Run, folder: Path, door: str) -> None:
    head = 'name = "p"\nstore = "sqlite:///p.db"\n[source]\nkind = "tables"\npath = "."\n'
    (folder / "hitl.toml").write_text(head + DOORS[door][2])
    (folder / "other.csv").write_text(other(door, THEIRS))
    expected = (
        "other.csv: 2 of its 6 items are among the 5 items of the project, 4 are not, for instance 'x0', 'x1', 'x2'; if"
    )
    for command in ("run", "doctor"):
        err = run(command)[2]
        assert err.count(expected) == 1, (command, err)
        assert "'x3'" not in err
    (folder / "other.csv").write_text(other(door, [*MINE, "x0"]))  # a pool of more items is no mistake
    assert "are not, for instance" not in run("run")[2]


@pytest.mark.parametrize("flag", ["--probabilities", "--truth"])
def test_shards_say_what_whole_tables_say(run: Run, folder: Path, flag: str) -> None:
    rows = "item,label\n" + "".join(f"{n},cat\n" for n in THEIRS) if flag == "--truth" else other("models", THEIRS)
    (folder / "other.csv").write_text(rows)
    given = (flag, "other.csv" if flag == "--truth" else "net=other.csv")
    expected = (
        "other.csv: 2 of its 6 items are among the 5 annotated ones, 4 are not, for instance 'x0', 'x1', 'x2'; if they"
    )
    assert run("combine", "annotations.csv", *given)[2].count(expected) == 1
    code, _, err = run("shard", "annotations.csv", *given, "-o", "shards", "--labels", "2")
    assert code == 0
    assert err.count("2 of its 6 items are among the 5 annotated ones, 4 are not, for instance 'x") == 1
    (folder / "other.csv").write_text(rows.replace("i0", "y0").replace("i1", "y1"))
    code, _, err = run("shard", "annotations.csv", *given, "-o", "none")
    assert (code, (folder / "none").exists()) == (65, False)
    assert "other.csv: none of its 6 items is among the 5 annotated ones" in err


AT = "item,annotator,label,at\n"


@pytest.mark.parametrize(
    ("second", "flags", "message"),
    [
        ("3/1/2026", [], None),  # the first table has shown the order
        ("1/25/2026", [], "b.csv, line 2, column 'at': '1/25/2026' has the month first; expected the day first"),
        ("1/25/2026", ["--day-first"], "expected the day first, as in the rows before or as --day-first says"),
        ("25.3.2026", [], None),
    ],
)
def test_the_parts_of_a_table_have_one_order_of_day_and_month(
    run: Run, folder: Path, second: str, flags: list[str], message: str | None
) -> None:
    first = "5/1/2026" if flags else "25/1/2026"
    (folder / "a.csv").write_text(f"{AT}a,ann,cat,{first}\nb,ann,dog,4/1/2026\n")
    (folder / "b.csv").write_text(f"{AT}a,ann,dog,{second}\n")
    code, _, err = run("shard", "a.csv", "b.csv", "-o", "shards", "--time", "at", *flags)
    assert code == (65 if message else 0), err
    assert (message or "") in err
