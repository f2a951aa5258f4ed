"""What teams ran into in their first week at the command line: where an error is, what to do, what a flag means."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from hitl.consensus import Consensus
from hitl.tables.files import read_table
from tests.command_line import Run

ROWS = [f"{n},{who},{'cat' if n % 2 else 'dog'}" for n in range(6) for who in ("ann", "bob")]
ANNOTATIONS = "\n".join(["item,annotator,label", *ROWS]) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text(ANNOTATIONS)
    return path


# -- where an error is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "item,annotator,label\n1,ann,x\n2,ann,\n", "a.csv, line 3: the label is empty"),
        ("a.csv", "\nitem,annotator,label\n\n1,ann,x\n\n,ann,x\n", "a.csv, line 6: the item is empty"),
        ("a.csv", 'item,annotator,label\n"a\nb",ann,x\n2,ann,""\n', "a.csv, line 4: the label is empty"),
        ("a.tsv", 'item\tannotator\tlabel\n5" disk\tann\tx\n2\tann\t\n', "a.tsv, line 3: the label is empty"),
        ("a.jsonl", '{"item":1,"annotator":"a","label":"x"}\n\n{"item":2,"annotator":"a"}\n', "a.jsonl, line 3: the l"),
        ("a.csv", "item,annotator,label\n1,ann,x\n1,bob\n", "a.csv, line 3: 2 fields; expected 3, as the first"),
        ("a.csv", "item,annotator,label\n1,ann,x,y\n", "a.csv, line 2: 4 fields; expected 3, as the first line has"),
    ],
)
def test_an_error_names_the_file_and_the_line(run: Run, tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    code, _, err = run("combine", name)
    assert (code, f"hitl: {message}" in err) == (65, True), err


def test_an_error_names_the_line_in_a_packed_file_and_the_row_elsewhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"item,annotator,label\n1,ann,x\n2,ann,\n"))
    assert "hitl: a.csv.gz, line 3: the label is empty" in run("combine", "a.csv.gz")[2]
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"item": ["1", "2"], "annotator": ["a", "b"], "label": ["x", None]}), "a.parquet")
    assert "hitl: a.parquet, row 1: the label is empty" in run("combine", "a.parquet")[2]


def test_other_errors_of_a_file_name_it_and_the_line(run: Run, file: Path) -> None:
    cases = (
        ("p.csv", "item,p_cat,p_dog\n0,0.5,0.5\n1,0.5,0.9\n", ["-p", "net=p.csv"], "p.csv, line 3: item '1' sums"),
        ("p.csv", "item,p_cat,p_dog\n0,0.5,0.5\n1,0.5,\n", ["-p", "net=p.csv"], "p.csv, line 3: item '1' is not fin"),
        ("p.csv", "item,p_cat\n0,1\n0,1\n", ["-p", "net=p.csv"], "p.csv, line 3: item '0' appears twice"),
        ("p.csv", "item,p_cat,p_cow\n0,1,0\n", ["-p", "net=p.csv", "--classes", "cat,dog"], "p.csv: columns p_<class>"),
        ("t.csv", "item,label\n0,dog\n0,dog\n", ["--truth", "t.csv"], "t.csv, line 3: item '0' appears twice"),
        ("t.csv", "item,label\n0,\n1,cow\n", ["--truth", "t.csv", "--classes", "cat,dog"], "t.csv, line 3: item '1"),
        ("t.csv", "item,label\nz,cat\n", ["--truth", "t.csv"], "t.csv: none of its 1 items"),
        ("t.csv", "id,label\n1,cat\n", ["--truth", "t.csv"], "t.csv: no column 'item'; found id, label. Name"),
        ("p.csv", "id,p_cat\n1,1\n", ["-p", "net=p.csv"], "p.csv: no column 'item'; found id, p_cat. Name"),
    )
    for name, text, flags, message in cases:
        (file.parent / name).write_text(text)
        code, _, err = run("combine", "a.csv", *flags)
        assert (code, f"hitl: {message}" in err) == (65, True), err


def test_a_contradiction_names_the_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item,annotator,label\n1,ann,yes\n1,ann,no\n2,ann,yes\n")
    assert "first at a.csv, line 2)" in run("combine", "a.csv")[2]


def test_missing_columns_name_the_flags(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("task,who,said\n1,ann,x\n")
    for flags, column in (
        ([], "item"),
        (["--item", "task"], "annotator"),
        (["--item", "task", "--anonymous"], "label"),
    ):
        code, _, err = run("combine", "a.csv", *flags)
        assert code == 65
        assert f"a.csv: no column {column!r}; found task, who, said" in err
        assert all(flag in err for flag in ("--item", "--annotator", "--label", "--anonymous"))


def test_no_python_tuple_is_in_a_sentence(run: Run, file: Path) -> None:
    (file.parent / "one.csv").write_text("item,annotator,label\n1,ann,x\n")
    (file.parent / "t.csv").write_text("item,label\n1,cow\n")
    (file.parent / "p.csv").write_text("item,p_cow\n1,1\n")
    cases = (
        ["one.csv"],
        ["a.csv", "--classes", "cat,cow", "--options", "cat,dog"],
        ["a.csv", "--classes", "cat,dog", "--truth", "t.csv"],
        ["a.csv", "--classes", "cat,dog", "-p", "net=p.csv"],
        ["a.csv", "--classes", "cat,cow"],
    )
    for flags in cases:
        code, _, err = run("combine", *flags)
        assert code == 65
        assert not {"('", "['", "',)"} & {err[n : n + 2] for n in range(len(err))} | {"',)"} & {err[-4:-1]}, err


# -- tables as spreadsheets write them --------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_and_tabs_are_found_in_a_csv_file(run: Run, file: Path, separator: str) -> None:
    assert run("combine", "a.csv", "-o", "expected.csv")[0] == 0
    file.write_text("\ufeff" + ANNOTATIONS.replace(",", separator), encoding="utf-8")
    assert run("combine", "a.csv", "-o", "found.csv")[0] == 0
    assert Path("found.csv").read_text() == Path("expected.csv").read_text()


def test_a_separator_within_quotes_is_none(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text('item,"what; he; said"\n1,"a;b"\n')
    assert read_table(tmp_path / "q.csv").column_names == ["item", "what; he; said"]
    (tmp_path / "s.csv").write_text('item;label;"a, b, c, d"\n1;"x;""y""";2,5\n')
    assert read_table(tmp_path / "s.csv").to_pylist() == [{"item": "1", "label": 'x;"y"', "a, b, c, d": "2,5"}]


