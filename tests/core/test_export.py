"""The tables of `hitl export`: what a label rests on, how items are named, what becomes of their data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hitl.evidence import Evidence
from hitl.export import label_tables
from hitl.kinds.kind import kind_of
from hitl.models.majority import MajorityVote
from hitl.operations import Judgement
from hitl.plan import Ask, Done, Plan
from hitl.tables.read import read_table
from hitl.tables.times import iso_8601, seconds_of
from hitl.tables.write import write_table

NAMES = {str(n): f"own {n}" for n in range(5)}
DATA: list[dict[str, Any]] = [
    {"text": "a", "label": "of the source", "tags": ["x", "y"], "mixed": 1},
    {"text": "b", "mixed": "two"},
    {"text": "c", "size": 3},
    {"text": "d"},
    {"text": "e"},
]


def items(*keys: int) -> pa.Table:
    return pa.table({"item": [str(n) for n in keys], "data": [json.dumps(DATA[n]) for n in keys]})


def evidence(classes: tuple[str, str] = ("cat", "dog")) -> Evidence:
    """Items 0: labels, 1: labels and a model, 2: a model, 3: known truth, 4: nothing."""
    first, second = classes
    labels = {"item": ["0", "0", "1"], "annotator": ["ann", "bob", "ann"], "label": [second, second, first]}
    model = {"item": ["1", "2"], f"p_{first}": [0.9, 0.2], f"p_{second}": [0.1, 0.8]}
    truth = {"item": ["3"], "label": [second]}
    return Evidence.from_tables(labels, {"net": model}, truth, items=tuple("01234"), classes=classes, options=classes)


def judged(known: dict[str, Evidence]) -> Judgement:
    with pytest.warns(match="majority"):
        results = {name: MajorityVote().fit(one) for name, one in known.items()}
    plan = Plan((Ask("2", "ann", 0.1, 0.9, "unsure"),), (Done("0", ("dog",), 0.99, "confident"),), 4)
    return Judgement(known, results, plan)


def test_a_row_says_how_its_item_is_called_and_what_its_label_rests_on() -> None:
    table = label_tables(judged({"pet": evidence()}), items(0, 1, 2, 3, 4), NAMES)["pet"]
    head = ["item", "task", "label", "confidence", "p_cat", "p_dog", "labels", "done", "why", "source"]
    assert table.column_names == [*head, "text", "data_label", "tags", "mixed", "size"]
    rows = table.to_pylist()
    assert [(row["item"], row["task"]) for row in rows] == [(f"own {n}", str(n)) for n in range(5)]
    assert [row["source"] for row in rows] == ["annotators", "annotators and model", "model", "ground truth", "nobody"]
    assert [row["labels"] for row in rows] == [2, 1, 0, 0, 0]
    assert [(row["done"], row["why"]) for row in rows] == [(True, "confident")] + [(False, None)] * 4
    assert rows[0]["data_label"] == "of the source"
    assert rows[0]["tags"] == '["x", "y"]'
    assert [row["mixed"] for row in rows] == ["1", "two", None, None, None]
    assert [row["size"] for row in rows] == [None, None, 3, None, None]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_every_kind_of_data_is_written_and_read_back(tmp_path: Path, ending: str) -> None:
    data = {"text": 'two\nlines, "quoted"', "task": "of the source", "nothing": None, "big": 2**70, "flag": True}
    table = pa.table({"item": ["0", "1"], "data": [json.dumps(data), "{}"]})
    exported = label_tables(judged({"pet": evidence()}), table, {"0": "0", "1": "1"})["pet"]
    assert exported.column_names[-5:] == ["text", "data_task", "nothing", "big", "flag"]
    write_table(tmp_path / f"labels.{ending}", exported)
    rows = read_table(tmp_path / f"labels.{ending}").to_pylist()
    assert rows[0]["text"] == data["text"]
    assert rows[0]["big"] == str(2**70)
    assert [row["nothing"] for row in rows] == [None, None]


def test_half_of_a_character_is_a_question_mark(tmp_path: Path) -> None:
    data = [{"text": "cut \ud83d", "of \ude00": 1}, {"text": "whole 😀", "many": ["\ud83d"]}]
    table = pa.table({"item": ["0", "1"], "data": [json.dumps(one) for one in data]})
    exported = label_tables(judged({"pet": evidence()}), table, {"0": "0", "1": "1"})["pet"]
    write_table(tmp_path / "labels.jsonl", exported)
    rows = read_table(tmp_path / "labels.jsonl").to_pylist()
    assert [row["text"] for row in rows] == ["cut ?", "whole 😀"]
    assert [row["of ?"] for row in rows] == [1, None]
    assert [row["many"] for row in rows] == [None, '["?"]']


def test_without_own_ids_there_is_one_column_of_names_and_what_is_gone_is_left_out() -> None:
    table = label_tables(judged({"pet": evidence()}), items(0, 2), {str(n): str(n) for n in range(5)})["pet"]
    assert "task" not in table.column_names
    assert table.column("item").to_pylist() == ["0", "2"]
    assert table.column("label").to_pylist()[0] == "dog"


def test_the_classes_of_a_multiple_choice_are_one_row() -> None:
    known = evidence(("no", "yes"))
    judgement = judged({"topics=art": known, "topics=law": known})
    ((name, table),) = label_tables(judgement, items(0, 1, 2, 3, 4), NAMES).items()
    assert name == "topics"
    rows = table.to_pylist()
    assert [row["label"] for row in rows][:2] == ["art,law", ""]
    for n, row in enumerate(rows):
        art = judgement.results["topics=art"]
        assert row["p_art"] == art.probabilities[n, 1]
        assert row["confidence"] == (None if row["source"] == "nobody" else art.confidence[n])
        assert (row["label"] is None) == (row["source"] == "nobody")
    assert [row["labels"] for row in rows] == [2, 1, 0, 0, 0]


def test_a_multiple_choice_beside_other_controls_is_one_table_too() -> None:
    known = evidence(("no", "yes"))
    judgement = judged({"topics=art": known, "mood": evidence(("good", "bad")), "topics=law": known})
    tables = label_tables(judgement, items(0, 1, 2, 3, 4), NAMES)
    assert {name: table.num_rows for name, table in tables.items()} == {"topics": 5, "mood": 5}
    assert tables["topics"].column("label").to_pylist()[:2] == ["art,law", ""]
    assert tables["mood"].column("label").to_pylist()[:2] == ["bad", "good"]


def test_questions_of_other_kinds_have_a_table_each() -> None:
    judgement = judged({"pet": evidence(), "mood": evidence(("good", "bad"))})
    assert list(label_tables(judgement, items(0, 1), NAMES)) == ["pet", "mood"]


def test_times_are_text_that_reads_back() -> None:
    seconds = np.array([0.0, 1_700_000_000.25, np.nan])
    text = iso_8601(seconds)
    assert text.to_pylist() == ["1970-01-01T00:00:00.000000Z", "2023-11-14T22:13:20.250000Z", None]
    assert np.array_equal(seconds_of(pa.chunked_array([text]), "time"), seconds, equal_nan=True)
    ends = iso_8601(np.array([-62_135_596_800.0, 253_402_300_799.0])).to_pylist()
    assert ends == ["0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.000000Z"]
    assert iso_8601(np.array([1e15, -1e15, np.inf, 253_402_300_800.0])).to_pylist() == [None] * 4


def test_annotations_have_own_ids_and_times() -> None:
    labels = {"item": ["0", "1"], "annotator": ["ann", "ann"], "label": ["cat", "dog"], "time": [0.0, 1.0]}
    known = Evidence.from_tables(labels, time="time")
    table = kind_of(known).answers(known, NAMES)
    assert table.column_names == ["item", "task", "annotator", "label", "time"]
    assert table.to_pylist()[1] == {
        "item": "own 1",
        "task": "1",
        "annotator": "ann",
        "label": "dog",
        "time": "1970-01-01T00:00:01.000000Z",
    }


def test_a_judgement_is_renamed_as_a_whole() -> None:
    named = judged({"pet": evidence()}).named(NAMES)
    assert named.evidence["pet"].annotations.items == named.results["pet"].items == tuple(NAMES.values())
    assert [ask.item for ask in named.plan.asks] == ["own 2"]
    assert [done.item for done in named.plan.done] == ["own 0"]
