"""The labels of an operation in columns: the same as rows, stored and read again, close or not."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from hitl.platform import Operation
from hitl.tables.column_operations import ConsensusOperation, LabelColumns, WantedOperation, as_bytes, from_bytes

P = np.array([[0.25, 0.75], [1 / 3, 2 / 3], [1.0, 0.0]])


def columns(
    p: np.ndarray = P, labels: tuple[int, ...] = (1, 1, 0), items: tuple[str, ...] = ("a", "b", "ü")
) -> LabelColumns:
    return LabelColumns.of(pa.array(items), ("no", "yes"), np.array(labels), p.max(axis=1), p)


def test_the_payload_is_what_the_exchange_says() -> None:
    operation = ConsensusOperation({"q": columns()})
    rows = json.loads(json.dumps(operation.payload))["questions"]["q"]
    assert rows[1] == {
        "item": "b",
        "label": "yes",
        "confidence": 0.666667,
        "probabilities": {"no": 0.333333, "yes": 0.666667},
    }
    assert [row["label"] for row in rows] == ["yes", "yes", "no"]


def test_it_is_read_as_it_was_stored() -> None:
    operation = ConsensusOperation({"q": columns(), "r": columns(P[:1], (0,), ("c",))})
    again = from_bytes("consensus", "", as_bytes(operation), operation.digest)
    assert isinstance(again, ConsensusOperation)
    assert again == operation
    assert again.is_close_to(operation)
    fresh = ConsensusOperation(again.columns)
    assert fresh.digest == operation.digest, "made of what it says"


def test_an_operation_of_rows_is_read_as_before() -> None:
    plain = Operation("consensus", "", {"questions": {"q": columns().rows()}})
    again = from_bytes("consensus", "", as_bytes(plain), plain.digest)
    assert (again, type(again), again.digest) == (plain, Operation, plain.digest)


@pytest.mark.parametrize(
    ("other", "close"),
    [
        (columns(P + np.array([[1e-6, -1e-6], [0, 0], [0, 0]])), True),
        (columns(P + np.array([[9e-6, -9e-6], [0, 0], [0, 0]])), False),
        (columns(labels=(1, 0, 0)), False),
        (columns(items=("a", "b", "c")), False),
        (columns(P[:2], (1, 1), ("a", "b")), False),
    ],
)
def test_what_differs_in_the_last_digits_is_the_same(other: LabelColumns, close: bool) -> None:
    assert columns().is_close_to(other) is close
    assert ConsensusOperation({"q": columns()}).is_close_to(ConsensusOperation({"q": other})) is close
    assert not ConsensusOperation({"q": columns()}).is_close_to(ConsensusOperation({"r": other}))


def test_the_table_is_the_rows() -> None:
    table = columns().table()
    assert table.column_names == ["item", "label", "confidence", "p_no", "p_yes"]
    assert table.to_pylist()[1] == {
        "item": "b",
        "label": "yes",
        "confidence": 0.666667,
        "p_no": 0.333333,
        "p_yes": 0.666667,
    }


def wanted(items: list[str], labels: list[int]) -> WantedOperation:
    return WantedOperation(pa.array(items, pa.string()), np.array(labels, np.int32))


def test_answers_wanted_are_stored_as_they_are_in_whatever_order() -> None:
    operation = wanted(["b", "a", "ü"], [3, 1, 2])
    plain = Operation("labels_wanted", "", {"items": {"a": 1, "b": 3, "ü": 2}})
    assert operation.payload == plain.payload
    assert WantedOperation.of(plain).digest == operation.digest == wanted(["ü", "b", "a"], [2, 3, 1]).digest
    assert len({operation.digest, wanted(["b", "a", "ü"], [3, 1, 1]).digest, wanted(["b", "a"], [3, 1]).digest}) == 3
    again = from_bytes("labels_wanted", "", as_bytes(operation), operation.digest)
    assert isinstance(again, WantedOperation)
    assert again.payload == plain.payload
    assert WantedOperation(again.items, again.labels).digest == operation.digest, "made of what it says"
    assert again.table.to_pylist()[0] == {"item": "a", "labels": 1}


def test_answers_wanted_in_rows_are_read() -> None:
    plain = Operation("labels_wanted", "", {"items": {"a": 1}})
    again = from_bytes("labels_wanted", "", as_bytes(plain), plain.digest)
    assert (again, type(again), again.digest) == (plain, Operation, plain.digest)
    empty = wanted([], [])
    assert from_bytes("labels_wanted", "", as_bytes(empty), empty.digest).payload == {"items": {}}
