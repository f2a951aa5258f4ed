"""Which answers a trace holds: of everybody the latest valid one, never hitl's own, and nothing that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from hitl.connectors.mlflow.rows import answers_in, asked_in, is_own, item_of
from hitl.connectors.rescan import page_of

SCHEMAS = [
    {"name": "safe", "schema_id": "2", "input": {"pass_fail": {"positive_label": "Safe", "negative_label": "No"}}},
    {"name": "correct", "schema_id": "1", "input": {"categorical": {"options": ["yes", "no", "1"]}}},
    {
        **{"name": "grounded", "schema_id": "5"},
        "input": {"pass_fail": {"positive_label": "Grounded", "negative_label": "Invented"}},
    },
    {"name": "why", "schema_id": "3", "input": {"text": {}}},
    {"name": "topics", "schema_id": "4", "input": {"categorical": {"options": ["a", "b"], "multi_select": True}}},
]
ASKED = {one.question.name: one for one in asked_in(SCHEMAS, ())}
CORRECT = ASKED["correct"].question


def said(
    key: str, value: Any, who: str = "ann", name: str = "correct", kind: str = "HUMAN", second: int = 0, **more: Any
) -> dict[str, Any]:
    when = f"2026-01-01T00:00:{second:02}Z"
    made: dict[str, Any] = {"assessment_id": key, "assessment_name": name, "valid": True, "create_time": when}
    made |= {"source": {"source_type": kind, "source_id": who}, "last_update_time": when, "feedback": {"value": value}}
    return made | more


def read(*assessments: dict[str, Any]) -> dict[str, tuple[str | None, str | None, str]]:
    """Key -> (annotator, label, kind) of the rows of a trace with these."""
    rows = [row for row, _, _ in answers_in({"trace_id": "t", "assessments": list(assessments)}, ASKED)]
    return {row.key: (row.annotator, row.label, row.kind) for row in rows}


def test_questions_with_one_answer_out_of_several_are_asked() -> None:
    assert {name: one.question.options for name, one in ASKED.items()} == {
        "correct": ("yes", "no", "1"),
        "grounded": ("Grounded", "Invented"),
        "safe": ("Safe", "No"),
    }
    assert [one.question.name for one in asked_in(SCHEMAS, ["safe", "why"])] == ["safe"]


def test_of_several_answers_of_one_person_the_latest_valid_counts() -> None:
    rows = read(
        said("a", "yes", second=1), said("b", "no", who="Ann", second=2), said("c", "yes", second=3, valid=False)
    )
    assert rows == {"b": ("ann", "no", "answer")}
    assert read(said("a", "yes", second=9), said("b", "no", second=2)) == {"a": ("ann", "yes", "answer")}


def test_judges_are_models_and_hitl_is_none() -> None:
    own = said("h", "yes", who="hitl", name="correct_hitl", kind="CODE")
    told = [said("a", "yes"), said("b", "no", kind="LLM_JUDGE"), said("c", "maybe", kind="CODE"), own]
    page = page_of({}, [], answers_in({"trace_id": "t", "assessments": told}, ASKED), {"correct": CORRECT})
    assert [(row.annotator, row.label) for row in page.annotations] == [("ann", "yes")]
    assert [row.key for row in page.annotators] == ["ann"]
    (judge,) = page.predictions
    assert (judge.item, judge.model, judge.probabilities) == ("t", "ann", {"yes": 0.125, "no": 0.75, "1": 0.125})
    assert page.problems == ("t: 'maybe' is none of yes, no, 1; this prediction of ann is left out",)
    assert is_own(own)
    assert not is_own(said("x", "yes", who="hitl", name="correct_hitl"))  # a person of that name
    assert not is_own(said("x", "yes", who="hitl", kind="CODE"))


@pytest.mark.parametrize(
    ("name", "value", "label"),
    [
        ("safe", True, "Safe"),
        ("safe", False, "No"),
        ("safe", "Safe", "Safe"),
        ("safe", 1.0, None),
        ("correct", "yes", "yes"),
        ("correct", "Yes!", None),
        ("correct", ["yes"], None),
        ("correct", True, None),
        ("correct", 1.0, "1"),
        ("correct", 1.5, None),
        ("correct", "x" * 20_000, None),
        ("safe", "no", None),  # would be the opposite, as a label differs from it by case alone
        ("grounded", "yes", "Grounded"),
        ("grounded", "no", "Invented"),
        ("grounded", "unsure", None),
    ],
)
def test_what_is_no_option_is_a_skip_that_is_told(name: str, value: Any, label: str | None) -> None:
    ((row, _, _),) = answers_in({"trace_id": "t", "assessments": [said("a", value, name=name)]}, ASKED)
    assert (row.label, row.kind) == (label, "skip" if label is None else "answer")
    assert (row.note is None) == (label is not None)
    assert len(row.note or "") < 150


def test_an_expectation_is_ground_truth_beside_the_answer() -> None:
    truth = said("t", None, second=1) | {"expectation": {"value": "no"}}
    truth.pop("feedback")
    assert read(said("a", "yes"), truth) == {"a": ("ann", "yes", "answer"), "t": ("ann", "no", "gold")}


def test_an_item_shows_request_and_response() -> None:
    trace = {"trace_id": "t", "request_preview": "q", "response_preview": "a", "tags": {"hitl.id": "mine"}}
    row = item_of(trace)
    assert (row.key, row.data, row.ref) == ("t", {"request": "q", "response": "a"}, "mine")
