"""Whole cycles over texts of which annotators mark parts, in a folder of tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.consensus import Consensus
from hitl.export import label_tables
from hitl.kinds.kind import kind_of
from hitl.parts import spans_as_label
from hitl.platform import Question
from hitl.report.page import render
from hitl.report.stored import stored_report
from hitl.store import Store
from hitl.tables.read import read_table
from tests.command_line import Run, caller
from tests.cycle.marked import CREW, Platform, settings, write_config

TEXTS = {
    "t0": ("Ada met Bob in Rome.", [(0, 3, "PER"), (8, 11, "PER"), (15, 19, "LOC")]),
    "t1": ("Acme Paris hired Ada.", [(0, 10, "ORG"), (5, 10, "LOC"), (17, 20, "PER")]),
    "t2": ("Nothing to see.", []),
    "t3": ("Bob left Oslo & <Rome>.", [(0, 3, "PER"), (9, 13, "LOC"), (17, 21, "LOC")]),
    "t4": ("Eve saw Rome.", []),
}


def folder(path: Path, answered: int = 4) -> Path:
    """Bob overlooks the last name of every text, and Cyd takes places for people; nobody has answered the last text."""
    path.mkdir()
    rows = ["item,annotator,start,end,label"]
    for name, (_, right) in list(TEXTS.items())[:answered]:
        for who in CREW:
            spans = right[:-1] if who == "bob" else right
            spans = [(s, e, "PER" if who == "cyd" and kind == "LOC" else kind) for s, e, kind in spans]
            rows += [f"{name},{who},{s},{e},{kind}" for s, e, kind in spans] or [f"{name},{who},,,"]
    (path / "annotations.csv").write_text("\n".join(rows) + "\n")
    items = "\n".join(f'{name},"{text}"' for name, (text, _) in TEXTS.items())
    (path / "items.csv").write_text(f"item,text\n{items}\n")
    return path


def test_a_cycle_finds_spans_asks_about_texts_and_says_so(tmp_path: Path) -> None:
    root = folder(tmp_path / "t")
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        report = cycle.run(settings(), store, Tables(root))
        again = cycle.run(settings(), store, Tables(root))
        latest = store.latest("p")
        page = render(stored_report(settings(), store, Tables(root).questions()))
    assert report.pulled.problems == ()
    assert again.changed == 0
    found = read_table(root / "hitl-output" / "consensus.csv", ["start", "end"]).to_pylist()
    assert {(r["item"], int(r["start"]), int(r["end"]), r["label"]) for r in found if r["start"]} == {
        (name, *span) for name, (_, right) in TEXTS.items() for span in right
    }
    assert [r["item"] for r in found if not r["start"]] == ["t2"], "answered, and nothing was found"
    evidence = report.judgement.evidence
    assert list(evidence) == ["label", "label (ORG)"]
    assert len(evidence["label"].annotations) == 16, "an answer is one label of a text"
    asked = {str(ask.item) for ask in report.judgement.plan.asks}
    assert "t4" in asked
    assert latest is not None
    spans = report.judgement.results["label"].parts
    assert latest[0]["label"].parts == spans
    report.judgement.results["label"].save(tmp_path / "c.npz")
    assert Consensus.load(tmp_path / "c.npz").parts == spans
    assert "Texts, the least sure first" in page
    assert page.count('<mark class="s') > 20
    assert "Rome<sub>LOC</sub>" in page
    assert "&lt;<mark" in page, "a text is escaped"
    assert "3 of 4 marked exactly this" in page


def test_a_text_stands_for_the_part_about_which_annotators_agree_least(tmp_path: Path) -> None:
    root = folder(tmp_path / "t")
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        judgement = cycle.run(settings(), store, Tables(root)).judgement
    known = judgement.evidence["label"]
    assert known.parts is not None
    names = known.parts.matched.votes.annotations.items
    assert [names[part] for part in known.parts.matched.cluster_n[:2]] == ["t0[15:19]", "t1[5:10]"]
    said = known.annotations
    rows = zip(said.item, said.annotator, said.label, strict=True)
    by = {(said.items[n], said.annotators[k]): said.options[code] for n, k, code in rows}
    assert (by["t0", "ann"], by["t0", "bob"], by["t0", "cyd"]) == ("LOC", "(nothing)", "PER")
    row = known.annotations.items.index("t0")
    texts = judgement.results["label"]
    assert texts.classes[texts.codes[row]] == "LOC"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    folder(tmp_path / "t")
    write_config(tmp_path)
    return caller(tmp_path, monkeypatch, capfd)


def test_commands_speak_of_spans(run: Run) -> None:
    assert run("run")[0] == 0
    assert run("combine", "--output", "found.csv")[0] == 0
    assert {row["text"] for row in read_table("found.csv").to_pylist()} >= {"Ada", "Acme Paris", "Paris", None}
    assert run("export", "labels.csv", "--annotations", "answers.csv")[0] == 0
    labels = read_table("labels.csv").to_pylist()
    assert [row["document"] for row in labels if row["start"] is None] == ["t2"]
    assert run("combine", "answers.csv", "--output", "again.csv")[0] == 0, "what is exported is read as it is"
    assert read_table("again.csv").num_rows == len(labels) - 1
    for command in ("status", "doctor", "annotators", "plan"):
        assert run(command)[0] == 0, command


def test_an_export_has_the_texts_that_are_as_they_were_judged(run: Run, tmp_path: Path) -> None:
    """Not those that were marked first, changed or deleted since; one with an answer more is as it was."""
    assert run("run")[0] == 0
    answers, items = tmp_path / "t" / "annotations.csv", tmp_path / "t" / "items.csv"
    rows = [row for row in answers.read_text().splitlines() if not row.startswith(("t0", "t3"))]
    moved = [f"t3,{who},4,7,PER" for who in CREW]
    answers.write_text("\n".join([*rows, *moved, "t1,eve,11,16,LOC", "t4,ann,0,3,PER", "t4,bob,0,3,PER"]) + "\n")
    kept = [row for row in items.read_text().splitlines() if not row.startswith(("t0", "t3"))]
    items.write_text("\n".join([*kept, 't3,"Now Bob left Oslo."']) + "\n")
    assert run("pull", "--accept-deletions")[0] == 0
    code, _, err = run("export", "labels.csv", "--annotations", "answers.csv")
    assert code == 0, err
    assert err.startswith("hitl: warning: labels, settings or files have changed"), "one line"
    assert err.count("\n") == 1
    found = [(row["document"], row["text"]) for row in read_table("labels.csv").to_pylist()]
    assert found == [("t1", "Acme Paris"), ("t1", "Paris"), ("t1", "Ada"), ("t2", None)]
    assert run("run")[0] == 0
    assert run("export", "labels.csv")[2] == ""
    found = [(row["document"], row["text"]) for row in read_table("labels.csv").to_pylist()]
    assert {("t3", "Bob"), ("t4", "Eve")} <= {*found}


def test_an_answer_with_a_span_that_cannot_be_read_is_a_skip_and_stops_nobody(run: Run, tmp_path: Path) -> None:
    assert run("run")[0] == 0
    assert run("export", "before.csv", "--annotations", "answers.csv")[0] == 0
    before = Path("answers.csv").read_text().splitlines()
    with (tmp_path / "t" / "annotations.csv").open("a") as file:
        file.write("t4,ann,3,99,PER\nt4,bob,0,3,PER\nt4,bob,two,3,PER\nt9,cyd,0,3,PER\n")
    named = [
        "3 to 99 is no part of the text of document 't4', which has",
        "start is 'two'; expected a whole number from 0; the answer counts as a skip",
        "no text of document 't9'; the answer counts as a skip",
    ]
    for command, failed in (("run", 0), ("status", 0), ("doctor", 1)):
        code, out, err = run(command)
        assert code == failed, command
        assert [bool(re.search(rf"annotations\.csv, line \d+: {text}", out + err)) for text in named] == [True] * 3
    assert "3 skips" in run("status")[1]
    assert run("export", "labels.csv", "--annotations", "answers.csv")[0] == 0
    assert Path("answers.csv").read_text().splitlines() == before


def test_known_spans_are_told(run: Run, tmp_path: Path) -> None:
    """To the platform, from a table of spans; the next cycle has them as truth."""
    assert run("run")[0] == 0
    (tmp_path / "truth.csv").write_text("item,start,end,label\nt4,0,3,PER\nt4,8,12,LOC\nt2,,,\n")
    code, _, err = run("gold", "truth.csv")
    assert (code, err) == (0, "")
    assert run("run")[0] == 0
    run("export", "labels.csv")
    rows = read_table("labels.csv").to_pylist()
    assert [row["text"] for row in rows if row["document"] == "t4"] == ["Eve", "Rome"]
    (tmp_path / "truth.csv").write_text("item,start,end,label\nt4,0,3,CAT\n")
    assert "label 'CAT' is not one of LOC, ORG, PER" in run("gold", "truth.csv")[2]
    (tmp_path / "truth.csv").write_text("item,start,end,label\nt4,5,3,PER\n")
    assert "'5' to '3' is no part of a text" in run("gold", "truth.csv")[2]
    (tmp_path / "truth.csv").write_text("item,start,end,label\nt4,0,²,PER\n")
    assert "'0' to '²' is no part of a text" in run("gold", "truth.csv")[2]
    (tmp_path / "truth.csv").write_text("item,label\nt4,PER\n")
    assert "'label' asks about parts of texts" in run("gold", "truth.csv")[2]


@pytest.mark.parametrize("kind", ["spans", "time_spans", "masks", "boxes"])
def test_it_begins_without_an_answer(store: Store, kind: str) -> None:
    question = Question("q", ("PER", "LOC"), ("PER", "LOC"), kind, "part")
    report = cycle.run(settings(), store, Platform(question, {"0": "Ada met Bob", "1": "", "2": "Rome"}))
    assert {str(ask.item) for ask in report.judgement.plan.asks} >= {"0", "2"}


def test_half_of_a_character_is_pushed_and_exported_as_a_question_mark(store: Store) -> None:
    question = Question("q", ("PER", "LOC"), ("PER", "LOC"), kind="spans", field="part")
    answers = {"0": {"ann": spans_as_label([(0, 5, "PER")])}}
    platform = Platform(question, {"0": "Ada \ud83d Bob", "1": "Rome"}, answers)
    judgement = cycle.run(settings(), store, platform).judgement
    known = judgement.evidence["q"]
    assert label_tables(judgement, None, {})["q"].column("text").to_pylist() == ["Ada ?"]
    assert kind_of(known).answers(known, {}).column("text").to_pylist() == ["Ada ? Bob"]
