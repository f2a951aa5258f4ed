"""Who said what: what the table takes, what it refuses, and what it makes of repeated answers."""

from __future__ import annotations

import warnings
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from hitl.annotations import ANONYMOUS, Annotations
from hitl.errors import BadAnnotations, BadInput, BadTable, ConflictingLabels, SimilarNames
from hitl.evidence import Evidence
from hitl.tables.encode import natural_order
from hitl.tables.read import read_table
from tests.tables import rows, said


def codes(**changes: Any) -> Annotations:
    fields = {
        "item": [0, 1],
        "annotator": [0, 0],
        "label": [0, 1],
        "items": ("a", "b"),
        "annotators": ("ann",),
        "classes": ("x", "y"),
        "options": ("x", "y"),
    }
    return Annotations(**{**fields, **changes})


# -- repeated answers ----------------------------------------------------------------------------------------


def test_rows_that_repeat_an_answer_collapse_without_a_warning() -> None:
    annotations = Annotations.from_frame(rows(("a", "ann", "x"), ("b", "ann", "y"), ("a", "ann", "x")))
    assert said(annotations) == [("a", "ann", "x"), ("b", "ann", "y")]


def test_without_a_time_the_last_row_wins_with_a_warning_that_counts() -> None:
    frame = rows(("a", "ann", "x"), ("a", "ann", "y"), ("b", "bob", "y"), ("b", "bob", "x"), ("c", "bob", "x"))
    with pytest.warns(ConflictingLabels, match=r"^2 labels contradict .*first at row 0.*last row of each wins"):
        annotations = Annotations.from_frame(frame)
    assert said(annotations) == [("a", "ann", "y"), ("b", "bob", "x"), ("c", "bob", "x")]


def test_the_warning_points_at_the_line_that_called() -> None:
    with pytest.warns(ConflictingLabels) as caught:
        Annotations.from_frame(rows(("a", "ann", "x"), ("a", "ann", "y")))
    assert caught[0].filename == __file__


def test_without_a_time_two_answers_are_an_error_when_strict() -> None:
    with pytest.raises(BadAnnotations, match=r"^1 label contradicts .*row 0.*expected one answer each, or a time"):
        Annotations.from_frame(rows(("a", "ann", "x"), ("a", "ann", "y")), strict=True)


def test_equal_times_do_not_tell_which_is_the_later() -> None:
    frame = rows(("a", "ann", "y"), ("a", "ann", "x"), ("b", "ann", "y"), at=[7, 7, 7])
    with pytest.warns(ConflictingLabels, match="^1 label contradicts"):
        annotations = Annotations.from_frame(frame, time="at")
    assert said(annotations)[0] == ("a", "ann", "x")


@pytest.mark.parametrize("at", [[None, 5.0], [5.0, None], [None, None]])
def test_an_unknown_time_leaves_only_the_order_of_the_rows(at: list[float | None]) -> None:
    with pytest.warns(ConflictingLabels, match="^1 label contradicts"):
        annotations = Annotations.from_frame(
            rows(("a", "ann", "x"), ("a", "ann", "y"), at=at), time="at", classes=["x", "y"]
        )
    assert said(annotations) == [("a", "ann", "y")]


def test_the_time_of_a_kept_answer_stays_its_own() -> None:
    frame = rows(("b", "ann", "x"), ("a", "ann", "x"), ("b", "ann", "y"), at=[1.0, 3.0, 2.0], took=[10.0, 30.0, 20.0])
    annotations = Annotations.from_frame(frame, time="at", duration="took", items=["a", "b"])
    assert said(annotations) == [("a", "ann", "x"), ("b", "ann", "y")]
    assert (annotations.time.tolist(), annotations.duration.tolist()) == ([3.0, 2.0], [30.0, 20.0])


def test_codes_with_two_answers_are_refused_with_a_way_out() -> None:
    with pytest.raises(
        BadAnnotations, match=r"annotator 'ann' labels item 'b' more than once; build with .*from_frame"
    ):
        codes(item=[0, 1, 1], annotator=[0, 0, 0], label=[0, 1, 0])


# -- people without ids --------------------------------------------------------------------------------------


def test_people_without_ids_form_one_pool_that_may_label_an_item_many_times() -> None:
    annotations = Annotations.from_frame(rows(("a", None, "x"), ("a", None, "x"), ("a", None, "y"), ("a", "ann", "y")))
    assert annotations.annotators == ("ann", ANONYMOUS)
    assert annotations.anonymous == 1
    assert annotations.labels_per_annotator.tolist() == [1, 3]
    assert sorted(said(annotations), key=str) == [
        ("a", "ann", "y"),
        ("a", None, "x"),
        ("a", None, "x"),
        ("a", None, "y"),
    ]


