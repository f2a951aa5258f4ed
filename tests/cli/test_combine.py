"""`hitl combine` of files: what it prints and writes, where an error is, what a flag means, what spreadsheets write."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import hitl
from hitl.consensus import Consensus
from hitl.models import VBIBCC
from hitl.tables.read import read_table
from tests.command_line import Run

LABELS = [
    (str(n), who, "cat" if (n + (who == "cyd" and n % 3 == 0)) % 2 else "dog")
    for n in range(12)
    for who in ("ann", "bob", "cyd")
]
ANNOTATIONS = "\n".join(["item,annotator,label", *map(",".join, LABELS), ""])
PROBABILITIES = "item,p_cat,p_dog\n" + "".join(
    f"{n},{0.9 if n % 2 else 0.2},{0.1 if n % 2 else 0.8}\n" for n in range(14)
)
NET = ["--probabilities", "net=probs.csv"]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "annotations.csv").write_text(ANNOTATIONS)
    (tmp_path / "probs.csv").write_text(PROBABILITIES)
    (tmp_path / "truth.csv").write_text("item,label\n0,dog\n1,cat\n2,dog\n3,cat\n")
    return tmp_path


@pytest.mark.parametrize("method", [None, "majority", "dawid-skene"])
def test_it_writes_item_label_confidence_and_probabilities(run: Run, tables: Path, method: str | None) -> None:
    flags = ["--method", method] if method else []
    code, out, _ = run("combine", "annotations.csv", *flags, "-o", "consensus.csv", "--annotators-output", "people.csv")
    assert (code, "wrote consensus.csv" in out) == (0, True)
    table = read_table("consensus.csv")
    assert table.column_names == ["item", "label", "confidence", "p_cat", "p_dog"]
    assert table.column("item").to_pylist() == [str(n) for n in range(12)]
    assert table.column("label").to_pylist() == ["dog", "cat"] * 6
    people = read_table("people.csv")
    assert people.column_names == ["annotator", "labels", "accuracy", "low", "high"]
    accuracy = {row["annotator"]: float(row["accuracy"]) for row in people.to_pylist()}
    assert accuracy["cyd"] < accuracy["ann"]


@pytest.mark.parametrize("method", ["pl", "default", "pl-em"])
def test_models_and_truth(run: Run, tables: Path, method: str) -> None:
    flags = [*NET, "--truth", "truth.csv", "--json", "--save", "c.npz", "--method", method]
    code, out, _ = run("combine", "annotations.csv", "--output", "c.jsonl", *flags)
    summary = json.loads(out)
    assert (code, summary["items"]) == (0, 14)  # the model knows two items nobody labeled
    assert summary["temperatures"].keys() == {"net"}
    rows = {row["item"]: row for row in read_table("c.jsonl", ["item"]).to_pylist()}
    assert rows["0"]["confidence"] == 1.0
    assert rows["13"]["label"] == "cat"
    assert Consensus.load("c.npz").fit.method == method


def test_columns_by_flag_anonymous_people_and_more_options_than_classes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("task,said\n1,yes\n1,yes\n1,unsure\n2,no\n")
    flags = ["--item", "task", "--label", "said", "--anonymous", "--classes", "no,yes", "--options", "no,yes,unsure"]
    code, _, err = run("combine", "a.csv", *flags, "--output", "c.csv")
    assert (code, err) == (0, "")
    assert read_table("c.csv").column("label").to_pylist() == ["yes", "no"]


def test_json_can_carry_the_labels(run: Run, tables: Path) -> None:
    assert "consensus" not in json.loads(run("combine", "annotations.csv", "--json")[1])
    rows = json.loads(run("combine", "annotations.csv", "--json", "--labels")[1])["consensus"]
    assert [row["item"] for row in rows] == [str(n) for n in range(12)]
    assert rows[1]["label"] == "cat"
    assert rows[1].keys() == {"item", "label", "confidence", "p_cat", "p_dog"}
    assert run("init", "--tables", "annotations.csv")[0] == 0
    assert run("pull")[0] == 0
    rows = json.loads(run("combine", "--json", "--labels")[1])["consensus"]["label"]
    assert [row["item"] for row in rows] == [str(n) for n in range(12)]


def test_an_output_is_none_of_the_inputs_nor_another_output_nor_a_folder(run: Run, tables: Path) -> None:
    (tables / "folder.csv").mkdir()
    for flags in (
        ["--output", "annotations.csv"],
        ["--output", "truth.csv", "--truth", "truth.csv"],
        ["--annotators-output", "probs.csv", *NET],
        ["--output", "o.csv", "--save", "o.csv"],
        ["--output", "o.csv", "--annotators-output", "o.csv"],
        ["--save", "annotations.csv"],
        ["--output", "o.csv", "--annotators-output", "folder.csv"],
        ["--output", "o.csv", "--annotators-output", "nowhere/p.csv"],
        ["--output", "o.csv", "--save", "nowhere/p.npz"],
    ):
        code, _, err = run("combine", "annotations.csv", *flags)
        assert code != 0
        assert any(words in err for words in ("named twice", "is a folder", "ends in .npz", "does not exist"))
    assert not (tables / "o.csv").exists()
    assert (tables / "annotations.csv").read_text() == ANNOTATIONS


def test_contradictions_warn_and_are_an_error_with_strict(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item,annotator,label\n1,ann,yes\n1,ann,no\n2,ann,yes\n")
    code, _, err = run("combine", "a.csv", "--output", "c.csv")
    assert (code, "warning: 1 label contradicts" in err, "first at a.csv, line 2)" in err) == (0, True, True)
    code, _, err = run("combine", "a.csv", "--strict", "--output", "d.csv")
    assert (code, "expected one answer each" in err) == (65, True)
    assert not Path("d.csv").exists()


# -- errors ------------------------------------------------------------------------------------------------

HEAD = "item,annotator,label\n"
COLUMNS = "Name its columns with --item, --annotator, --label and --time; --anonymous says"
BAD: list[tuple[dict[str, str], list[str], int, str]] = [
    ({"annotations.csv": ""}, [], 65, "the file is empty"),
    ({"annotations.csv": HEAD}, [], 65, "the table is empty"),
    ({"annotations.csv": "task,who,said\n1,ann,x\n"}, [], 65, f"no column 'item'; found task, who, said. {COLUMNS}"),
    ({"annotations.csv": "task,who,said\n1,ann,x\n"}, ["--item", "task"], 65, "column 'who' has no label in common"),
    ({"annotations.csv": "task,who,said\n1,a,x\n"}, ["--item", "task", "--anonymous"], 65, "no column 'label'"),
    ({"annotations.csv": f"{HEAD}1,ann,x\n1,bob\n"}, [], 65, "annotations.csv, line 3: 2 fields; expected 3, as the"),
    ({"annotations.csv": f"{HEAD}1,ann,x,y\n"}, [], 65, "annotations.csv, line 2: 4 fields; expected 3, as the first"),
    ({"annotations.csv": f"{HEAD},ann,x\n1,bob,y\n"}, [], 65, "annotations.csv, line 2: the item is empty"),
    ({"annotations.csv": f"\n{HEAD}\n1,ann,x\n\n,ann,x\n"}, [], 65, "annotations.csv, line 6: the item is empty"),
    (
        {"annotations.csv": f'{HEAD}"a\nb",ann,x\n2,ann,""\n'},
        ["--strict"],
        65,
        "annotations.csv, line 4: the label is empty",
    ),
    ({"annotations.csv": f"{HEAD}1,ann,x\n"}, [], 65, "found 1 class"),
    ({}, ["--classes", "cat,cow"], 65, "label 'dog' is not one of the 2 expected"),
    ({}, ["--classes", "cat,cow", "--options", "cat,dog"], 65, "cow"),
    ({}, ["--classes", "cat,dog,cat"], 78, "'cat' appears twice in cat, dog, cat; expected different names"),
    ({}, ["--options", "cat,dog,unsure"], 78, "--options needs --classes"),
    ({}, ["--method", "magic"], 78, "method 'magic' is unknown"),
    ({}, ["--method", "pl-em"], 65, "needs class probabilities"),
    ({}, ["--method", "pl", *NET], 65, "ground truth"),
    ({}, ["--probabilities", "probs.csv"], 78, "expected MODEL=FILE"),
    ({}, ["--probabilities", "net=missing.csv"], 65, "no such file"),
    ({"probs.csv": "item,p_cat,p_dog\n0,0.5,0.9\n"}, NET, 65, "probs.csv, line 2: item '0' sums to 1.4; expected 1"),
    ({"probs.csv": "item,p_cat,p_dog\n0,nan,0.9\n"}, NET, 65, "not finite"),
    ({"probs.csv": "item,p_cat,p_dog\n0,.5,.5\n1,0.5,\n"}, NET, 65, "probs.csv, line 3: item '1' is not finite"),
    ({"probs.csv": "item,p_cat,p_dog\n0,a,0.9\n"}, NET, 65, "not numeric"),
    ({"probs.csv": "item,p_cat,p_dog\n0,1,0\n0,1,0\n"}, NET, 65, "probs.csv, line 3: item '0' appears twice"),
    ({"probs.csv": "item,p_cat,p_dog\nzz,1,0\n"}, NET, 65, "expected the same item names"),
    ({"probs.csv": "item,cat,dog\n0,1,0\n"}, NET, 65, "no column p_<class>"),
    ({"probs.csv": "item,p_cat,p_cow\n0,1,0\n"}, [*NET, "--classes", "cat,dog"], 65, "probs.csv: columns p_<class>"),
    ({"probs.csv": "id,p_cat\n1,1\n"}, NET, 65, "probs.csv: no column 'item'; found id, p_cat. Name"),
    ({"t.csv": "item,label\n0,dog\n0,dog\n"}, ["--truth", "t.csv"], 65, "t.csv, line 3: item '0' appears twice"),
    (
        {"t.csv": "item,label\n0,\n1,cow\n"},
        ["--truth", "t.csv", "--classes", "cat,dog"],
        65,
        "line 3: item '1' is 'cow'",
    ),
    ({"t.csv": "item,label\nz,cat\n"}, ["--truth", "t.csv"], 65, "t.csv: none of its 1 item"),
    (
        {"t.csv": "id,text,label\nx,y,cat\n"},
        ["--truth", "t.csv"],
        65,
        "t.csv: no column 'item'; found id, text, label. Name",
    ),
    ({}, ["--time", "when"], 65, "no column 'when'"),
    ({}, ["--output", "c.xls"], 65, "c.xls: expected a file name that ends in one of .csv"),
    ({}, ["--output", "c.xlsx"], 65, "c.xlsx: .xlsx is read but not written"),
    ({}, ["--output", "nowhere/c.csv"], 65, "does not exist"),
    ({}, ["--save", "o.csv"], 78, "--save o.csv: expected a name that ends in .npz, for the whole consensus; --output"),
    ({}, ["--labels"], 78, "--labels adds the label of every item to --json"),
]


@pytest.mark.parametrize(("files", "flags", "code", "message"), BAD, ids=[case[3] for case in BAD])
def test_bad_input_is_a_clear_error_and_writes_nothing(
    run: Run, tables: Path, files: dict[str, str], flags: list[str], code: int, message: str
) -> None:
    for name, text in files.items():
        (tables / name).write_text(text)
    before = sorted(path.name for path in tables.iterdir())
    output = [] if "--output" in flags else ["--output", "c.csv"]
    got, out, err = run("combine", "annotations.csv", *flags, *output)
    assert (got, message in err) == (code, True), err
    assert err.startswith("hitl: ")
    assert "Traceback" not in err + out
    assert "('" not in err, "a Python tuple in a sentence"
    assert "',)" not in err
    assert sorted(path.name for path in tables.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b'item\tannotator\tlabel\n5" disk\tann\tx\n2\tann\t\n', "a.tsv, line 3: the label is empty"),
        (
            "a.jsonl",
            b'{"item":1,"annotator":"a","label":"x"}\n\n{"item":2,"annotator":"a"}\n',
            "a.jsonl, line 3: the l",
        ),
        (
            "a.csv.gz",
            gzip.compress(f"{HEAD}1,ann,x\n2,ann,\n".encode(), mtime=0),
            "a.csv.gz, line 3: the label is empty",
        ),
        ("a.csv", b"item,annotator,label\n1,ann,ok\n1,ann,caf\xe9\n", "a.csv, line 3: not UTF-8"),
    ],
)
def test_an_error_names_the_line_in_every_format(
    run: Run, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    code, _, err = run("combine", name, "--strict")
    assert (code, f"hitl: {message}" in err) == (65, True), err


def test_an_error_in_a_parquet_file_names_the_row(run: Run, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"item": ["1", "2"], "annotator": ["a", "b"], "label": ["x", None]}), "a.parquet")
    assert "hitl: a.parquet, row 1: the label is empty" in run("combine", "a.parquet", "--strict")[2]


# -- tables as spreadsheets write them ---------------------------------------------------------------------


def test_an_empty_field_is_empty_with_and_without_quotes(run: Run, tmp_path: Path) -> None:
    rows = [f"{n},,{'cat' if n % 2 else 'dog'}" for n in range(6) for _ in range(3)]
    (tmp_path / "plain.csv").write_text(HEAD + "\n".join(rows) + "\n")
    quoted = ['"' + row.replace(",", '","') + '"' for row in rows]
    (tmp_path / "quoted.csv").write_text(HEAD + "\n".join(quoted) + "\n")
    for name in ("plain", "quoted"):
        assert run("combine", f"{name}.csv", "--output", f"{name}-out.csv")[::2] == (0, "")
    assert Path("plain-out.csv").read_text() == Path("quoted-out.csv").read_text()


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_and_tabs_are_found_in_a_csv_file(run: Run, tables: Path, separator: str) -> None:
    assert run("combine", "annotations.csv", "-o", "expected.csv")[0] == 0
    (tables / "b.csv").write_text("\ufeff" + ANNOTATIONS.replace(",", separator), encoding="utf-8")
    assert run("combine", "b.csv", "-o", "found.csv")[0] == 0
    assert Path("found.csv").read_text() == Path("expected.csv").read_text()


def test_a_separator_within_quotes_is_none(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text('item,"what; he; said"\n1,"a;b"\n')
    assert read_table(tmp_path / "q.csv").column_names == ["item", "what; he; said"]
    (tmp_path / "s.csv").write_text('item;label;"a, b, c, d"\n1;"x;""y""";2,5\n')
    assert read_table(tmp_path / "s.csv").to_pylist() == [{"item": "1", "label": 'x;"y"', "a, b, c, d": "2,5"}]


