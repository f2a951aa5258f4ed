"""The plan is data: it is kept, compared and printed; crew and budget refuse what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hitl.crew import UNLIMITED, Budget, Crew
from hitl.errors import BadSettings, BadTable
from hitl.plan import Activity, Ask, Done, DoneItems, Expired, Plan
from hitl.platform import Operation
from hitl.tables.read import read_table

PLAN = Plan(
    asks=(
        Ask("007", "ann", 0.1 + 0.2, 0.9, "nobody has looked at it"),
        Ask(7, None, 1e-300, 1 / 3, "ünsicher"),
        Ask("b", "ann", 0.0, 0.5, ""),
        Ask("b", 3, 0.0, 0.5, "", 1.5, check=True, seconds=12.5),
        Ask("d", "ann", 0.0, 0.5, "", 1.5, probability=0.1 + 0.2, audit=True),
        Ask("e", "ann", 0.0, 0.5, "", 1.5, probability=None),
    ),
    done=(Done("c", ("x",), 0.99, "confident"), Done(9, (1, "two"), 0.7, "10 labels")),
    open_items=3,
    expired=(Expired("z", "ann", 17.5),),
    people=(Activity("ann", 3, 20.0), Activity(3, 0, 0.0, away=True)),
)


def test_a_plan_comes_back_exactly() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert Plan.from_json(Plan().to_json()) == Plan()
    done = Plan(stop="every item is done")
    assert Plan.from_json(done.to_json()) == done


def test_finished_items_are_kept_in_columns_and_look_like_a_sequence_of_done() -> None:
    given = (Done("c", ("x",), 0.99, "confident"), Done(9, (1, "two"), 0.7, "10 labels"), Done("d", (), 0.0, ""))
    done = Plan(done=given).done
    assert isinstance(done, DoneItems)
    assert (done.items, done.why) == (["c", 9, "d"], ["confident", "10 labels", ""])
    assert (list(done), tuple(reversed(done)), len(done)) == (list(given), given[::-1], 3)
    assert (done[1], done[-1], done[:2]) == (given[1], given[2], given[:2])
    assert done == given
    assert hash(done) == hash(given)
    assert given[0] in done
    assert all(done != other for other in (given[:2], (*given[:2], Done("d", ("x",), 0.0, "")), "abc"))
    assert DoneItems.of(done) is done
    assert repr(done) == repr(given)
    with pytest.raises(IndexError):
        done[3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps({"format": 2}), r"^plan: saved as format 2; this version of hitl reads 1"),
        ("[1]", "^plan: not a saved plan"),
        ("{}", "^plan: not a saved plan: 'format'"),
        ("garbage", "^plan: not a saved plan"),
        ('{"format": 1, "asks": [{"item": 1}], "done": [], "open_items": 0}', "^plan: not a saved plan"),
    ],
)
def test_another_text_or_version_is_refused(content: str, message: str) -> None:
    with pytest.raises(BadTable, match=message):
        Plan.from_json(content)


def test_it_says_in_one_line_what_it_asks() -> None:
    assert str(PLAN) == "6 questions for 2 annotators; 2 items done, 3 open"
    assert str(Plan(asks=(PLAN.asks[0],))) == "1 question for 1 annotator; 0 items done, 0 open"
    assert str(Plan(stop="every item is done")) == "no more questions (every item is done); 0 items done, 0 open"
    assert str(Plan(asks=(PLAN.asks[1],), open_items=1)) == "1 question for anyone; 0 items done, 1 open"


def test_the_questions_of_one_person_keep_their_order() -> None:
    assert PLAN.annotators == ("ann", 3)
    assert [ask.item for ask in PLAN.asks_of("ann")] == ["007", "b", "d", "e"]
    assert [ask.item for ask in PLAN.asks_of(None)] == [7]
    assert PLAN.asks_of("nobody") == ()


def test_tables_show_the_serving_order(tmp_path: Path) -> None:
    PLAN.write(tmp_path / "plan.csv")
    table = read_table(tmp_path / "plan.csv")
    figures = ["gain", "right", "why", "check", "seconds", "probability", "audit"]
    assert table.column_names == ["priority", "item", "annotator", *figures]
    assert table.column("priority").to_pylist() == ["1", "2", "3", "4", "5", "6"]
    assert table.column("item").to_pylist() == ["007", "7", "b", "b", "d", "e"]
    assert table.column("annotator").to_pylist() == ["ann", None, "ann", "3", "ann", "ann"]
    assert table.column("check").to_pylist() == ["false", "false", "false", "true", "false", "false"]
    assert table.column("seconds").to_pylist() == [None, None, None, "12.5", None, None]
    assert table.column("probability").to_pylist() == ["1", "1", "1", "1", "0.30000000000000004", None]
    assert table.column("audit").to_pylist() == ["false", "false", "false", "false", "true", "false"]
    PLAN.write(tmp_path / "plan.parquet")
    written = pq.read_table(tmp_path / "plan.parquet")
    assert written.column("check").to_pylist() == [False, False, False, True, False, False]
    assert written.column("probability").to_pylist() == [1.0, 1.0, 1.0, 1.0, 0.1 + 0.2, None]
    assert Plan().table().column_names == table.column_names


# -- crew and budget -----------------------------------------------------------------------------------------


def test_a_crew_without_limits_can_take_on_everything() -> None:
    assert Crew(("ann",)).capacity_of("ann") == UNLIMITED
    assert Crew(("ann",), capacity={"ann": 3}, default_capacity=5).capacity_of("ann") == 3
    assert Crew(("ann",), capacity={"ann": 3}, default_capacity=5).capacity_of("bob") == 5


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (Crew, {"capacity": {"ann": -1}}, "crew.capacity of 'ann' is -1; expected 0 or more"),
        (Crew, {"names": ("ann", "bob", "ann")}, "crew.annotators names 'ann' twice"),
        (Crew, {"default_capacity": -2}, "crew.capacity of 'default' is -2; expected 0 or more"),
        (Budget, {"open_questions": -1}, "budget.open_questions is -1; expected 0 or more"),
        (Budget, {"min_labels": -1}, "budget.min_labels is -1; expected 0 or more"),
        (Budget, {"max_labels": 0, "min_labels": 0}, "budget.max_labels is 0; expected 1 or more"),
        (Budget, {"min_labels": 4, "max_labels": 3}, "budget.min_labels 4 is above budget.max_labels 3"),
        (Budget, {"target_confidence": 0.0}, r"budget.target_confidence is 0.0; expected a value in \(0, 1\]"),
        (Budget, {"target_confidence": 1.1}, "budget.target_confidence is 1.1"),
        (Budget, {"target_confidence": float("nan")}, "budget.target_confidence is nan"),
        (Budget, {"cost": -1.0}, "budget.cost is -1.0; expected 0 or more"),
        (Budget, {"cost": float("nan")}, "budget.cost is nan"),
        (Budget, {"target_accuracy": 1.2}, r"budget.target_accuracy is 1.2; expected a value in \(0, 1\]"),
        (Budget, {"value_per_label": 0.0}, "budget.value_per_label is 0.0; expected a number above 0"),
        (Crew, {"cost": {"ann": 0.0}}, "crew.cost of 'ann' is 0.0; expected a number above 0"),
        (Crew, {"default_cost": float("inf")}, "crew.cost of 'default' is inf"),
    ],
)
def test_impossible_settings_name_their_key(make: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        make(**settings)


# -- what travels --------------------------------------------------------------------------------------------


def test_equal_operations_have_equal_digests_whatever_the_order_of_their_keys() -> None:
    one = Operation("assign", "ann", {"items": ["a", "b"], "more": 1})
    same = Operation("assign", "ann", {"more": 1, "items": ["a", "b"]})
    assert one.digest == same.digest
    for other in (
        Operation("order", "ann", one.payload),
        Operation("assign", "bob", one.payload),
        Operation("assign", "ann", {"items": ["b", "a"], "more": 1}),
    ):
        assert other.digest != one.digest
