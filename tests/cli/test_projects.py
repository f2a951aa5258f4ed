"""Projects on the command line: what newcomers did to them, and what they were told."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from hitl.cli.app import app
from hitl.store import Store
from hitl.tables.read import read_table
from tests.command_line import Run

ROWS = [f"{n},{who},{('cat', 'dog')[n % 2]}" for n in range(6) for who in ("ann", "bob")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label", *ROWS]) + "\n")
    (tmp_path / "items.csv").write_text("item\n0\n7\n")
    (tmp_path / "hitl.toml").write_text('name = "p"\nstore = "sqlite:///p.db"\n[source]\nkind = "tables"\npath = "."\n')
    return tmp_path


def counts(folder: Path) -> dict[str, int]:
    with Store(f"sqlite:///{folder}/p.db") as store:
        return store.counts("p")


def test_annotations_that_vanish_are_no_deletion(run: Run, project: Path) -> None:
    """A table that was read and is gone stops the cycle, and nothing is deleted, until a full pull says so."""
    assert run("run")[0] == 0
    before = counts(project)
    assert before["annotations"] == 12
    moved = (project / "annotations.csv").rename(project / "elsewhere.csv")
    for command in ("pull", "run"):
        code, out, err = run(command)
        assert (code, out) == (65, "")
        assert "annotations.* is gone, which an earlier pull has read; nothing was deleted" in err
        assert "hitl pull --full --accept-deletions" in err
    assert counts(project) == before
    moved.rename(project / "annotations.csv")
    assert run("run")[0] == 0
    (project / "annotations.csv").unlink()
    assert run("pull", "--full")[0] == 0
    assert counts(project) == before
    assert run("pull", "--full", "--accept-deletions")[0] == 0
    assert counts(project)["annotations"] == 0


def test_gold_of_an_item_that_is_not_there_is_refused(run: Run, project: Path) -> None:
    (project / "known.csv").write_text("item,label\n3,dog\n33,dog\n")
    expected = "known.csv: item '33' is not in the project, nothing was sent"
    code, out, err = run("gold", "known.csv")  # nothing was pulled yet
    assert (code, out) == (65, "")
    assert expected in err
    assert expected in run("gold", "known.csv", "--dry-run")[2]
    assert not (project / "hitl-output").exists()
    assert counts(project)["items"] == 7
    (project / "items.csv").write_text("item\n33\n")  # new since the pull
    assert run("gold", "known.csv")[0] == 0
    assert (project / "hitl-output" / "gold.csv").exists()


def test_init_writes_the_path_as_hitl_toml_reads_it(run: Run, tmp_path: Path) -> None:
    pets = tmp_path / "pets"
    pets.mkdir()
    (pets / "annotations.csv").write_text("\n".join(["item,annotator,label", *ROWS]) + "\n")
    for config in ("pets/hitl.toml", "hitl.toml", "pets/../other.toml"):
        assert run("init", "--tables", "pets", "--config", config)[0] == 0
        code, out, _ = run("doctor", "--config", config, "--json")
        assert (code, json.loads(out)["ok"]) == (0, True), out
    assert run("init", "--tables", str(pets), "--config", "pets/whole.toml")[0] == 0
    assert f'path = "{pets}"' in (pets / "whole.toml").read_text()


def test_doctor_says_which_skill_nobody_has(run: Run, project: Path) -> None:
    config = project / "hitl.toml"
    plain = config.read_text()

    def said(needs: str, skills: str) -> tuple[int, str]:
        crew = f'[crew]\nannotators = ["ann", "bob"]\nskill_field = "{needs}"\nskills = {{ bob = ["{skills}"] }}\n'
        config.write_text(plain + crew)
        code, out, _ = run("doctor")
        return code, out

    (project / "items.csv").write_text("item,lang\n0,de\n7,fr\n")
    assert "skills" not in said("lang", "fr")[1]  # nothing was pulled yet
    assert run("pull")[0] == 0
    code, out = said("lang", "fr")
    assert code == 1
    assert (
        "FAIL  skills: no annotator has the skills that 1 item needs: 'de' (1) (the crew has 'fr'; `crew.skills`)"
        in out
    )
    assert "FAIL  skills: no item has the field 'language'" in said("language", "fr")[1]
    (project / "items.csv").write_text("item,lang\n7,fr\n")
    assert run("pull", "--full")[0] == 0
    assert "ok    skills: needed by 1 item; the crew has them" in said("lang", "fr")[1]


def test_limits_of_somebody_who_is_not_asked_are_refused(run: Run, project: Path) -> None:
    with (project / "hitl.toml").open("a") as file:
        file.write('[crew]\nannotators = ["ann"]\ncapacities = { "Dr. Anm" = 3 }\n')
    code, _, err = run("run")
    assert (code, "'Dr. Anm' is not in crew.annotators; fix the name, or add it there" in err) == (78, True)


def test_doctor_names_who_has_not_answered_yet(run: Run, project: Path) -> None:
    assert run("pull")[0] == 0
    with (project / "hitl.toml").open("a") as file:
        file.write('[crew]\nannotators = ["Ann", "bob"]\n')
    code, out, _ = run("doctor")
    assert (code, "ok    crew: 2 named; no answer yet by 'Ann'; did you mean 'ann'?\n" in out) == (0, True)


def test_doctor_says_what_a_project_of_tables_reads(run: Run, project: Path) -> None:
    (project / "annotations.csv").unlink()
    (project / "items.csv").unlink()
    code, out, _ = run("doctor")
    assert code == 1
    assert "source.path (relative to hitl.toml) names a folder with annotations.csv" in out


def test_examples_are_lines_that_can_be_pasted(run: Run) -> None:
    """One a line, each a command of ours that the shell takes as it stands."""
    for entry in app.registered_commands:
        assert entry.callback is not None
        head, *lines = (entry.epilog or "").split("\n\n")
        assert head in ("Example:", "Examples:")
        for line in lines:
            plain = line.removeprefix("[bold]").removesuffix("[/bold]")
            words = shlex.split(plain, comments=True)
            assert words[:2] == ["hitl", entry.name or entry.callback.__name__]
            assert not set("|()[]") & set(plain)
    text = run("combine", "--help")[1]
    shown = [line.strip() for line in text.splitlines()]
    assert "hitl combine annotations.csv --output consensus.csv" in shown
    assert "hitl combine  # inside a project" in shown or "hitl combine # inside a project" in shown


def test_an_export_of_tables_says_what_labels_rest_on_and_reads_back(run: Run, project: Path) -> None:
    (project / "truth.csv").write_text("item,label\n0,cat\n")
    assert run("run")[0] == 0
    assert run("export", "labels.csv", "--annotations", "raw.csv")[0] == 0
    labels = read_table("labels.csv")
    assert labels.column_names == ["item", "label", "confidence", "p_cat", "p_dog", "labels", "done", "why", "source"]
    source = dict(zip(labels["item"].to_pylist(), labels["source"].to_pylist(), strict=True))
    assert (source["0"], source["1"], source["7"]) == ("ground truth", "annotators", "nobody")
    assert all(time.endswith("Z") for time in read_table("raw.csv")["time"].to_pylist())
    assert run("combine", "raw.csv", "--time", "time", "--truth", "labels.csv")[0] == 0
    assert run("export", "labels.csv", "--asked", "asked.csv")[0] == 0
    asked = read_table("asked.csv")
    names = ["item", "cycle", "annotator", "probability", "check", "audit", "done", "consensus", "time"]
    assert asked.column_names == names
    assert set(asked["probability"].to_pylist()) == {"1"}
    assert all(time.endswith("Z") for time in asked["time"].to_pylist())


def test_an_item_is_added_once(run: Run, project: Path) -> None:
    """The last row won, and the other was lost without a word."""
    (project / "new.csv").write_text("item,text\nn1,one\nn2,two\nn1,other\n")
    code, _, error = run("add", "new.csv")
    assert (code, "new.csv, line 4: 'n1' appears twice with different data; expected one row per item" in error) == (
        78,
        True,
    )
    (project / "new.csv").write_text("item,text\nn1,one\nn2,two\nn1,one\n")
    assert run("add", "new.csv")[0] == 0


def test_a_path_that_is_not_there_is_said_and_no_other_place(run: Run, project: Path) -> None:
    assert run("run")[0] == 0
    toml = (project / "hitl.toml").read_text()
    (project / "hitl.toml").write_text(toml.replace('path = "."', 'path = "mistyped"'))
    code, _, error = run("run")
    assert code != 0
    assert "source.path: " in error
    assert "mistyped is no file or folder" in error
    assert "another name" not in error


def test_a_project_restored_into_another_folder_goes_on_there(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As operations.md says, although the old folder is still there."""
    assert run("run")[0] == 0
    assert run("backup", "backup.zip")[0] == 0
    copy = project / "copy"
    copy.mkdir()
    for name in ("hitl.toml", "annotations.csv", "items.csv", "backup.zip"):
        shutil.copy(project / name, copy / name)
    monkeypatch.chdir(copy)
    assert run("restore", "backup.zip")[0] == 0
    with (copy / "annotations.csv").open("a") as file:
        file.write("new,ann,cat\n")
    assert run("run")[0] == 0
    assert counts(copy) == {**counts(project), "items": 8, "annotations": 13, "labels": 13}


