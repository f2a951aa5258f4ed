"""The command line: what it prints and writes, and what bad input does to it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from hitl.cli.app import app
from hitl.consensus import Consensus
from hitl.tables.files import read_table
from tests.command_line import Run

ANNOTATIONS = "item,annotator,label\n" + "".join(
    f"{n},{who},{'cat' if (n + (who == 'cyd' and n % 3 == 0)) % 2 else 'dog'}\n"
    for n in range(12)
    for who in ("ann", "bob", "cyd")
)
PROBABILITIES = "item,p_cat,p_dog\n" + "".join(
    f"{n},{0.9 if n % 2 else 0.2},{0.1 if n % 2 else 0.8}\n" for n in range(14)
)
TRUTH = "item,label\n0,dog\n1,cat\n2,dog\n3,cat\n"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "annotations.csv").write_text(ANNOTATIONS)
    (tmp_path / "probs.csv").write_text(PROBABILITIES)
    (tmp_path / "truth.csv").write_text(TRUTH)
    return tmp_path


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [None, "majority", "dawid-skene"])
def test_combine_writes_item_label_confidence_and_probabilities(run: Run, tables: Path, method: str | None) -> None:
    flags = ["--method", method] if method else []
    flags += ["--output", "consensus.csv", "--annotators-output", "people.csv"]
    code, out, _ = run("combine", "annotations.csv", *flags)
    assert code == 0
    assert "wrote consensus.csv" in out
    table = read_table("consensus.csv")
    assert table.column_names == ["item", "label", "confidence", "p_cat", "p_dog"]
    assert table.column("item").to_pylist() == [str(n) for n in range(12)]
    assert table.column("label").to_pylist() == ["dog", "cat"] * 6
    people = read_table("people.csv")
    assert people.column_names == ["annotator", "labels", "accuracy", "low", "high"]
    accuracy = dict(
        zip(people.column("annotator").to_pylist(), map(float, people.column("accuracy").to_pylist()), strict=True)
    )
    assert accuracy["cyd"] < accuracy["ann"]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "csv.gz"])
def test_combine_writes_every_format(run: Run, tables: Path, ending: str) -> None:
    assert run("combine", "annotations.csv", "--output", f"c.{ending}")[0] == 0
    assert read_table(f"c.{ending}", ["item"]).num_rows == 12


def test_combine_with_models_and_truth(run: Run, tables: Path) -> None:
    flags = ["--probabilities", "net=probs.csv", "--truth", "truth.csv", "--json", "--save", "c.npz"]
    for method in ("pl", "default", "pl-em"):
        code, out, _ = run("combine", "annotations.csv", "--method", method, "--output", "c.jsonl", *flags)
        assert code == 0
        summary = json.loads(out)
        assert summary["items"] == 14  # the model knows two items nobody labeled
        assert summary["temperatures"].keys() == {"net"}
        rows = {row["item"]: row for row in read_table("c.jsonl", ["item"]).to_pylist()}
        assert rows["0"]["confidence"] == 1.0
        assert rows["13"]["label"] == "cat"
    assert Consensus.load("c.npz").fit.method == "pl-em"


def test_columns_by_flag_anonymous_people_and_more_options_than_classes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("task,said\n1,yes\n1,yes\n1,unsure\n2,no\n")
    flags = ["--item", "task", "--label", "said", "--anonymous", "--classes", "no,yes", "--options", "no,yes,unsure"]
    code, _, err = run("combine", "a.csv", *flags, "--output", "c.csv")
    assert (code, err) == (0, "")
    assert read_table("c.csv").column("label").to_pylist() == ["yes", "no"]


def test_an_empty_field_is_empty_with_and_without_quotes(run: Run, tmp_path: Path) -> None:
    rows = [f"{n},,{'cat' if n % 2 else 'dog'}" for n in range(6) for _ in range(3)]
    (tmp_path / "plain.csv").write_text("item,annotator,label\n" + "\n".join(rows) + "\n")
    quoted = ['"' + row.replace(",", '","') + '"' for row in rows]
    (tmp_path / "quoted.csv").write_text("item,annotator,label\n" + "\n".join(quoted) + "\n")
    found = []
    for name in ("plain", "quoted"):
        code, _, err = run("combine", f"{name}.csv", "--output", f"{name}-out.csv")
        assert (code, err) == (0, "")
        found.append((tmp_path / f"{name}-out.csv").read_text())
    assert found[0] == found[1]
    (tmp_path / "label.csv").write_text('item,annotator,label\n1,ann,""\n2,ann,cat\n')
    assert "label.csv, line 2: the label is empty" in run("combine", "label.csv")[2]


def test_an_output_is_none_of_the_inputs_nor_another_output_nor_a_folder(run: Run, tables: Path) -> None:
    (tables / "folder.csv").mkdir()
    for flags in (
        ["--output", "annotations.csv"],
        ["--output", "truth.csv", "--truth", "truth.csv"],
        ["--annotators-output", "probs.csv", "--probabilities", "net=probs.csv"],
        ["--output", "o.csv", "--save", "o.csv"],
        ["--save", "annotations.csv"],
        ["--output", "o.csv", "--annotators-output", "folder.csv"],
    ):
        code, _, err = run("combine", "annotations.csv", *flags)
        assert code != 0
        assert "named twice" in err or "is a folder" in err or "ends in .npz" in err
    assert not (tables / "o.csv").exists()
    assert (tables / "annotations.csv").read_text() == ANNOTATIONS


def test_contradictions_warn_and_are_an_error_with_strict(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item,annotator,label\n1,ann,yes\n1,ann,no\n2,ann,yes\n")
    code, _, err = run("combine", "a.csv", "--output", "c.csv")
    assert code == 0
    assert "warning: 1 label contradicts" in err
    code, _, err = run("combine", "a.csv", "--strict", "--output", "d.csv")
    assert code == 65
    assert "expected one answer each" in err
    assert not Path("d.csv").exists()


BAD_FILES = [
    ({"annotations.csv": ""}, [], 65, "the file is empty"),
    ({"annotations.csv": "item,annotator,label\n"}, [], 65, "the table is empty"),
    ({"annotations.csv": "item,who,label\n1,ann,x\n"}, [], 65, "no column 'annotator'"),
    ({"annotations.csv": "item,annotator,label\n1,ann,x\n1,bob\n"}, [], 65, "line 3: 2 fields; expected 3"),
    ({"annotations.csv": "item,annotator,label\n,ann,x\n1,bob,y\n"}, [], 65, "line 2: the item is empty"),
    ({"annotations.csv": "item,annotator,label\n1,ann,\n1,bob,y\n"}, [], 65, "line 2: the label is empty"),
    ({"annotations.csv": "item,annotator,label\n1,ann,x\n"}, [], 65, "found 1 class"),
    ({}, ["--classes", "cat,cow"], 65, "label 'dog' is not one of the 2 expected"),
    ({}, ["--method", "magic"], 78, "method 'magic' is unknown"),
    ({}, ["--method", "pl-em"], 65, "needs class probabilities"),
    ({}, ["--method", "pl", "--probabilities", "net=probs.csv"], 65, "known truth"),
    ({}, ["--probabilities", "probs.csv"], 78, "expected MODEL=FILE"),
    ({}, ["--probabilities", "net=missing.csv"], 65, "no such file"),
    (
        {"probs.csv": "item,p_cat,p_dog\n0,0.5,0.9\n"},
        ["--probabilities", "net=probs.csv"],
        65,
        "sums to 1.4; expected 1",
    ),
    ({"probs.csv": "item,p_cat,p_dog\n0,nan,0.9\n"}, ["--probabilities", "net=probs.csv"], 65, "not finite"),
    ({"probs.csv": "item,p_cat,p_dog\n0,a,0.9\n"}, ["--probabilities", "net=probs.csv"], 65, "not numeric"),
    ({"probs.csv": "item,p_cat,p_dog\n0,1,0\n0,1,0\n"}, ["--probabilities", "net=probs.csv"], 65, "appears twice"),
    (
        {"probs.csv": "item,p_cat,p_dog\nzz,1,0\n"},
        ["--probabilities", "net=probs.csv"],
        65,
        "expected the same item names",
    ),
    ({"probs.csv": "item,cat,dog\n0,1,0\n"}, ["--probabilities", "net=probs.csv"], 65, "no column p_<class>"),
    ({"truth.csv": "item,label\n0,cow\n"}, ["--truth", "truth.csv", "--classes", "cat,dog"], 65, "item '0' is 'cow'"),
    ({}, ["--time", "when"], 65, "no column 'when'"),
    ({}, ["--output", "c.xls"], 65, "unknown table format"),
    ({}, ["--output", "nowhere/c.csv"], 65, "does not exist"),
]


@pytest.mark.parametrize(("files", "flags", "code", "message"), BAD_FILES, ids=[case[3] for case in BAD_FILES])
def test_bad_input_to_combine_is_a_clear_error_and_writes_nothing(
    run: Run, tables: Path, files: dict[str, str], flags: list[str], code: int, message: str
) -> None:
    for name, text in files.items():
        (tables / name).write_text(text)
    before = sorted(path.name for path in tables.iterdir())
    output = [] if "--output" in flags else ["--output", "c.csv"]
    got, out, err = run("combine", "annotations.csv", *flags, *output)
    assert got == code
    assert message in err
    assert err.startswith("hitl: ")
    assert "Traceback" not in err + out
    assert sorted(path.name for path in tables.iterdir()) == before


# -- projects ----------------------------------------------------------------------------------------------


@pytest.fixture
def project(run: Run, tables: Path) -> Path:
    (tables / "probs.csv").rename(tables / "probabilities_net.csv")
    assert run("init", "--tables", ".", "--name", "pets", "--annotators", "ann,bob,cyd,dee")[0] == 0
    return tables


def test_a_project_from_init_to_export(run: Run, project: Path) -> None:
    code, out, err = run("doctor")
    assert (code, err) == (0, "")
    assert "ok    annotations: 36 labels on 12 items" in out
    code, out, _ = run("run")
    assert code == 0
    assert "pulled 14 items" in out
    code, out, _ = run("status", "--json")
    status = json.loads(out)
    assert status["stored"]["items"] == 14
    assert status["cycles"] == 1
    assert status["pending"] == 0
    assert run("export", "labels.csv", "--annotators-output", "people.csv", "--annotations", "raw.csv")[0] == 0
    assert (read_table("labels.csv").num_rows, read_table("raw.csv").num_rows) == (14, 36)
    assert run("report", "--output", "report.html")[0] == 0
    assert "<html" in Path("report.html").read_text()
    order = read_table("hitl-output/order.csv").column("item").to_pylist()
    assert set(order) <= {str(n) for n in range(14)}
    assert order


def test_the_same_run_twice_changes_nothing_the_second_time(run: Run, project: Path) -> None:
    assert run("run")[0] == 0
    written = project / "hitl-output"
    before = {path: path.read_bytes() for path in written.rglob("*") if path.is_file()}
    code, out, _ = run("run", "--json")
    report = json.loads(out)
    assert code == 0
    assert (report["changed"], report["operations"], report["pulled"]["changed"]) == (0, 0, 0)
    assert {path: path.read_bytes() for path in written.rglob("*") if path.is_file()} == before


def test_steps_one_by_one_do_what_run_does(run: Run, project: Path) -> None:
    assert run("pull")[0] == 0
    assert run("combine", "--output", "c.csv")[0] == 0
    code, out, _ = run("plan", "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["plan"]["asks"]
    assert "nothing to push" in run("push", "--dry-run")[1]
    assert run("plan", "--output", "asks.csv")[0] == 0
    assert "would push order of the items (" in run("push", "--dry-run")[1]
    assert not (project / "hitl-output").exists()
    assert "order" in run("push")[1]
    asked = list(dict.fromkeys(read_table("asks.csv").column("item").to_pylist()))
    assert read_table("hitl-output/order.csv").column("item").to_pylist() == asked
    pushed = read_table("hitl-output/consensus.csv")
    combined = {row["item"]: float(row["confidence"]) for row in read_table("c.csv").to_pylist()}
    assert all(np.isclose(float(row["confidence"]), combined[row["item"]], atol=1e-6) for row in pushed.to_pylist())


def test_a_dry_run_writes_nothing(run: Run, project: Path) -> None:
    assert run("pull")[0] == 0
    code, out, _ = run("run", "--dry-run")
    assert code == 0
    assert "dry run" in out
    assert not (project / "hitl-output").exists()
    assert json.loads(run("status", "--json")[1])["cycles"] == 0


def test_new_items_and_gold_reach_the_platform(run: Run, project: Path) -> None:
    (project / "new.csv").write_text("item,text\n99,hello\n")
    (project / "known.csv").write_text("item,label\n5,cat\n")
    assert run("run")[0] == 0
    assert run("add", "new.csv", "--dry-run")[1].startswith("would push items of new.csv (")
    assert run("add", "new.csv")[0] == 0
    assert run("gold", "known.csv")[0] == 0
    assert run("run")[0] == 0
    labels = {row["item"]: row for row in read_table("hitl-output/consensus.csv").to_pylist()}
    assert float(labels["5"]["confidence"]) == 1.0
    assert json.loads(run("status", "--json")[1])["stored"]["items"] == 15


BAD_PROJECTS = [
    (["run"], None, 78, "no such file; make one with `hitl init`"),
    (["run"], "name = ", 78, "not valid TOML"),
    (["run"], 'name = "x"\n', 78, "source: field required"),
    (["run"], 'name = "x"\n[source]\nkind = "excel"\n', 78, "source.kind"),
    (["run"], 'name = "x"\n[source]\nkind = "tables"\n', 78, "source.path: field required"),
    (["run"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n[budget]\nmin_labels = -1\n', 78, "min_labels"),
    (["run"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n[budgets]\nopen_questions = 1\n', 78, "budgets"),
    (
        ["run"],
        'name = "x"\nlabel_studio_token = "secret"\n[source]\nkind = "tables"\n',
        78,
        "does not belong in a file",
    ),
    (["run"], 'name = "x"\n[source]\nkind = "label-studio"\nproject = 1\n', 78, "HITL_LABEL_STUDIO_TOKEN is not set"),
    (["run"], 'name = "x"\nstore = "mysql://x"\n[source]\nkind = "tables"\npath = "."\n', 74, "mysql"),
    (["plan"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n', 65, "no items stored; run `hitl pull` first"),
    (["combine"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n', 65, "no items stored"),
    (["report"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n', 65, "no items stored"),
    (["export", "o.csv"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n', 78, "no cycle yet"),
    (["pull"], 'name = "x"\n[source]\nkind = "tables"\npath = "nowhere"\n', 65, "no such file or folder"),
    (["run"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n[combine]\nmethod = "magic"\n', 78, "magic"),
    (["add", "nothing.csv"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n', 65, "nothing.csv: no such file"),
    (
        ["gold", "truth.csv"],
        'name = "x"\n[source]\nkind = "tables"\npath = "annotations.csv"\nclasses = ["a", "b"]\n',
        65,
        "not one of",
    ),
]


@pytest.mark.parametrize(("command", "settings", "code", "message"), BAD_PROJECTS, ids=[c[3] for c in BAD_PROJECTS])
def test_a_bad_project_is_a_clear_error_and_writes_no_output(
    run: Run, tables: Path, command: list[str], settings: str | None, code: int, message: str
) -> None:
    if settings is not None:
        (tables / "hitl.toml").write_text(settings)
    got, out, err = run(*command)
    assert (got, message in err) == (code, True), err
    assert "Traceback" not in err + out
    assert "secret" not in err + out
    assert not (tables / "hitl-output").exists()
    assert not (tables / "hitl-report.html").exists()


@pytest.mark.parametrize(
    "command",
    [
        "doctor",
        "pull",
        "combine",
        "plan",
        "push",
        "run",
        "status",
        "export o.csv",
        "report",
        "annotators",
        "add truth.csv",
        "gold truth.csv",
    ],
)
def test_every_command_of_a_project_needs_one(run: Run, tables: Path, command: str) -> None:
    code, out, err = run(*command.split())
    assert code == 78
    assert "hitl.toml: no such file; make one with `hitl init`" in out + err


@pytest.mark.parametrize("command", ["demo --output nowhere/report.html", "report --output nowhere/report.html"])
def test_a_report_needs_a_folder_and_says_so_before_the_work(run: Run, project: Path, command: str) -> None:
    assert run("pull")[0] == 0
    code, out, err = run(*command.split())
    assert (code, out) == (65, "")
    assert "the folder nowhere does not exist" in err


def test_a_report_is_not_half_written(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("run")[0] == 0
    (project / "report.html").write_text("before")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    code, _, err = run("report", "--output", "report.html")
    assert (code, "disk full" in err) == (74, True)
    assert (project / "report.html").read_text() == "before"
    assert [path.name for path in project.iterdir() if path.name.startswith(".report")] == []


def test_init_refuses_to_overwrite_and_to_guess(run: Run, project: Path) -> None:
    assert run("init", "--tables", ".")[0] == 78
    code, _, err = run("init", "--config", "other.toml")
    assert (code, "--label-studio is missing" in err) == (78, True)
    assert run("init", "--config", "b.toml", "--tables", "nowhere")[0] == 78
    assert run("init", "--config", "c.toml", "--tables", ".", "--label-studio", "http://localhost")[0] == 78
    assert not any(Path(name).exists() for name in ("other.toml", "b.toml", "c.toml"))


def test_the_environment_wins_over_the_file(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_BUDGET__OPEN_QUESTIONS", "1")
    assert run("pull")[0] == 0
    assert len(json.loads(run("plan", "--dry-run", "--json")[1])["plan"]["asks"]) == 1


def test_doctor_fails_with_what_to_do(run: Run, tables: Path) -> None:
    code, out, _ = run("doctor")
    assert code == 78
    assert "hitl init" in out
    (tables / "hitl.toml").write_text('name = "x"\n[source]\nkind = "tables"\npath = "truth.csv"\nlabel = "said"\n')
    code, out, _ = run("doctor", "--json")
    assert code == 1
    assert not json.loads(out)["ok"]


def test_every_command_has_help_with_an_example(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    commands = [entry.name or entry.callback.__name__ for entry in app.registered_commands if entry.callback]
    assert len(commands) == 27
    for command in commands:
        assert command in out
        code, text, _ = run(command, "--help")
        assert code == 0
        assert "Example" in text


def test_unknown_flags_are_a_usage_error(run: Run) -> None:
    assert run("combine", "--nonsense")[0] == 2
    assert run("nonsense")[0] == 2


# -- what newcomers broke ----------------------------------------------------------------------------------


def test_what_a_file_says_now_wins_whatever_its_times(run: Run, tmp_path: Path) -> None:
    """A corrected answer with an older time, in a file with an older date, is the answer."""
    labels = "item,annotator,label,at\na,x,cat,2024-01-02\nb,y,{},{}\n"
    (tmp_path / "annotations.csv").write_text(labels.format("dog", "2024-01-02"))
    (tmp_path / "hitl.toml").write_text('name = "t"\n[source]\nkind = "tables"\npath = "."\ntime = "at"\n')
    assert run("run")[0] == 0
    (tmp_path / "annotations.csv").write_text(labels.format("cat", "2024-01-01"))
    (tmp_path / "truth.csv").write_text("item,label\nc,dog\n")
    os.utime(tmp_path / "annotations.csv", (1_600_000_000, 1_600_000_000))
    assert run("run")[0] == 0
    consensus = {row["item"]: row["label"] for row in read_table("hitl-output/consensus.csv").to_pylist()}
    assert consensus == {"a": "cat", "b": "cat", "c": "dog"}


def test_items_added_earlier_keep_their_columns(run: Run, project: Path) -> None:
    (project / "one.csv").write_text("item,text,n\nq1,hi,1\nq2,ho,2\n")
    (project / "two.csv").write_text("item,other\nq1,zz\nq3,yy\n")
    assert run("add", "one.csv")[0] == 0
    assert run("add", "two.csv")[0] == 0
    rows = {row["item"]: row for row in read_table("hitl-output/added_items.jsonl").to_pylist()}
    assert (rows["q2"]["text"], rows["q2"]["n"], rows["q3"]["other"]) == ("ho", "2", "yy")


def test_output_that_somebody_deleted_is_restored_by_verify(run: Run, project: Path) -> None:
    assert run("run")[0] == 0
    whole = Path("hitl-output/consensus.csv").read_bytes()
    Path("hitl-output/consensus.csv").unlink()
    assert "as planned" in run("push")[1]
    assert "consensus" in run("push", "--verify")[1]
    assert Path("hitl-output/consensus.csv").read_bytes() == whole


def test_bad_rows_of_a_project_are_left_out_and_named(run: Run, project: Path) -> None:
    (project / "probabilities_net.csv").write_text("item,p_cat,p_dog\n0,,\n1,x,y\n2,0.9,0.9\n3,0.9,0.1\n4,0.9,\n")
    code, _, err = run("run")
    assert code == 0
    assert err.count("no distribution over the classes; left out") == 3  # the empty row 0 is a silence
    assert "probabilities_net.csv, line 3: no distribution" in run("doctor")[1]
    (project / "truth.csv").write_text("item,label\n,cat\n")
    code, _, err = run("run")
    assert (code, "truth.csv, line 2: the item is empty" in err) == (65, True)


def test_flags_of_a_file_are_refused_in_a_project_and_outputs_must_differ(run: Run, project: Path) -> None:
    assert run("pull")[0] == 0
    code, _, err = run("combine", "--method", "majority", "--classes", "a,b")
    assert (code, "--method, --classes needs an annotations file" in err) == (78, True)
    assert run("combine", "annotations.csv", "--output", "x.csv", "--annotators-output", "x.csv")[0] == 65
    assert run("combine", "annotations.csv", "--output", "x.csv", "--annotators-output", "nowhere/p.csv")[0] == 65
    assert run("combine", "annotations.csv", "--output", "x.csv", "--save", "nowhere/p.npz")[0] == 65
    assert run("combine", "annotations.csv", "--options", "cat,dog,unsure")[0] == 78
    assert not Path("x.csv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("accuracy = 1.0", "accuracy is 1.0"),
        ("acuracy = 0.8", "no setting"),
        ('accuracy = "a"', "accuracy is 'a'"),
    ],
)
def test_impossible_settings_of_a_combiner_fail_in_doctor_and_run(
    run: Run, project: Path, options: str, message: str
) -> None:
    with (project / "hitl.toml").open("a") as file:
        file.write(f"[combine.options]\n{options}\n")
    code, out, _ = run("doctor")
    assert (code, message in out) == (78, True)
    code, _, err = run("run")
    assert (code, message in err) == (78, True)


def test_the_prior_of_the_temperature_can_be_set_in_the_file(run: Run, project: Path) -> None:
    text = (project / "hitl.toml").read_text().replace('method = "default"', 'method = "pl-em"')
    (project / "hitl.toml").write_text(text + "[combine.options]\ntemperature = {mean = 0.0, sd = 0.1}\n")
    assert run("run")[0] == 0
    (project / "hitl.toml").write_text(text + "[combine.options]\ntemperature = {mean = 0.0, sd = 0}\n")
    code, _, err = run("run")
    assert (code, "temperature.sd is 0" in err) == (78, True)


def test_a_duration_that_is_no_number_is_unknown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "annotations.csv").write_text("item,annotator,label,duration\n1,a,x,soon\n2,a,y,3.5\n")
    assert run("init", "--tables", ".")[0] == 0
    assert run("run")[0] == 0


def test_a_mistyped_store_is_an_error_not_an_empty_project(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HITL_STORE", f"sqlite:///{project}/nowhere/hitl.db")
    assert run("status")[0] == 74
    assert not (project / "nowhere").exists()
