"""Operations of tables: the same as rows, stored and read again, close or not."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from hitl.platform import Operation
from hitl.tables.table_operation import (
    TableOperation,
    as_bytes,
    consensus_table,
    from_bytes,
    pushed_table,
    wanted_table,
)

P = np.array([[0.25, 0.75], [1 / 3, 2 / 3], [1.0, 0.0]])


def columns(
    p: np.ndarray = P, labels: tuple[int, ...] = (1, 1, 0), items: tuple[str, ...] = ("a", "b", "ü")
) -> pa.Table:
    return consensus_table(pa.array(items), ("no", "yes"), np.array(labels), p.max(axis=1), p)


def wanted(items: list[str], labels: list[int]) -> TableOperation:
    return TableOperation("labels_wanted", {"": wanted_table(pa.array(items, pa.string()), np.array(labels))})


CONSENSUS = TableOperation("consensus", {"q": columns(), "r": columns(P[:1], (0,), ("c",))})
OPERATIONS = [
    CONSENSUS,
    wanted(["b", "a", "ü"], [3, 1, 2]),
    wanted([], []),
    Operation("consensus", "", CONSENSUS.payload),
    Operation("labels_wanted", "", {"items": {"a": 1}}),
]


def test_the_payload_is_what_the_platform_is_told() -> None:
    rows = json.loads(json.dumps(CONSENSUS.payload))["questions"]["q"]
    shares = {"no": 0.333333, "yes": 0.666667}
    assert rows[1] == {"item": "b", "label": "yes", "confidence": 0.666667, "probabilities": shares}
    assert [row["label"] for row in rows] == ["yes", "yes", "no"]
    table = pushed_table(columns())
    assert table.column_names == ["item", "label", "confidence", "p_no", "p_yes"]
    assert list(table.to_pylist()[1].values()) == ["b", "yes", 0.666667, *shares.values()]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_read_as_it_was_stored(operation: Operation) -> None:
    again = from_bytes(operation.kind, operation.key, as_bytes(operation), operation.digest)
    assert (again, type(again), again.digest) == (operation, type(operation), operation.digest)
    if isinstance(again, TableOperation):
        assert again.is_close_to(operation)  # type: ignore[arg-type]
        assert TableOperation(again.kind, again.tables).digest == operation.digest, "made of its tables"


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
def test_operations_that_differ_in_the_last_digits_are_close(other: pa.Table, close: bool) -> None:
    operation = TableOperation("consensus", {"q": columns()})
    assert operation.is_close_to(TableOperation("consensus", {"q": other})) is close
    assert not operation.is_close_to(TableOperation("consensus", {"r": other}))


def test_answers_wanted_have_no_order() -> None:
    operation = wanted(["b", "a", "ü"], [3, 1, 2])
    assert operation.payload == {"items": {"a": 1, "b": 3, "ü": 2}}
    assert operation.digest == wanted(["ü", "b", "a"], [2, 3, 1]).digest
    assert len({operation.digest, wanted(["b", "a", "ü"], [3, 1, 1]).digest, wanted(["b", "a"], [3, 1]).digest}) == 3
