"""What stands beside the annotations: each array fits them, or an error says where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from hitl.annotations import Annotations
from hitl.errors import BadEvidence, BadTable
from hitl.evidence import Evidence

PEOPLE = {"item": ["a", "b", "c"], "annotator": ["ann", "ann", "bob"], "label": ["x", "y", "x"]}
GOOD = [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]


@pytest.fixture
def annotations() -> Annotations:
    return Annotations.from_frame(PEOPLE)


def with_row(row: list[float]) -> list[list[float]]:
    return [GOOD[0], row, GOOD[2]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (GOOD[:2], r"probabilities 'm': expected 3 rows, one for each item in order, got shape \(2, 2\)"),
        ([0.1, 0.2, 0.7], r"expected 3 rows, one for each item in order, got shape \(3,\)"),
        ([[1.0], [1.0], [1.0]], r"probabilities 'm': expected 2 columns, one for each class, got 1"),
        (with_row([np.inf, 0.0]), r"row 1 \(item 'b'\) is not finite; expected numbers, or a row of NaN"),
        (with_row([np.nan, 1.0]), r"row 1 \(item 'b'\) is not finite; expected numbers, or a row of NaN"),
        (with_row([1.1, -0.1]), r"row 1 \(item 'b'\) has a negative probability; expected values in \[0, 1\]"),
        (with_row([0.5, 0.6]), r"row 1 \(item 'b'\) sums to 1.1; expected 1"),
        (with_row([0.0, 0.0]), r"row 1 \(item 'b'\) sums to 0; expected 1"),
        ([["a", "b"]] * 3, r"probabilities 'm': .*expected an \(N, J\) array of numbers"),
    ],
)
def test_probabilities_that_do_not_fit_say_where(annotations: Annotations, rows: Any, message: str) -> None:
    with pytest.raises(BadEvidence, match=message):
        Evidence(annotations, {"m": rows})


def test_rows_that_nearly_sum_to_one_are_made_to(annotations: Annotations) -> None:
    evidence = Evidence(annotations, {"m": with_row([0.4996, 0.4999])})
    np.testing.assert_allclose(evidence.probabilities["m"].sum(axis=1), 1, atol=1e-15)
    with pytest.raises(BadEvidence, match=r"sums to 0\.998"):
        Evidence(annotations, {"m": with_row([0.498, 0.5])})


def test_a_row_of_nan_is_a_silence(annotations: Annotations) -> None:
    evidence = Evidence(annotations, {"m": with_row([np.nan, np.nan])})
    assert np.isnan(evidence.probabilities["m"]).all(axis=1).tolist() == [False, True, False]


def test_probabilities_are_a_copy_that_cannot_be_written(annotations: Annotations) -> None:
    rows = np.array(GOOD)
    evidence = Evidence(annotations, {"m": rows})
    rows[0] = 7
    np.testing.assert_allclose(evidence.probabilities["m"], GOOD)
    with pytest.raises(ValueError, match="read-only"):
        evidence.probabilities["m"][0] = 0.5


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("truth", [0, 1], r"truth: expected 3 rows, one for each item in order, got shape \(2,\)"),
        ("truth", [0, 2, 1], r"truth: row 1 \(item 'b'\) is 2; expected -1 <= code < 2"),
        ("truth", [0, 1, -2], r"truth: row 2 \(item 'c'\) is -2; expected -1 <= code < 2"),
        ("truth", [0.0, np.nan, 1.0], r"truth: has type float64; expected integer class codes, -1 where unknown"),
        ("features", [[1.0]], r"features: expected 3 rows, one for each item in order, got shape \(1, 1\)"),
        (
            "features",
            [[1, 1], [2, 2], [3, np.nan]],
            r"features: row 2 \(item 'c'\) is not finite; expected numbers, or",
        ),
        ("features", [[1.0], [np.inf], [np.nan]], r"features: row 1 \(item 'b'\) is not finite"),
        ("sequence", [[0, 0]], r"sequence: expected 3 rows"),
        ("sequence", [[0, 0, 0]] * 3, r"sequence: expected integers \(3, 2\), got int64 \(3, 3\)"),
        ("sequence", [[0.0, 0.0]] * 3, r"sequence: expected integers \(3, 2\), got float64 \(3, 2\)"),
        ("graph", sparse.eye_array(2, format="csr"), r"graph: expected a sparse \(3, 3\) matrix, got shape \(2, 2\)"),
        ("graph", sparse.csr_array([[0, 1, 0], [0, 0, 0], [0, 0, 0]]), "graph: expected a symmetric matrix"),
        ("graph", sparse.csr_array([[0, -1, 0], [-1, 0, 0], [0, 0, 0]]), "graph: .* non-negative weights"),
        ("graph", sparse.csr_array([[0, np.nan, 0], [np.nan, 0, 0], [0, 0, 0]]), "graph: expected a symmetric"),
    ],
)
def test_misaligned_or_impossible_parts_say_where(
    annotations: Annotations, field: str, value: Any, message: str
) -> None:
    with pytest.raises(BadEvidence, match=message):
        Evidence(annotations, **{field: value})


def test_parts_that_fit_are_kept(annotations: Annotations) -> None:
    graph = sparse.csr_array([[0, 1, 0], [1, 0, 2], [0, 2, 0]])
    evidence = Evidence(
        annotations,
        {"m": GOOD},
        features=[[1], [2], [3]],
        truth=[1, -1, 0],
        sequence=[[0, 0], [0, 1], [1, 0]],
        graph=graph,
    )
    assert evidence.features.dtype == np.float64
    assert evidence.truth.tolist() == [1, -1, 0]
    assert evidence.known.tolist() == [True, False, True]
    assert evidence.sequence.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert evidence.graph is graph
    parts = "classes: x, y; probabilities of m; ground truth of 2 items; features; sequence; graph)"
    assert repr(evidence).endswith(parts)


def test_a_row_of_nan_is_an_item_without_features(annotations: Annotations) -> None:
    evidence = Evidence(annotations, features=[[1.0, 2.0], [np.nan, np.nan], [0.0, 0.0]])
    assert evidence.featured.tolist() == [True, False, True]
    assert not Evidence(annotations).featured.any()


# -- from tables ---------------------------------------------------------------------------------------------


def model(items: list[Any], **columns: list[float | None]) -> dict[str, list[Any]]:
    return {"item": items, **columns}


@pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")
def test_tables_are_aligned_by_the_names_of_items_and_classes() -> None:
    evidence = Evidence.from_tables(
        PEOPLE,
        {"m": model(["c", "a", "d"], p_y=[0.3, 0.1, 0.8], p_x=[0.7, 0.9, 0.2])},
        truth={"item": ["d", "b"], "label": ["y", "x"]},
    )
    assert evidence.annotations.items == ("a", "b", "c", "d")
    assert evidence.annotations.classes == ("x", "y")
    np.testing.assert_allclose(evidence.probabilities["m"], [[0.9, 0.1], [np.nan] * 2, [0.7, 0.3], [0.2, 0.8]])
    assert evidence.truth.tolist() == [-1, 0, -1, 1]


@pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")
def test_classes_are_those_of_all_tables_together() -> None:
    evidence = Evidence.from_tables(
        PEOPLE, {"m": model(["a"], p_x=[0.5], p_z=[0.5])}, truth={"item": ["a"], "label": ["w"]}
    )
    assert evidence.annotations.classes == ("w", "x", "y", "z")
    np.testing.assert_allclose(evidence.probabilities["m"][0], [0, 0.5, 0, 0.5])


def test_a_class_the_model_does_not_know_leaves_its_silences_silent() -> None:
    evidence = Evidence.from_tables(PEOPLE, {"m": model(["a", "b"], p_x=[1.0, None])})
    np.testing.assert_allclose(evidence.probabilities["m"], [[1, 0], [np.nan] * 2, [np.nan] * 2])


def test_numbered_classes_meet_their_columns() -> None:
    people = pd.DataFrame({"item": [1, 2], "annotator": [1, 1], "label": [0, 1]})
    evidence = Evidence.from_tables(people, {"m": pd.DataFrame(model([2], p_0=[0.3], p_1=[0.7]))})
    assert evidence.annotations.classes == (0, 1)
    np.testing.assert_allclose(evidence.probabilities["m"][1], [0.3, 0.7])


def test_options_and_items_can_be_given() -> None:
    evidence = Evidence.from_tables(
        PEOPLE, classes=["y", "x"], options=["y", "x", "unsure"], items=["c", "b", "a", "d"]
    )
    assert evidence.annotations.options == ("y", "x", "unsure")
    assert evidence.annotations.items == ("c", "b", "a", "d")


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (
            {"probabilities": {"m": model(["q"], p_x=[1.0])}},
            BadEvidence,
            r"probabilities 'm': none of its 1 item is among the 3 annotated ones \(for instance 'q', unlike 'a'\)",
        ),
        ({"truth": {"item": ["q"], "label": ["x"]}}, BadEvidence, r"truth: none of its 1 item is among the 3"),
        (
            {"probabilities": {"m": model(["q"], p_x=[1.0])}, "items": ["a", "b", "c"]},
            BadEvidence,
            r"probabilities 'm': item 'q' is not among the 3 items",
        ),
        (
            {"probabilities": {"m": model(["a", "a"], p_x=[1.0, 1.0])}},
            BadEvidence,
            r"probabilities 'm': item 'a' appears twice; expected one row",
        ),
        ({"truth": {"item": ["a", "a"], "label": ["x", "y"]}}, BadEvidence, r"truth: item 'a' appears twice"),
        (
            {"truth": {"item": ["a"], "label": ["z"]}, "classes": ["x", "y"]},
            BadEvidence,
            r"truth: item 'a' is 'z'; expected one of the classes: x, y",
        ),
        (
            {"probabilities": {"m": model(["a"], p_z=[1.0])}, "classes": ["x", "y"]},
            BadEvidence,
            r"probabilities 'm': columns p_<class> name z; expected the classes x, y",
        ),
        ({"probabilities": {"m": model(["a"], score=[1.0])}}, BadEvidence, r"no column p_<class>; found item, score"),
        (
            {"probabilities": {"m": model(["a"], p_x=["high"])}},
            BadTable,
            r"column 'p_x': not numeric: 'high'; expected numbers$",
        ),
        (
            {"probabilities": {"m": model(["a"], p_x=["0,9"])}},
            BadTable,
            r"column 'p_x': not numeric: '0,9'; expected numbers, with a point before the decimals$",
        ),
        ({"probabilities": {"m": {"p_x": [1.0]}}}, BadTable, r"probabilities 'm': no column 'item'; found p_x"),
        ({"truth": {"item": ["a"]}}, BadTable, r"truth: no column 'label'; found item"),
        (
            {"probabilities": {"m": model(["a", "b"], p_x=[0.5, 0.4], p_y=[0.5, 0.4])}},
            BadEvidence,
            r"probabilities 'm': item 'b' sums to 0.8; expected 1",
        ),
    ],
)
def test_tables_that_do_not_meet_say_where(more: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Evidence.from_tables(PEOPLE, **more)


def test_numbers_and_text_are_one_class() -> None:
    people = {"item": [1, 2], "annotator": [1, 1], "label": [0, 1]}
    evidence = Evidence.from_tables(people, truth={"item": [1], "label": ["0"]})
    assert evidence.annotations.classes == (0, 1)
    assert evidence.truth.tolist() == [0, -1]


def test_an_empty_truth_is_not_known() -> None:
    said = pa.table({"item": ["a", "b"], "annotator": ["x", "x"], "label": ["cat", "dog"]})
    for empty in (None, ""):
        truth = pa.table({"item": ["a", "b"], "label": pa.array([empty, "dog"])})
        assert Evidence.from_tables(said, truth=truth).truth.tolist() == [-1, 1]


@pytest.mark.parametrize("field", ["truth", "features", "sequence"])
@pytest.mark.parametrize("given", [pd.Series([0, 1, 0]), pd.DataFrame({"x": [1, 2, 3]}), pa.table({"x": [1, 2, 3]})])
def test_a_table_in_place_of_an_array_is_refused(annotations: Annotations, field: str, given: Any) -> None:
    with pytest.raises(BadEvidence, match=rf"{field}: got .*in the order of annotations.items, 'a' first"):
        Evidence(annotations, **{field: given})


@pytest.mark.parametrize("given", [pd.DataFrame({"p_y": [0.9], "p_x": [0.1]}), pd.Series([[0.9, 0.1]])])
def test_probabilities_in_a_frame_are_refused(annotations: Annotations, given: Any) -> None:
    with pytest.raises(BadEvidence, match=r"probabilities 'm': got .*; expected an array or an Arrow table; Evidence"):
        Evidence(annotations, {"m": given})


def test_numbers_beside_text_are_the_same_names() -> None:
    labels = pd.DataFrame({"item": ["7", "8"], "annotator": ["x", "y"], "label": ["1", "0"]})
    model = pd.DataFrame({"item": [8, 7], "p_0": [0.9, 0.2], "p_1": [0.1, 0.8]})
    evidence = Evidence.from_tables(labels, {"m": model}, pd.DataFrame({"item": [7], "label": [1]}))
    assert evidence.probabilities["m"].tolist() == [[0.2, 0.8], [0.9, 0.1]]
    assert evidence.truth is not None
    assert evidence.truth.tolist() == [1, -1]


def test_rows_rounded_to_two_or_three_decimals_are_made_to_sum_to_one(annotations: Annotations) -> None:
    items, thirds = annotations.items, np.full((3, 3), 1 / 3)
    three = Annotations.from_table(annotations.table(), items=items, classes=[*annotations.classes, "third"])
    for decimals in (2, 3):
        rounded = Evidence(three, {"m": thirds.round(decimals)})
        np.testing.assert_allclose(rounded.probabilities["m"], thirds, atol=1e-15)
    for wrong in ([0.33, 0.33, 0.32], [0.333, 0.333, 0.331], [0.3, 0.3, 0.3], [0.3301, 0.33, 0.33]):
        with pytest.raises(BadEvidence, match="expected 1"):
            Evidence(three, {"m": np.array([wrong] * 3)})
