"""What a command writes: over no file that is read, and one file a question."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hitl.cli.evidence import files_for
from hitl.tables.read import read_table
from hitl.tables.write import write_table
from tests.bench.honesty.soft_labels import simulated
from tests.command_line import COMMAND, Run


def test_every_question_has_a_file_of_its_own_with_a_name_that_can_be(tmp_path: Path) -> None:
    names = ("age=<18", "age=>18", "C#", "C+", "a b", "a/b", "🐈", "🐕", "..", "x" * 300, "x" * 301, "ü" * 150)
    files = files_for(tmp_path / "labels.csv.gz", names).values()
    for file in files:
        file.touch()
    assert {*tmp_path.iterdir()} == {*files}
    assert len({*files}) == len(names)
    plain = files_for(Path("labels.csv.gz"), ("topics=art", "mood-2_é"))
    assert [file.name for file in plain.values()] == ["labels.topics=art.csv.gz", "labels.mood-2_é.csv.gz"]
    assert files_for(Path("labels.csv"), ["C#"]) == {"C#": Path("labels.csv")}
    assert files_for(None, names) == {}


EVEN = """
import numpy as np

class Even:
    classes_ = np.array(["cat", "dog"])
    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose tables are in a folder of their own, and which has been run."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [f"{n},{who},{('cat', 'dog')[n % 2]}" for n in range(6) for who in ("ann", "bob")]
    (folder / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    (folder / "items.jsonl").write_text("".join(f'{{"item": "{n}", "photo": "{n}.png"}}\n' for n in range(8)))
    probabilities = "item,p_cat,p_dog\n" + "".join(f"{n},{n % 2},{1 - n % 2}\n" for n in range(8))
    for path in (folder / "probabilities_net.csv", tmp_path / "net.csv"):
        path.write_text(probabilities)
    (tmp_path / "hitl.toml").write_text(
        'name = "p"\nstore = "sqlite:///p.db"\n[source]\nkind = "tables"\npath = "data"\n[models]\nother = "net.csv"\n'
    )
    return tmp_path


def test_a_project_says_each_file_that_it_has_written(run: Run, project: Path) -> None:
    assert run("run")[0] == 0
    files = ("labels.csv", "people.csv", "raw.csv", "asked.csv")
    flags = ("--annotators-output", "people.csv", "--annotations", "raw.csv", "--asked", "asked.csv")
    _, out, _ = run("export", "labels.csv", *flags)
    *written, as_of = sorted(out.splitlines(), key=lambda line: line.startswith("labels as of "))
    assert as_of.startswith("labels as of ")
    assert {f"wrote {name}" for name in files} == {*written}
    _, out, _ = run("combine", "--output", "labels.csv", "--annotators-output", "people.csv")
    assert out == "wrote labels.csv\nwrote people.csv\n"


def test_an_export_takes_its_file_as_other_commands_do(run: Run, project: Path) -> None:
    assert run("run")[0] == 0
    assert run("export", "labels.csv")[0] == 0
    assert run("export", "-o", "same.csv")[1].startswith("wrote same.csv\n")
    assert Path("same.csv").read_bytes() == Path("labels.csv").read_bytes()
    for arguments in ([], ["a.csv", "-o", "b.csv"]):
        code, _, err = run("export", *arguments)
        assert (code, err) == (
            78,
            "hitl: export: expected one file to write: `hitl export labels.csv`, or the same with -o\n",
        )
    assert not Path("a.csv").exists()


def test_known_truth_without_a_label_is_called_empty(run: Run, project: Path) -> None:
    assert run("run")[0] == 0
    (project / "known.csv").write_text("item,label\n0,cat\n1,\n")
    code, _, err = run("gold", "known.csv")
    assert (code, err) == (
        65,
        "hitl: known.csv, line 3: the label is empty; leave out items whose truth is not known\n",
    )


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".db"}


@pytest.mark.journey
def test_no_command_of_a_project_writes_over_what_it_reads_or_would_read(run: Run, project: Path) -> None:
    assert run("run")[0] == 0
    (project / "link").symlink_to(project / "data")
    (project / "real.csv").write_text("item,label\n0,dog\n")
    (project / "data" / "truth.csv").symlink_to(project / "real.csv")
    read = ["data/annotations.csv", "data/items.jsonl", "data/items.parquet", "data/graph.csv", "data/truth.tsv.gz"]
    read += ["data/hitl-output/added_items.csv", "data/hitl-output/gold.csv", "data/probabilities_more.csv", "net.csv"]
    read += ["link/annotations.csv", "data/truth.csv", "real.csv"]
    before = content(project)
    for name in read:
        for words in (
            ("export", name),
            ("export", "x.csv", "--annotations", name),
            ("export", "x.csv", "--asked", name),
        ):
            code, out, err = run(*words)
            assert (code, out) == (65, ""), words
            assert "is named twice, for an output and another file; each needs a file of its own" in err
    for command in ("combine", "plan", "annotators", "models", "report"):
        for name in read[:4]:
            code, _, err = run(command, "--output", name)
            assert (code, "is named twice" in err) == (65, True), command
    for words in (("combine", "--annotators-output"), ("export", "x.csv", "--annotators-output")):
        assert run(*words, "net.csv")[0] == 65
    assert content(project) == before
    for name in ("data/labels.csv", "annotations.csv", "data/hitl-output/items.csv", "data/items.tsv.csv"):
        assert run("export", name)[0] == 0, name