def test_nobody_has_an_id_when_no_column_is_named() -> None:
    annotations = Annotations.from_frame({"item": ["a", "a"], "label": ["x", "y"]}, annotator=None)
    assert (annotations.annotators, annotations.anonymous, len(annotations)) == ((ANONYMOUS,), 0, 2)


def test_a_missing_number_is_a_person_without_id_and_the_others_stay_whole_numbers() -> None:
    for frame in (
        pd.DataFrame(rows((1, 7.0, 0), (1, np.nan, 1))),
        {"item": np.array([1, 1]), "annotator": np.array([7.0, np.nan]), "label": np.array([0, 1])},
    ):
        assert Annotations.from_frame(frame).annotators == (7, ANONYMOUS)


def test_the_pool_must_be_one_of_the_annotators() -> None:
    with pytest.raises(BadAnnotations, match=r"expected 0 <= anonymous < 1 or None, got 3"):
        codes(anonymous=3)


# -- refusals: where, and what was expected ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("label", [0, 7], r"expected 0 <= label < 2, got 7 at label\[1\]"),
        ("label", [-1, 0], r"expected 0 <= label < 2, got -1 at label\[0\]"),
        ("item", [0, 2], r"expected 0 <= item < 2, got 2 at item\[1\]"),
        ("annotator", [0, 1], r"expected 0 <= annotator < 1, got 1 at annotator\[1\]"),
        ("label", [0], r"label has shape \(1,\); expected \(2,\), one entry for each annotation"),
        ("annotator", [0], r"annotator has shape \(1,\); expected \(2,\)"),
        ("label", [0.0, 1.0], r"label has type float64; expected integer codes"),
        ("time", [1.0], r"time has shape \(1,\); expected \(2,\)"),
        ("items", ("a", "a"), r"items: the name 'a' appears twice"),
        ("annotators", ("ann", "ann"), r"annotators: the name 'ann' appears twice"),
        ("items", ("a", 1), r"items: found the names 1 and 'a'; expected all text or all whole numbers"),
        ("items", (1.5, 2), r"items: found the names 1.5; expected all text or all whole numbers"),
        ("options", ("x", "y", 3), r"options: found the names 3 and 'x'"),
        ("options", ("y", "x"), r"options: expected the classes first \(x, y\), found y, x"),
        ("options", ("x",), r"options: expected the classes first \(x, y\), found x"),
    ],
)
def test_codes_that_do_not_fit_are_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(BadAnnotations, match=message):
        codes(**{field: value})


@pytest.mark.parametrize(
    ("table", "named", "message"),
    [
        (
            rows(("a", "ann", "x"), ("b", "ann", "y"), ("c", "ann", "z")),
            {"classes": ["x", "y"]},
            r"row 2: label 'z' is not one of the 2 expected \(x, y\)",
        ),
        (
            rows(("a", "ann", "x"), ("b", "ann", "y")),
            {"items": ["a"]},
            r"row 1: item 'b' is not one of the 1 expected \(a\)",
        ),
        (
            rows(("a", "ann", "x")),
            {"classes": ["x", "z"], "options": ["x", "y"]},
            "class 'z' is not among the options: x, y",
        ),
        ({"item": [], "annotator": [], "label": []}, {}, "the table is empty; expected at least one item"),
        (pd.DataFrame(rows(("a", "b", "c")))[:0], {}, "the table is empty; expected at least one item"),
        (rows(("a", "ann", "x")), {}, r"found 1 class \(x\); expected at least 2: name all classes"),
        (
            {"item": ["a"], "label": ["x"]},
            {},
            r"annotations: no column 'annotator'; found item, label\. .*annotator=None",
        ),
        (
            pa.table([pa.array(["a"])] * 4, names=["item", "item", "annotator", "label"]),
            {},
            "annotations: column 'item' appears twice",
        ),
        (pd.DataFrame(rows(("a", 1, "x"), (1, 1, "y"))), {}, "column item.*expected numbers or text, not both"),
    ],
)
def test_a_table_that_does_not_fit_says_where_and_what_was_expected(table: Any, named: Any, message: str) -> None:
    with pytest.raises(BadTable if "column" in message else BadAnnotations, match=message):
        Annotations.from_frame(table, **named)


def test_an_empty_item_says_its_row() -> None:
    frame = pd.DataFrame(rows(("a", "ann", "x"), ("b", "ann", "y"))).astype(object)
    frame.loc[1, "item"] = None
    with pytest.raises(BadAnnotations, match="row 1: the item is empty; expected a name in every row"):
        Annotations.from_frame(frame)


# -- matrices ------------------------------------------------------------------------------------------------


