"""Whole cycles over recordings of which annotators mark stretches, in a folder of tables, and the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.consensus import Consensus
from hitl.report.page import render
from hitl.report.stored import stored_report
from hitl.store import Store
from hitl.tables.read import read_table
from tests.command_line import Run, caller
from tests.cycle.marked import CREW, settings, write_config

RIGHT: dict[str, list[tuple[float, float, str]]] = {
    "r0": [(0, 12.5, "walk"), (12.5, 30, "run"), (40, 55.25, "walk")],
    "r1": [(5, 25, "run")],
    "r2": [],
    "r3": [(3, 20, "walk"), (30, 50, "run"), (34, 38, "cough")],
    "r4": [],
}


def folder(path: Path, answered: int = 4) -> Path:
    """Bob overlooks the last stretch of every recording, and Cyd is late; no annotator has answered the last one."""
    path.mkdir()
    rows = ["item,annotator,start,end,label"]
    for name, right in list(RIGHT.items())[:answered]:
        for who in CREW:
            own = right[:-1] if who == "bob" else right
            late = 0.25 if who == "cyd" else 0
            rows += [f"{name},{who},{s + late},{e + late},{kind}" for s, e, kind in own] or [f"{name},{who},,,"]
    (path / "annotations.csv").write_text("\n".join(rows) + "\n")
    (path / "items.csv").write_text("item,recording\n" + "".join(f"{name},{name}.wav\n" for name in RIGHT))
    return path


def test_a_cycle_finds_stretches_asks_about_recordings_and_says_so(tmp_path: Path) -> None:
    root = folder(tmp_path / "t")
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(), store, Tables(root))
        again = cycle.run(settings(), store, Tables(root))
        latest = store.latest("p")
        page = render(stored_report(settings(), store, Tables(root).questions()))
    assert report.pulled.problems == ()
    assert again.changed == 0
    found = read_table(root / "hitl-output" / "consensus.csv").to_pylist()
    assert {(r["item"], float(r["start"]), float(r["end"]), r["label"]) for r in found if r["start"]} == {
        (name, *one) for name, right in RIGHT.items() for one in right
    }
    assert [r["item"] for r in found if not r["start"]] == ["r2"], "answered, and nothing was found"
    assert "text" not in found[0]
    assert list(report.judgement.evidence) == ["label", "label (run)"], "a cough within a run: two layers"
    assert "r4" in {str(ask.item) for ask in report.judgement.plan.asks}
    assert latest is not None
    spans = report.judgement.results["label"].parts
    assert latest[0]["label"].parts == spans
    report.judgement.results["label"].save(tmp_path / "c.npz")
    assert Consensus.load(tmp_path / "c.npz").parts == spans
    assert "Recordings, the least sure first" in page
    assert page.count('<rect class="f') > 20
    assert "walk, 0 to 12.5; 9" in page
    assert "4 of 4 marked it" in page
    assert "sure that none of these is there; its 4 annotators marked none" in page


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    folder(tmp_path / "t")
    write_config(tmp_path)
    return caller(tmp_path, monkeypatch, capfd)


def test_commands_speak_of_stretches(run: Run) -> None:
    assert run("run")[0] == 0
    assert run("export", "labels.csv", "--annotations", "answers.csv")[0] == 0
    labels = read_table("labels.csv")
    assert labels.column_names == ["document", "start", "end", "label", "confidence", "marked", "answers"]
    assert [row["document"] for row in labels.to_pylist() if not row["start"]] == ["r2"]
    code, out, _ = run("combine", "answers.csv", "--output", "again.csv")
    assert code == 0, "what is exported is read as it is"
    assert "Read as stretches of time" in out
    assert "4 recordings, 16 answers by 4 annotators" in out
    assert read_table("again.csv").num_rows == labels.num_rows - 1
    assert '"recordings": 4' in run("combine", "answers.csv", "--json")[1]
    assert run("combine", "--output", "found.csv")[0] == 0
    for command in ("status", "doctor", "annotators", "plan"):
        assert run(command)[0] == 0, command


def test_known_stretches_are_told(run: Run, tmp_path: Path) -> None:
    """To the platform, from a table; the next cycle has them as truth."""
    assert run("run")[0] == 0
    (tmp_path / "truth.csv").write_text("item,start,end,label\nr4,0.5,3,walk\nr4,8,12,run\nr2,,,\n")
    code, _, err = run("gold", "truth.csv")
    assert (code, err) == (0, "")
    assert run("run")[0] == 0
    run("export", "labels.csv")
    rows = read_table("labels.csv").to_pylist()
    assert [(row["start"], row["end"]) for row in rows if row["document"] == "r4"] == [("0.5", "3"), ("8", "12")]
    (tmp_path / "truth.csv").write_text("item,start,end,label\nr4,0,3,swim\n")
    assert "label 'swim' is not one of cough, run, walk" in run("gold", "truth.csv")[2]
    (tmp_path / "truth.csv").write_text("item,start,end,label\nr4,5,3,run\n")
    assert "5 to 3 is no stretch of time" in run("gold", "truth.csv")[2]
    (tmp_path / "truth.csv").write_text("item,label\nr4,run\n")
    assert "'label' asks about stretches of time" in run("gold", "truth.csv")[2]


def test_a_stretch_next_to_nothing_is_in_the_report(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"{name},{who},0,5e-324,walk\n" for name in RIGHT for who in CREW)
    (tmp_path / "t" / "annotations.csv").write_text("item,annotator,start,end,label\n" + rows)
    assert run("run")[0] == 0
    assert run("report", "--output", "page.html")[0] == 0