def test_a_file_that_is_not_utf_8_says_how_to_save_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"item,annotator,label\n1,ann,ok\n1,ann,caf\xe9\n")
    code, _, err = run("combine", "a.csv")
    assert (code, "a.csv, line 3: not UTF-8" in err, "CSV UTF-8" in err) == (65, True, True)


def test_a_sheet_of_excel_is_read_as_text(run: Run, file: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    assert run("combine", "a.csv", "-o", "expected.csv")[0] == 0
    book = openpyxl.Workbook()
    for line in ANNOTATIONS.splitlines():
        item, *others = line.split(",")
        book.active.append([int(item) if item.isdigit() else item, *others, None])
    book.active.append([None, None, None])
    book.save("a.xlsx")
    assert run("combine", "a.xlsx", "-o", "found.csv")[0] == 0
    assert Path("found.csv").read_text() == Path("expected.csv").read_text()
    book.active.append(["9", "ann", None])
    book.save("a.xlsx")
    assert "hitl: a.xlsx, line 15: the label is empty" in run("combine", "a.xlsx")[2]


def test_excel_is_not_written_and_what_is_no_workbook_is_refused(run: Run, file: Path) -> None:
    code, _, err = run("combine", "a.csv", "-o", "c.xlsx")
    assert (code, "c.xlsx: .xlsx is read but not written" in err) == (65, True)
    (file.parent / "b.xlsx").write_text(ANNOTATIONS)
    code, _, err = run("combine", "b.xlsx")
    assert (code, "b.xlsx: cannot be read as xlsx" in err) == (65, True)
    code, _, err = run("combine", "b.xls")
    assert code == 65
    (file.parent / "b.xls").write_text(ANNOTATIONS)
    assert "save it as .xlsx or .csv" in run("combine", "b.xls")[2]


def test_without_its_library_excel_says_what_to_install(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (file.parent / "b.xlsx").write_text(ANNOTATIONS)
    code, _, err = run("combine", "b.xlsx")
    assert (code, "hitl-toolkit[excel]" in err, "save the sheet as .csv" in err) == (78, True, True)


# -- flags ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["combine", "annotators", "models"])
def test_a_command_without_a_file_and_outside_a_project_asks_for_one(run: Run, command: str) -> None:
    code, _, err = run(command)
    assert code == 78
    assert f"hitl {command} annotations.csv" in err
    assert "hitl init" in err


def test_a_consensus_is_saved_as_npz_only(run: Run, file: Path) -> None:
    code, _, err = run("combine", "a.csv", "--save", "o.csv")
    assert (code, "--save o.csv: expected a name that ends in .npz" in err, "--output" in err) == (78, True, True)
    assert not Path("o.csv").exists()
    assert run("combine", "a.csv", "--save", "o.npz")[0] == 0
    assert Consensus.load("o.npz").items == tuple(str(n) for n in range(6))


def test_json_can_carry_the_labels(run: Run, file: Path) -> None:
    assert "consensus" not in json.loads(run("combine", "a.csv", "--json")[1])
    found = json.loads(run("combine", "a.csv", "--json", "--labels")[1])["consensus"]
    assert [row["item"] for row in found] == [str(n) for n in range(6)]
    assert found[1]["label"] == "cat"
    assert found[1].keys() == {"item", "label", "confidence", "p_cat", "p_dog"}
    code, _, err = run("combine", "a.csv", "--labels")
    assert (code, "--labels" in err, "--json" in err) == (78, True, True)
    assert run("init", "--tables", "a.csv")[0] == 0
    assert run("pull")[0] == 0
    found = json.loads(run("combine", "--json", "--labels")[1])["consensus"]["label"]
    assert [row["item"] for row in found] == [str(n) for n in range(6)]
