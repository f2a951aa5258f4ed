"""Ratings on the command line and in a project: the interval is written, and each question may have its own method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.bench.honesty.scales import scale
from tests.command_line import Run
from tests.connectors.exports.reading import write


@pytest.fixture
def stars(tmp_path: Path) -> Path:
    """A table of ratings from 0 to 4."""
    scale("five", seed=4, items=40).annotations.frame().to_csv(tmp_path / "annotations.csv", index=False)
    return tmp_path


def test_the_command_writes_the_interval(run: Run, stars: Path) -> None:
    code, out, err = run("combine", "annotations.csv", "--method", "ordinal", "--output", "out.csv")
    assert (code, err) == (0, "")
    assert "ordinal" in out
    table = pd.read_csv("out.csv")
    assert (table["low"] <= table["label"]).all()
    assert (table["label"] <= table["high"]).all()


@pytest.mark.parametrize("name", ["export.json", "least.json", "export.csv"])
def test_a_rating_in_an_export_of_label_studio_has_classes_in_order(run: Run, stars: Path, name: str) -> None:
    rows = pd.read_csv("annotations.csv").to_dict("records")
    records = [rated(row["item"], str(row["annotator"]), row["label"] + 1, whole=name == "export.json") for row in rows]
    write(stars, records, name)
    code, _, err = run("combine", name, "--output", "out.csv")
    assert (code, "question 'stars' (a rating)" in err) == (0, True)
    assert (pd.read_csv("out.csv")["low"] < pd.read_csv("out.csv")["high"]).any()


def rated(item: int, annotator: str, stars: int, *, whole: bool) -> dict[str, Any]:
    """A record of an export as JSON (`whole`), or as JSON-MIN and CSV."""
    if whole:
        result = {"id": "r", "from_name": "stars", "to_name": "t", "type": "rating", "value": {"rating": stars}}
        return {"id": item, "data": {"t": "x"}, "annotations": [{"completed_by": annotator, "result": [result]}]}
    answer = json.dumps([{"rating": stars}])
    return {"t": "x", "id": item, "stars": answer, "annotator": annotator, "annotation_id": 1, "lead_time": 2.5}


def test_words_in_alphabetical_order_are_questioned(run: Run, stars: Path) -> None:
    text = Path("annotations.csv").read_text()
    for code, word in enumerate(("none", "little", "some", "much", "all")):
        text = text.replace(f",{code}\n", f",{word}\n")
    Path("words.csv").write_text(text)
    _, _, err = run("combine", "words.csv", "--method", "ordinal")
    assert "ordinal takes the classes to be in this order: all, little, much, none, some" in err
    _, _, err = run("combine", "words.csv", "--method", "ordinal", "--classes", "none,little,some,much,all")
    assert err == ""


def test_a_question_of_a_project_has_its_own_method(run: Run, stars: Path) -> None:
    assert run("init", "--tables", ".", "--name", "stars")[0] == 0
    settings = Path("hitl.toml").read_text()
    Path("hitl.toml").write_text(settings + '[combine.label]\nmethod = "ordinal"\n')
    assert "ok    combiner: label: ordinal" in run("doctor")[1]
    assert run("run")[0] == 0
    assert run("export", "labels.csv")[0] == 0
    table = pd.read_csv("labels.csv")
    assert (table["low"] <= table["high"]).all()
    assert json.loads(run("status", "--json")[1])["cycles"] == 1
    Path("hitl.toml").write_text(settings + '[combine.lable]\nmethod = "ordinal"\n')
    code, _, err = run("run")
    assert (code, "combine.lable: the project has no such question; did you mean 'label'?" in err) == (78, True)
    Path("hitl.toml").write_text(settings + '[combine.label]\nmethd = "ordinal"\n')
    code, _, err = run("run")
    assert (code, "combine.label.methd: no such key; did you mean 'method'?" in err) == (78, True)