def test_a_single_file_is_not_written_over_either(run: Run, project: Path) -> None:
    config = (project / "hitl.toml").read_text().replace('"data"', '"data/annotations.csv"')
    (project / "hitl.toml").write_text(config.replace("[models]\nother", "[models]\nnet"))
    assert run("run")[0] == 0
    assert run("export", "data/annotations.csv")[0] == 65
    assert run("export", "data/truth.csv")[0] == 0, "it would not be read"


def test_predictions_of_a_model_are_made_anew_in_their_place_alone(run: Run, project: Path) -> None:
    assert run("pull")[0] == 0
    (project / "mine.py").write_text(EVEN)
    words = ("predict", "--project", "--model", "mine.py:Even", "--text", "photo", "--output")
    for name in ("net.csv", "data/probabilities_net.csv"):
        code, _, err = run(*words, name)
        assert (code, err) == (0, "")
        assert read_table(project / name).num_rows == 8
    for name in ("data/items.jsonl", "data/truth.csv"):
        code, _, err = run(*words, name)
        assert (code, "is named twice" in err) == (65, True)


def test_the_items_that_name_the_rows_of_arrays_are_read_too(run: Run, project: Path) -> None:
    before = content(project)
    for command in ("combine", "annotators", "report"):
        code, _, err = run(command, "data/annotations.csv", "--items", "net.csv", "--output", "net.csv")
        assert (code, "net.csv is named twice" in err) == (65, True), command
    assert content(project) == before


def test_soft_labels_stand_beside_the_best_ones(run: Run, tmp_path: Path) -> None:
    answers = simulated(0, 0.2, items=120)[0]
    write_table(tmp_path / "annotations.csv", answers.table())
    code, out, err = run("combine", "annotations.csv", "--soft", "soft.csv", "--output", "labels.csv", "--json")
    assert (code, err) == (0, "")
    soft, labels = (read_table(tmp_path / name) for name in ("soft.csv", "labels.csv"))
    assert soft.column_names == ["item", "label", "confidence", "differ", "share_a", "share_b", "share_c"]
    assert soft.select(["item", "label", "confidence"]) == labels.select(["item", "label", "confidence"])
    shares = np.array([soft.column(f"share_{name}").to_pylist() for name in "abc"], float)
    assert shares.sum(axis=0) == pytest.approx(1)
    assert json.loads(out)["written"]["soft"] == "soft.csv"
    assert "items whose answers disagree, people differ on about" in json.loads(out)["disagreement"]
    assert "someone is wrong." in run("combine", "annotations.csv", "--soft", "soft.csv")[1]
    assert "someone is wrong" not in run("combine", "annotations.csv")[1]


def test_soft_labels_of_a_project_have_a_table_per_question(run: Run, tmp_path: Path) -> None:
    write_table(tmp_path / "annotations.csv", simulated(0, 0.2, items=60)[0].table())
    (tmp_path / "hitl.toml").write_text('name = "p"\n[source]\nkind = "tables"\npath = "."\n')
    assert run("run")[0] == 0
    code, out, err = run("combine", "--soft", "soft.parquet")
    assert (code, err) == (0, "")
    assert "label: Of " in out
    assert read_table(tmp_path / "soft.parquet").num_rows == 60
    code, _, err = run("combine", "--soft", "annotations.csv")
    assert code != 0
    assert "annotations.csv" in err


def test_spans_have_no_soft_labels(run: Run, tmp_path: Path) -> None:
    (tmp_path / "spans.csv").write_text("document,annotator,label,start,end\n1,ann,PER,0,3\n1,bob,PER,0,3\n")
    code, _, err = run("combine", "spans.csv", "--soft", "soft.csv")
    assert code != 0
    assert "--soft: not for spans" in err


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_letters_that_a_pipe_cannot_show_are_escaped(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    (tmp_path / "a.csv").write_text("item,annotator,label\n1,Łucja,ż\n1,ann,ż\n2,Łucja,x\n", encoding="utf-8")
    for flags, expected in ([], "\\u0141ucja"), (["--json"], "Łucja"):
        with monkeypatch.context() as patched, open("said", "w", encoding=encoding) as pipe:
            patched.setattr("sys.stdout", pipe)
            assert run("annotators", "a.csv", *flags)[::2] == (0, "")
        said = Path("said").read_text(encoding)
        assert expected in (json.loads(said)["annotators"][0]["annotator"] if flags else said)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_pipe_that_is_closed_early_is_no_failure(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "a.csv").write_text("item,annotator,label\n1,ann,x\n1,bob,x\n2,ann,y\n")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", COMMAND, "annotators", "a.csv", *flags]
    done = subprocess.run(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
