"""Operations about all items, kept as tables, which are fast to compare, store and write for a million items.

    consensus        a table per question: item, label, confidence, p_<class>, ...; probabilities are in millionths
    labels_wanted    one table: item, labels (the number of answers that the item should get)

The payload (see `hitl.platform.Operation`) is built on demand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Names
from hitl.platform import Operation, OperationKind
from hitl.tables.columns import as_stream, tables_in

MILLION = 10**6
CLOSE = 2
"""Largest difference, in millionths, of two probabilities that count as the same."""

QUESTION = b"question"
"""Key of a table's schema metadata: the name of its question."""


class TableOperation(Operation):
    """Operation whose content is tables: one per question, by name, or a single table with the name ""."""

    tables: Mapping[str, pa.Table]

    def __init__(self, kind: OperationKind, tables: Mapping[str, pa.Table]) -> None:
        for name, value in (("kind", kind), ("key", ""), ("tables", tables)):
            object.__setattr__(self, name, value)

    @cached_property
    def payload(self) -> Mapping[str, Any]:
        """Payload as described in `hitl.platform`, built on demand."""
        if self.kind == "labels_wanted":
            return {"items": dict(zip(*self.tables[""].to_pydict().values(), strict=True))}
        return {"questions": {name: payload_rows(table) for name, table in self.tables.items()}}

    @cached_property
    def packed(self) -> bytes:
        """Concatenated Arrow streams of the tables, uncompressed, because the digest must not depend on a library."""
        tables = (table.replace_schema_metadata({QUESTION: name}) for name, table in self.tables.items())
        return as_stream(*tables, compression=None)

    @cached_property
    def digest(self) -> str:
        """Hex digest of the tables."""
        return hashlib.sha256(self.packed).hexdigest()[:16]

    def is_close_to(self, other: TableOperation) -> bool:
        """Return True if the operations are equal, apart from differences of up to CLOSE in integer columns."""
        return self.tables.keys() == other.tables.keys() and all(
            table.schema.equals(other.tables[name].schema)
            and table.num_rows == other.tables[name].num_rows
            and all(map(_are_close, table.columns, other.tables[name].columns))
            for name, table in self.tables.items()
        )


def consensus_table(
    items: pa.Array,
    classes: Names,
    labels: npt.NDArray[Any],
    confidence: npt.NDArray[np.float64],
    probabilities: npt.NDArray[np.float64],
) -> pa.Table:
    """Return the table of a question from (N,) items, label codes and confidence, and (N, J) probabilities."""
    names = list(map(str, classes))
    label = pa.DictionaryArray.from_arrays(pa.array(labels, pa.int32()), pa.array(names, pa.string()))
    columns = {"item": items, "label": label}
    names_of_numbers = ["confidence", *(f"p_{name}" for name in names)]
    for name, column in zip(names_of_numbers, (confidence, *probabilities.T), strict=True):
        columns[name] = pa.array(np.rint(column * MILLION).astype(np.int32))
    return pa.table(columns)


def pushed_table(table: pa.Table) -> pa.Table:
    """Return a consensus table as it is sent: labels as text, and probabilities in [0, 1]."""
    for place, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, column.cast(pa.string()))
        elif pa.types.is_integer(field.type):
            table = table.set_column(place, field.name, pa.array(column.to_numpy() / MILLION))
    return table


def wanted_table(items: pa.Array, labels: npt.NDArray[Any]) -> pa.Table:
    """Return the table of (M,) items and the number of answers each should get, sorted by item."""
    return pa.table({"item": items, "labels": pa.array(labels, pa.int32())}).sort_by("item").combine_chunks()


def as_bytes(operation: Operation) -> bytes:
    """Return the payload of an operation as it is stored: Arrow streams for a TableOperation, otherwise JSON."""
    return operation.packed if isinstance(operation, TableOperation) else json.dumps(operation.payload).encode()


def from_bytes(kind: OperationKind, key: str, payload: bytes, digest: str) -> Operation:
    """Rebuild an operation from its stored payload and digest."""
    if payload.startswith(b"{"):
        operation = Operation(kind, key, json.loads(payload))
    else:
        tables = {table.schema.metadata[QUESTION].decode(): table for table in tables_in(payload)}
        operation = TableOperation(kind, {name: table.replace_schema_metadata(None) for name, table in tables.items()})
    operation.__dict__["digest"] = digest  # avoids computing it from the payload
    return operation


def payload_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a consensus table as they are in a payload."""
    items, labels, confidence, *shares = (column.to_pylist() for column in pushed_table(table).columns)
    classes = [name.removeprefix("p_") for name in table.column_names[3:]]
    return [
        {"item": item, "label": label, "confidence": sure, "probabilities": dict(zip(classes, row, strict=True))}
        for item, label, sure, row in zip(items, labels, confidence, zip(*shares, strict=True), strict=True)
    ]


def _are_close(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if not pa.types.is_integer(one.type):
        return bool(one.equals(other))
    return bool((np.abs(one.to_numpy() - other.to_numpy()) <= CLOSE).all())
