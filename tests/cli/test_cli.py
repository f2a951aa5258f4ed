"""Projects on the command line: from `hitl init` to `hitl export`, and what bad input does to them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import hitl
from hitl.cli.app import app
from hitl.models import VBIBCC
from hitl.tables.read import read_table
from tests.cli.test_combine import LABELS, tables
from tests.command_line import Run

__all__ = ["tables"]


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
    (["run"], 'name = "x"\nstore = "mysql://x"\n[source]\nkind = "tables"\npath = "."\n', 78, "mysql"),
    (["plan"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n', 65, "no items stored; run `hitl pull` first"),
    (["combine"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n', 65, "no items stored"),
    (["report"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n', 65, "no items stored"),
    (["export", "o.csv"], 'name = "x"\n[source]\nkind = "tables"\npath = "."\n', 78, "no run yet"),
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
        "models",
        "add truth.csv",
        "gold truth.csv",
    ],
)
def test_every_command_of_a_project_needs_one(run: Run, tables: Path, command: str) -> None:
    code, out, err = run(*command.split())
    assert code == 78
    assert "hitl.toml: no such file; make one with `hitl init`" in out + err
    if command in ("combine", "annotators", "models", "report"):
        assert f"hitl {command} annotations.csv" in err


@pytest.mark.parametrize("command", ["demo --output nowhere/report.html", "report --output nowhere/report.html"])
def test_a_report_needs_a_folder_and_says_so_before_the_work(run: Run, project: Path, command: str) -> None:
    assert run("pull")[0] == 0
    code, out, err = run(*command.split())
    assert (code, out) == (65, "")
    assert "the folder nowhere does not exist" in err


def test_doctor_fails_with_what_to_do(run: Run, tables: Path) -> None:
    code, out, _ = run("doctor")
    assert code == 78
    assert re.match("FAIL  settings: .*hitl init", out)
    (tables / "hitl.toml").write_text('name = "x"\n[source]\nkind = "tables"\npath = "truth.csv"\nlabel = "said"\n')
    code, out, _ = run("doctor", "--json")
    assert code == 1
    assert not json.loads(out)["ok"]


def test_every_command_has_help_with_an_example(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    commands = [entry.name or entry.callback.__name__ for entry in app.registered_commands if entry.callback]
    assert len(commands) > 20
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
    assert "up to date with the plan" in run("push")[1]
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


def test_flags_of_files_are_refused_in_a_project(run: Run, project: Path) -> None:
    for flags in (["--method", "majority", "--classes", "a,b"], ["--paper"]):
        code, _, err = run("combine", *flags)
        names = ", ".join(flag for flag in flags if flag.startswith("--"))
        words = f"{names} needs an annotations file; a project is combined as its hitl.toml says"
        assert (code, words in err) == (78, True)


# -- the settings of a paper -------------------------------------------------------------------------------

COLUMNS = dict(zip(("item", "annotator", "label"), map(list, zip(*LABELS, strict=True)), strict=True))


def change(project: Path, **keys: str) -> None:
    for name in ("probabilities_net.csv", "truth.csv"):  # labels alone
        (project / name).unlink()
    text = (project / "hitl.toml").read_text()
    old = 'method = "default"'
    assert old in text
    lines = [f"{key} = {value}" for key, value in ({"method": '"default"'} | keys).items()]
    (project / "hitl.toml").write_text(text.replace(old, "\n".join(lines)))


def test_a_project_combines_as_the_paper_has_it(run: Run, project: Path) -> None:
    change(project, method='"vb-ibcc"', paper="true")
    code, out, _ = run("doctor")
    assert (code, "ok    combiner: vb-ibcc, with the settings of its paper" in out) == (0, True)
    assert run("run")[0] == 0
    assert run("combine", "--output", "found.csv")[0] == 0
    table = read_table("found.csv")
    found = np.asarray(table.column("p_cat").cast("float64"))
    expected = VBIBCC.paper().fit(hitl.Evidence.from_tables(COLUMNS))
    order = [expected.items.index(item) for item in table.column("item").to_pylist()]
    np.testing.assert_allclose(found, expected.probabilities[order, 0], atol=1e-6)


def test_options_of_ones_own_stand(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_COMBINE__PAPER", "true")
    change(project, method='"vb-ibcc"', options="{ diagonal = 3.0, off = 0.5 }")
    assert run("run")[0] == 0
    assert run("combine", "--output", "found.csv")[0] == 0
    table = read_table("found.csv")
    method = VBIBCC(diagonal=3.0, off=0.5, shared=False, begin="prior")
    expected = method.fit(hitl.Evidence.from_tables(COLUMNS))
    order = [expected.items.index(item) for item in table.column("item").to_pylist()]
    found = np.asarray(table.column("p_cat").cast("float64"))
    np.testing.assert_allclose(found, expected.probabilities[order, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"options": "{ accuracy = 1.0 }"}, "accuracy is 1.0"),
        ({"options": "{ acuracy = 0.8 }"}, "no setting"),
        ({"options": '{ accuracy = "a" }'}, "accuracy is 'a'"),
        ({"paper": "true"}, "method 'default' has no settings of a paper; these have: weighted-majority"),
        ({"method": '"vb-ibcc"', "paper": '"yes, please"'}, "combine.paper: input should be a valid boolean"),
        ({"method": '"vb-ibcc"', "papers": "true"}, "combine.papers: no such key; did you mean 'paper'?"),
        ({"method": '"vb-ibcc"', "paper": "true", "options": "{ diag = 1 }"}, "method 'vb-ibcc' has no setting 'diag'"),
    ],
)
def test_mistakes_are_named_by_doctor_and_run(run: Run, project: Path, keys: dict[str, str], message: str) -> None:
    change(project, **keys)
    code, out, err = run("doctor")
    assert (code, message in out + err) == (78, True)
    code, _, err = run("run")
    assert (code, message in err) == (78, True)