def test_a_project_is_the_same_by_whatever_path_it_is_named(run: Run, project: Path) -> None:
    """What is learned, and what stands, went by the path as it was written."""
    (project / "features.csv").write_text("item,x\n" + "".join(f"{n},{n % 2}\n" for n in range(8)))
    with (project / "hitl.toml").open("a") as file:
        file.write('[features]\nfile = "features.csv"\n')
    assert run("run")[0] == 0
    full = str(project / "hitl.toml")
    assert "nothing has changed" in run("run", "--config", full)[1]
    assert "nothing has changed" in run("run")[1]
    assert "FAIL" not in run("doctor", "--config", full)[1]
    assert "FAIL" not in run("doctor")[1]


def test_a_doctor_before_the_first_pull_finds_nothing_wrong(run: Run, project: Path) -> None:
    (project / "features.csv").write_text("item,x\n0,1\n7,2\n")
    with (project / "hitl.toml").open("a") as file:
        file.write('[features]\nfile = "features.csv"\n[models]\nnet = "net.csv"\n')
    (project / "net.csv").write_text("item,p_cat,p_dog\n0,0.5,0.5\n")
    code, out, _ = run("doctor")
    assert (code, "FAIL" in out) == (0, False), out


def test_a_label_that_source_classes_lacks_is_named_with_its_line_and_stops_no_run(run: Run, project: Path) -> None:
    """Also where so many rows go that none is deleted at once, so that the label stays stored."""
    rows = [f"{n},{who},{3 + (n + shift) % 3}" for n in range(20) for shift, who in enumerate(("ann", "bob", "cyd"))]
    (project / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    config = project / "hitl.toml"
    plain = config.read_text()
    assert run("run")[0] == 0
    config.write_text(f'{plain}classes = ["3", "5"]\n')
    for _ in range(2):
        code, _, err = run("run")
        assert code == 0, err
    assert counts(project)["annotations"] == 60
    config.write_text(f'{plain}classes = ["3", "5", "3"]\n')
    code, _, err = run("run")
    assert (code, "source.classes: '3' appears twice in 3, 5, 3; expected different names" in err) == (78, True)
    config.write_text(f'{plain}classes = ["3", "5"]\n')
    code, _, err = run("run", "--accept-deletions")
    named = "annotations.csv, line 3: '4' is left out: add it to source.classes or correct the label"
    assert (code, named in err) == (0, True), err


def test_what_items_without_fields_lack_is_said_and_a_warning_comes_once(run: Run, tmp_path: Path) -> None:
    rows = [(n, "ab"[n % 2]) for n in range(24)]
    said = "".join(f"{n},{who},{label}\n" for n, label in rows for who in ("ann", "bob"))
    (tmp_path / "annotations.csv").write_text("item,annotator,label\n" + said)
    (tmp_path / "truth.csv").write_text("item,label\n" + "".join(f"{n},{label}\n" for n, label in rows))
    (tmp_path / "probabilities_net.csv").write_text("item,p_a,p_b\n" + "".join(f"{n},0.5,0.5\n" for n, _ in rows))
    source = 'name = "p"\n[source]\nkind = "tables"\npath = "."\n'
    (tmp_path / "hitl.toml").write_text(f'{source}[combine]\nmethod = "glad"\n')
    code, _, err = run("run")
    assert (code, err.count("glad ignores the probabilities of 'net'")) == (0, 1)
    (tmp_path / "hitl.toml").write_text(f'{source}[features]\ntext = "text"\n')
    code, _, err = run("run")
    assert (code, "no item has the field 'text'; the items have no fields; expected some, such as" in err) == (78, True)
