"""`hitl gold`: the known truth of a question, and of a multiple choice as several labels of an item."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from hitl.errors import BadSettings, BadTable
from hitl.manual_operations import known_truth
from hitl.platform import Question
from hitl.tables.read import read_table

TOPICS = tuple(Question(f"topics={name}", ("no", "yes"), ("no", "yes")) for name in ("art", "law", "war, peace"))
MOOD = Question("mood", ("good", "bad"), ("good", "bad"))


def truth(text: str, folder: Path) -> pa.Table:
    (folder / "truth.csv").write_text(text)
    return read_table(folder / "truth.csv", ["item", "label"])


def test_several_labels_stand_in_one_row_or_in_a_row_each(tmp_path: Path) -> None:
    table = truth('item,label\na,"art, law"\nb,art\nb,"war, peace"\nc,\n', tmp_path)
    operation = known_truth(table, TOPICS, None, "truth.csv")
    assert (operation.kind, operation.key) == ("gold", "topics")
    assert operation.payload["questions"] == {
        "topics=art": {"a": "yes", "b": "yes", "c": "no"},
        "topics=law": {"a": "yes", "b": "no", "c": "no"},
        "topics=war, peace": {"a": "no", "b": "yes", "c": "no"},
    }


def test_of_several_questions_one_is_named(tmp_path: Path) -> None:
    table = truth("item,label\na,art\n", tmp_path)
    with pytest.raises(BadSettings, match="has several questions: add --question; expected one of topics, mood"):
        known_truth(table, (*TOPICS, MOOD), None, "truth.csv")
    assert set(known_truth(table, (*TOPICS, MOOD), "topics", "truth.csv").payload["questions"]) == {
        question.name for question in TOPICS
    }
    one = truth("item,label\na,yes\n", tmp_path)
    assert known_truth(one, TOPICS, "topics=law", "truth.csv").payload == {"questions": {"topics=law": {"a": "yes"}}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('item,label\na,"art,lwa"\n', r"truth.csv, line 2: label 'lwa' is not one of art, law, war, peace; several"),
        ("item,label\na,art\n\nb,x\n", "truth.csv, line 4: label 'x' is not one of"),
    ],
)
def test_a_label_that_is_no_class_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadTable, match=message):
        known_truth(truth(text, tmp_path), TOPICS, None, "truth.csv")


def test_a_single_choice_takes_one_label(tmp_path: Path) -> None:
    with pytest.raises(BadTable, match="line 3: item 'a' appears twice"):
        known_truth(truth("item,label\na,good\na,bad\n", tmp_path), (MOOD,), None, "truth.csv")