def test_a_matrix_with_gaps_becomes_codes() -> None:
    annotations = Annotations.from_matrix(np.array([[0, -1], [-1, -1], [1, 2]]))
    assert said(annotations) == [(0, 0, 0), (2, 0, 1), (2, 1, 2)]
    assert (annotations.items, annotations.classes) == ((0, 1, 2), (0, 1, 2))
    assert annotations.labels_per_item.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.0, np.nan]], r"expected an integer matrix of N items x K annotators, got float64 \(1, 2\)"),
        ([0, 1], r"expected an integer matrix .* got int64 \(2,\)"),
        ([[0, 1], [1, -2]], r"expected a label code or -1 for a gap, got -2 at matrix\[1, 1\]"),
    ],
)
def test_a_matrix_of_something_else_is_refused(matrix: Any, message: str) -> None:
    with pytest.raises(BadAnnotations, match=message):
        Annotations.from_matrix(matrix)


# -- names ---------------------------------------------------------------------------------------------------


def test_floats_that_are_whole_are_numbers_and_others_text() -> None:
    annotations = Annotations.from_frame(rows((1.0, 1.5, 0.0), (2.0, 1e300, 1.0)))
    assert (annotations.items, annotations.classes) == ((1, 2), (0, 1))
    assert set(annotations.annotators) == {"1.5", "1e+300"}


def test_numpy_names_become_plain_ones() -> None:
    annotations = Annotations.from_frame(rows((1, "ann", "x")), items=np.arange(3), classes=np.array(["x", "y"]))
    assert [type(name) for name in annotations.items] == [int] * 3
    assert [type(name) for name in annotations.classes] == [str] * 2
    assert codes(items=["a", "b"], classes=["x", "y"]).items == ("a", "b")


def test_true_and_false_are_text() -> None:
    assert Annotations.from_frame(rows((1, 1, True), (2, 1, False))).classes == ("false", "true")


def test_text_is_kept_as_written(tmp_path: Path) -> None:
    path = tmp_path / "annotations.csv"
    path.write_text('item,annotator,label\n007,NA,1\n"a,b",nan,10\n"two\nlines",null,2\nüñí😀,é,1\n', encoding="utf-8")
    annotations = Annotations.from_frame(read_table(path, text=["item", "annotator", "label"]))
    assert annotations.items == ("007", "a,b", "two\nlines", "üñí😀")
    assert set(annotations.annotators) == {"NA", "nan", "null", "é"}
    assert annotations.classes == ("1", "2", "10")  # text, in order of value


def test_natural_order_is_by_value_for_numbers_and_by_text_else() -> None:
    assert natural_order(["10", "9", "-1", "2.5"]) == ("-1", "2.5", "9", "10")
    assert natural_order(["b", "a10", "a9"]) == ("a10", "a9", "b")


@pytest.mark.parametrize("kind", ["category", "string", object])
def test_every_pandas_type_of_text_is_understood(kind: Any) -> None:
    frame = pd.DataFrame(rows(("a", "ann", "x"), ("b", "bob", "y"))).astype(kind)
    assert said(Annotations.from_frame(frame)) == [("a", "ann", "x"), ("b", "bob", "y")]


# -- items without labels, options beyond the classes --------------------------------------------------------


def test_items_nobody_labeled_belong_to_the_table_in_the_given_order() -> None:
    annotations = Annotations.from_frame(rows(("b", "ann", "x"), ("a", "ann", "y")), items=["a", "b", "c"])
    assert annotations.items == ("a", "b", "c")
    assert annotations.labels_per_item.tolist() == [1, 1, 0]
    assert annotations.item_start.tolist() == [0, 1, 2, 2]


def test_no_labels_at_all_are_fine_where_items_and_classes_are_named() -> None:
    annotations = Annotations.from_frame({"item": [], "annotator": [], "label": []}, items=["a"], classes=["x", "y"])
    assert (len(annotations), annotations.n_items, annotations.n_annotators) == (0, 1, 0)


def test_an_option_that_is_no_class_follows_the_classes() -> None:
    frame = rows(("a", "ann", "unsure"), ("b", "ann", "y"))
    annotations = Annotations.from_frame(frame, classes=["y", "x"], options=["unsure", "x", "y"])
    assert annotations.options == ("y", "x", "unsure")
    assert (annotations.n_classes, annotations.n_options) == (2, 3)
    assert annotations.label.tolist() == [2, 0]


# -- times ---------------------------------------------------------------------------------------------------

