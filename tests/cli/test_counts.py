"""Counts mean one thing everywhere: a label is one answer of one annotator about one item and question."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hitl.active.pool_state import PoolState
from hitl.active.stopping.forecast import forecast
from hitl.annotations import Annotations
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.metrics import metrics_of
from hitl.models.dawid_skene import DawidSkene
from hitl.plan import Plan
from hitl.platform import AnnotationRow, ItemRow, Page
from hitl.status import stored_in_words
from hitl.store import Store
from tests.command_line import Run

ROWS = [f"{n},{who},{'cat' if n % 2 else 'dog'}" for n in range(12) for who in ("ann", "bob", "cyd")]
MODEL = "item,p_cat,p_dog\n" + "".join(f"{n},0.6,0.4\n" for n in range(7))


@pytest.fixture
def project(run: Run, tmp_path: Path) -> Path:
    """12 items, 36 labels of 3 annotators, a skip, 2 gold items, a model that predicts 7."""
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label", *ROWS, "0,dee,"]) + "\n")
    (tmp_path / "truth.csv").write_text("item,label\n0,dog\n1,cat\n")
    (tmp_path / "probabilities_net.csv").write_text(MODEL)
    assert run("init", "--tables", ".", "--name", "pets")[0] == 0
    return tmp_path


WORDS = "12 items, 36 answers by 3 annotators, 1 skip, 2 gold items, 7 predictions by models"


def test_every_command_says_the_same_number_of_labels(run: Run, project: Path) -> None:
    assert f"stored: {WORDS}" in run("pull")[1]
    assert f"stored: {WORDS}" in run("run")[1]
    status = run("status")[1]
    assert f"pets: {WORDS}" in status
    assert "Spent: 36 answers" in status
    assert f"store: {WORDS}" in run("doctor")[1]
    assert "36 labels on 12 items" in run("doctor")[1]  # of the tables themselves, without skips and known truth
    Path("labels.csv").write_text("\n".join(["item,annotator,label", *ROWS]) + "\n")
    assert "36 labels of 3 annotators on 12 items" in run("combine", "labels.csv")[1]
    assert run("report", "--output", "report.html")[0] == 0
    tiles = re.sub(r"<[^>]+>", " ", Path("report.html").read_text())
    assert re.search(r"36\s+labels", tiles)
    assert re.search(r"2\s+items with known answers", tiles)
    for command in ("pull", "run", "status", "doctor"):
        assert "annotations" not in run(command)[1].replace("annotations: ", "").replace("annotations.csv", "")


def test_an_answer_with_a_part_within_another_is_one(run: Run, tmp_path: Path) -> None:
    """Parts that lie over one another are fitted in layers, each with all answers."""
    (tmp_path / "hitl.toml").write_text(
        'name = "p"\nstore = "sqlite:///p.db"\n[source]\nkind = "tables"\npath = "data"\n'
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "items.csv").write_text("item,text\na,Ada Lovelace met Bob\n")
    rows = "".join(f"a,{who},0,12,PER\na,{who},0,3,FIRST\n" for who in ("ann", "bob"))
    (tmp_path / "data" / "annotations.csv").write_text(f"item,annotator,start,end,label\n{rows}")
    assert run("run")[0] == 0
    status = run("status")[1]
    assert "1 item, 2 answers by 2 annotators" in status
    assert "Spent: 2 answers" in status


def test_what_machines_read_keeps_its_names(run: Run, project: Path) -> None:
    stored = json.loads(run("pull", "--json")[1])["stored"]
    assert {name: stored[name] for name in ("items", "annotations", "annotators", "skips", "gold")} == {
        "items": 12,
        "annotations": 36,
        "annotators": 4,
        "skips": 1,
        "gold": 2,
    }
    assert (stored["labels"], stored["annotators_with_labels"], stored["predictions"]) == (36, 3, 7)


def row(key: str, question: str, annotator: str | None, label: str | None, kind: str = "answer") -> AnnotationRow:
    stamp = "2024-01-01T00:00:00+00:00"
    return AnnotationRow(key, "1", question, annotator, label, kind, stamp, stamp)  # type: ignore[arg-type]


def test_an_answer_to_two_questions_is_two_labels_and_one_given_twice_is_one(tmp_path: Path) -> None:
    rows = [row(key, question, "u", "x") for key in ("7", "8") for question in ("tone", "stars")]
    rows += [row("9", "tone", None, "x"), row("10", "tone", None, "y"), row("11", "tone", "v", None, "skip")]
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store, store.lease("p") as lease:
        store.save_page(lease, Page({}, (ItemRow("1", {}, ""),), tuple(rows)))
        counts = store.counts("p")
    assert (counts["labels"], counts["annotations"], counts["skips"]) == (4, 4, 1)  # without ids each is one
    assert stored_in_words(counts) == "1 item, 4 answers by 1 annotator, 1 skip"


def test_a_cycle_and_its_forecast_count_the_labels_of_all_questions() -> None:
    answers = np.random.default_rng(0).integers(0, 2, (30, 3))
    answers[:, 2] = -1
    annotations = Annotations.from_matrix(answers, classes=["x", "y"])
    evidence = Evidence(annotations)
    one = [(evidence, DawidSkene().fit(evidence))]
    crew, budget = Crew(annotations.annotators), Budget(min_labels=3, max_labels=3)
    first, both = (metrics_of(PoolState.of(asked, budget), Plan(), crew, budget) for asked in (one, one * 2))
    assert (first["labels"], both["labels"], first["annotators"], both["annotators"]) == (60, 120, 2, 2)
    ahead = [forecast(asked, crew, budget).labels for asked in (one, one * 2)]
    assert ahead == [30, 60]