def test_a_sheet_of_excel_is_read_as_text(run: Run, tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    assert run("combine", "annotations.csv", "-o", "expected.csv")[0] == 0
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
    assert "hitl: a.xlsx, line 39: the label is empty" in run("combine", "a.xlsx", "--strict")[2]
    yes_or_no = openpyxl.Workbook()
    for row in (["item", "annotator", "label"], [1, "ann", True], [2, "ann", False], [2, "bob", False]):
        yes_or_no.active.append(row)
    yes_or_no.save("b.xlsx")
    parquet.write_table(pa.table({"item": ["1", "2"], "label": [True, False]}), "b.parquet")
    assert run("combine", "b.xlsx", "--truth", "b.parquet", "--strict", "-o", "b.csv")[0] == 0
    assert Path("b.csv").read_text().splitlines()[0] == '"item","label","confidence","p_false","p_true"'
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    code, _, err = run("combine", "a.xlsx")
    assert (code, "hitl-toolkit[excel]" in err, "save the sheet as .csv" in err) == (78, True, True)


# -- the settings of a paper -------------------------------------------------------------------------------


def test_it_combines_with_the_settings_of_the_paper(run: Run, tables: Path) -> None:
    code, out, err = run("combine", "annotations.csv", "--method", "vb-ibcc", "--paper", "-o", "found.csv", "--json")
    assert (code, err, json.loads(out)["fit"]["settings"]["shared"]) == (0, "", False)
    found = np.asarray(read_table("found.csv").column("p_cat").cast("float64"))
    columns = dict(zip(("item", "annotator", "label"), map(list, zip(*LABELS, strict=True)), strict=True))
    evidence = hitl.Evidence.from_tables(columns)
    np.testing.assert_allclose(found, VBIBCC.paper().fit(evidence).probabilities[:, 0], atol=1e-6)
    assert np.abs(found - VBIBCC().fit(evidence).probabilities[:, 0]).max() > 1e-3  # the test can tell
    same = hitl.combine(columns, method="vb-ibcc", paper=True, diagonal=3.0)
    assert same.fit.settings == VBIBCC(diagonal=3.0, shared=False, begin="prior").fit(evidence).fit.settings


def test_other_commands_over_files_know_the_paper_too(run: Run, tables: Path) -> None:
    given = ["annotations.csv", "--method", "pl-em", "--paper", *NET]
    code, out, _ = run("combine", *given, "--save", "c.npz", "--json")
    assert (code, json.loads(out)["fit"]["settings"]["refit"]) == (0, True)
    for command in ("models", "annotators"):
        code, out, err = run(command, *given)
        assert (code, "judged by pl-em" in out, err) == (0, True, "")
    code, _, err = run("annotators", "annotations.csv", "--paper", "--consensus", "c.npz")
    assert (code, "--method and --consensus exclude each other" in err) == (78, True)


@pytest.mark.parametrize("method", [[], ["--method", "default"], ["--method", "majority"]])
def test_a_method_without_a_paper_is_refused(run: Run, tables: Path, method: list[str]) -> None:
    code, _, err = run("combine", "annotations.csv", *method, "--paper", "--output", "x.csv")
    name = method[1] if method else "default"
    assert code == 78
    assert f"method '{name}' has no settings of a paper; these have: weighted-majority, vb-ibcc, " in err
    assert "pl, pl-em, bayesian-pl" in err
    assert not Path("x.csv").exists()


@pytest.mark.parametrize(
    ("truth", "told"),
    [
        ("song,genre\na,rock\nc,pop\n", "item from 'song', label from 'genre'"),
        ("genre,song\nrock,a\npop,c\n", "item from 'song', label from 'genre'"),
        ("task,label\na,rock\nc,pop\n", "item from 'task', label from 'label'"),
        ("who,song,genre\nann,a,rock\nann,c,pop\n", "item from 'song', label from 'genre'"),
        ("item,gold\na,rock\nc,pop\n", "item from 'item', label from 'gold'"),
    ],
)
@pytest.mark.parametrize("head", ["task,worker,label", "item,annotator,label"])
def test_other_files_may_name_their_columns_otherwise(run: Run, head: str, truth: str, told: str) -> None:
    """Beside an export of crowd-kit, no name for the column of items fit both files."""
    Path("a.csv").write_text(f"{head}\na,x,rock\na,y,pop\nb,x,pop\nb,y,pop\nc,x,rock\n")
    Path("t.csv").write_text(truth)
    Path("p.csv").write_text("song,p_pop,p_rock\na,0.5,0.5\nb,0.2,0.8\nc,0.2,0.8\n")
    Path("f.csv").write_text("song,x\na,1\nb,2\nc,3\n")
    files = ("--truth", "t.csv", "-p", "m=p.csv", "--features", "f.csv", "--method", "learned")
    code, out, err = run("combine", "a.csv", *files, "--json", "--labels")
    assert code == 0, err
    assert {row["item"]: row["label"] for row in json.loads(out)["consensus"]}.items() >= {
        "a": "rock",
        "c": "pop",
    }.items()
    for line in (f"t.csv: {told}", "p.csv: item from 'song'", "f.csv: item from 'song'"):
        assert line in err


def test_a_column_that_may_be_two_is_asked_for(run: Run) -> None:
    Path("a.csv").write_text("task,worker,label\na,x,rock\nb,x,pop\n")
    Path("t.csv").write_text("song,other,genre\na,b,rock\nb,a,pop\n")
    code, _, err = run("combine", "a.csv", "--truth", "t.csv")
    assert code == 65
    assert "t.csv: no column 'item'; found song, other, genre" in err


OWN = """
import hitl

class Own(hitl.models.MajorityVote):
    def fit(self, evidence, *, start=None):
        found = hitl.models.MajorityVote().fit(evidence)
        return hitl.Consensus(found.items, found.classes, found.probabilities, found.annotators, found.class_shares)
"""


def test_a_method_from_a_file_and_what_made_a_file(run: Run, tables: Path) -> None:
    (tables / "own.py").write_text(OWN)
    code, out, err = run("combine", "annotations.csv", "-m", "own.py:Own", "-o", "c.parquet", "--json")
    assert code == 0, err
    assert json.loads(out)["fit"]["method"] == "Own"
    made = {key.decode(): value.decode() for key, value in parquet.read_schema("c.parquet").metadata.items()}
    assert made["hitl.method"] == "Own"
    assert made["hitl.settings"] == "{}"
    assert run("combine", "annotations.csv", "-m", "own.py:Other")[0] == 78


def test_a_project_takes_a_method_from_a_file_in_its_folder(
    run: Run, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tables / "own.py").write_text(OWN)
    assert run("init", ".", "--name", "p")[0] == 0
    settings = Path("hitl.toml").read_text()
    Path("hitl.toml").write_text(settings.replace('method = "default"', 'method = "own.py:Own"'))
    (tables / "elsewhere").mkdir()
    monkeypatch.chdir(tables / "elsewhere")
    config = ("--config", "../hitl.toml")
    assert run("run", *config)[0] == 0
    assert run("export", "labels.parquet", *config)[0] == 0
    made = parquet.read_schema("labels.parquet").metadata
    assert (made[b"hitl.method"], b"hitl.as_of" in made) == (b"Own", True)
    assert "nothing has changed" in run("run", *config)[1]
    (tables / "own.py").write_text(f"{OWN}\n# another version\n")
    assert "nothing has changed" not in run("run", *config)[1]