UTC = timezone.utc  # noqa: UP017
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "column",
    [
        ["2024-03-01T12:00:00Z", "2024-03-01T12:00:01.5Z"],
        ["2024-03-01T14:00:00+02:00", "2024-03-01T10:30:01.500000-01:30"],
        ["2024-03-01 12:00:00", "2024-03-01T12:00:01.5"],
        [NOON, NOON + 1.5],
        [str(NOON), str(NOON + 1.5)],
        [datetime(2024, 3, 1, 12), datetime(2024, 3, 1, 12, 0, 1, 500_000)],
        [datetime(2024, 3, 1, 12, tzinfo=UTC), datetime(2024, 3, 1, 12, 0, 1, 500_000, tzinfo=UTC)],
        pa.array([int(NOON * 1e9), int(NOON * 1e9 + 1_500_000_001)], pa.timestamp("ns")),
        pa.array([int(NOON * 1e3), int(NOON * 1e3 + 1500)], pa.timestamp("ms", tz="Asia/Tokyo")),
    ],
    ids=["Z", "offset", "naive", "seconds", "text seconds", "datetime", "aware", "nanoseconds", "zone"],
)
def test_every_form_of_time_is_seconds_since_the_epoch_in_utc(column: Any) -> None:
    table = pa.table({"item": ["a", "b"], "annotator": ["ann", "ann"], "label": ["x", "y"], "at": pa.array(column)})
    for frame in (table, table.to_pandas()):
        assert Annotations.from_frame(frame, time="at").time.tolist() == [NOON, NOON + 1.5]


def test_a_date_is_its_midnight() -> None:
    annotations = Annotations.from_frame(
        rows(("a", 1, "x"), ("b", 1, "y"), at=[date(1970, 1, 1), date(1970, 1, 2)]), time="at"
    )
    assert annotations.time.tolist() == [0, 86_400]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("time", "row 0, column 'at': 'soon' is no time; expected ISO 8601"),
        ("duration", "column 'at': not numeric"),
    ],
)
def test_text_that_is_no_time_is_refused(column: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Annotations.from_frame(rows(("a", 1, "x"), ("b", 1, "y"), at=["soon", "later"]), **{column: "at"})


# -- immutable and sorted ------------------------------------------------------------------------------------


def test_the_table_cannot_be_changed_and_does_not_hang_on_what_it_was_built_from() -> None:
    item, time = np.array([0, 1], np.int32), np.array([1.0, 2.0])
    annotations = codes(item=item, time=time)
    item[0], time[0] = 1, 9.0
    assert (annotations.item.tolist(), annotations.time.tolist()) == ([0, 1], [1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        annotations.label[0] = 1
    with pytest.raises(AttributeError):
        annotations.items = ()


def test_codes_are_sorted_by_item_then_annotator_and_times_follow() -> None:
    annotations = codes(
        item=[1, 0, 1], annotator=[1, 0, 0], label=[0, 1, 1], annotators=("ann", "bob"), time=[3.0, 1.0, 2.0]
    )
    assert annotations.item.tolist() == [0, 1, 1]
    assert annotations.annotator.tolist() == [0, 0, 1]
    assert annotations.label.tolist() == [1, 1, 0]
    assert annotations.time.tolist() == [1.0, 2.0, 3.0]


def test_by_annotator_finds_everybodys_rows() -> None:
    annotations = Annotations.from_matrix(np.array([[0, -1, 1], [1, -1, 0], [-1, -1, 1]]))
    starts, found = annotations.by_annotator
    assert starts.tolist() == [0, 2, 2, 5]
    for k in range(3):
        mine = found[starts[k] : starts[k + 1]]
        assert mine.tolist() == np.flatnonzero(annotations.annotator == k).tolist()


def test_a_selection_keeps_items_people_and_times() -> None:
    annotations = codes(time=[1.0, 2.0], duration=[3.0, 4.0])
    part = annotations.select(np.array([False, True]))
    assert (part.items, part.annotators, len(part)) == (annotations.items, annotations.annotators, 1)
    assert (part.time.tolist(), part.duration.tolist()) == ([2.0], [4.0])


# -- classes that look alike --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pair", [("Cat", "cat"), ("cat", "cat "), ("big  cat", "big cat"), ("7", "007"), ("ﬁn", "fin")]
)
def test_classes_that_differ_in_case_or_spaces_only_are_told(pair: tuple[str, str]) -> None:
    table = {"item": ["a", "b", "c"], "annotator": ["x", "x", "x"], "label": [*pair, "dog"]}
    with pytest.warns(SimilarNames, match=r"the labels .* and .* count as different. If they are the same"):
        found = Annotations.from_frame(table)
    assert found.n_classes == 3
    with pytest.warns(SimilarNames):
        Evidence.from_tables({**table, "label": [pair[0], "dog", "dog"]}, truth={"item": ["a"], "label": [pair[1]]})


def test_classes_that_were_named_are_not_warned_of() -> None:
    table = {"item": ["a", "b"], "annotator": ["x", "x"], "label": ["Cat", "cat"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Annotations.from_frame(table, classes=["Cat", "cat"])
        Annotations.from_frame({**table, "label": ["1", "10"]})
