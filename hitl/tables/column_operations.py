"""Operations on all items as columns, fast to compare, store and write for a million items.

    ConsensusOperation   the label of each item, with its probabilities
    WantedOperation      how many answers each item should get

The payload (see `hitl.platform.Operation`) is built on demand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Names
from hitl.platform import Operation

Ints = npt.NDArray[np.int32]

MILLION = 10**6
"""Scale of stored probabilities: whole numbers of millionths, the digits that are pushed."""

CLOSE = 2
"""Maximum difference, in millionths, of two numbers that are shown as the same."""


@dataclass(frozen=True, eq=False)
class LabelColumns:
    """Consensus of one question, as columns.

    Attributes:
        items: (N,) text; classes: (J,) text.
        labels: (N,) codes of classes.
        shares: (N, 1 + J) confidence, and the probability of each class, in millionths.
    """

    items: pa.Array
    classes: tuple[str, ...]
    labels: Ints
    shares: Ints

    @classmethod
    def of(
        cls,
        items: pa.Array,
        classes: Names,
        labels: npt.NDArray[Any],
        confidence: npt.NDArray[np.float64],
        probabilities: npt.NDArray[np.float64],
    ) -> LabelColumns:
        """Build from (N,) items and labels, with (N, J) probabilities."""
        shares = np.empty((1 + len(classes), len(labels)), np.int32).T  # column-major, as stored and written
        for n, column in enumerate((confidence, *probabilities.T)):
            shares[:, n] = np.rint(column * MILLION)
        return cls(items, tuple(map(str, classes)), np.asarray(labels, np.int32), shares)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of an operation's payload."""
        numbers = (self.shares / MILLION).tolist()
        return [
            {
                "item": item,
                "label": self.classes[label],
                "confidence": confidence,
                "probabilities": dict(zip(self.classes, shares, strict=True)),
            }
            for item, label, (confidence, *shares) in zip(
                self.items.to_pylist(), self.labels.tolist(), numbers, strict=True
            )
        ]

    def table(self) -> pa.Table:
        """Return a table of item, label, confidence, p_<class>, ..."""
        named = {"item": self.items, "label": pa.array(self.classes, pa.string()).take(pa.array(self.labels))}
        numbers = self.shares / MILLION
        columns = ["confidence", *(f"p_{name}" for name in self.classes)]
        return pa.table(named | {name: pa.array(numbers[:, n]) for n, name in enumerate(columns)})

    def is_close_to(self, other: LabelColumns) -> bool:
        """Return True if items and labels are equal, and all probabilities to the digits that are pushed."""
        return (
            self.classes == other.classes
            and self.items.equals(other.items)
            and np.array_equal(self.labels, other.labels)
            and bool((np.abs(self.shares - other.shares) <= CLOSE).all())
        )

    def as_arrow(self, name: str) -> pa.Table:
        """Return the columns of the question of this name as a table, for `from_arrow`."""
        table = pa.table({"item": self.items, "label": pa.array(self.labels)})
        for n in range(self.shares.shape[1]):
            table = table.append_column(str(n), pa.array(np.ascontiguousarray(self.shares[:, n])))
        return table.replace_schema_metadata({"name": name, "classes": json.dumps(self.classes)})

    @classmethod
    def from_arrow(cls, table: pa.Table) -> LabelColumns:
        """Read the columns from the output of `as_arrow`."""
        items, labels, *shares = map(_one, table.columns)
        classes = tuple(json.loads(table.schema.metadata[b"classes"]))
        return cls(items, classes, labels.to_numpy(), np.stack([share.to_numpy() for share in shares]).T)


class ConsensusOperation(Operation):
    """Consensus of questions with one label per item."""

    def __init__(self, columns: Mapping[str, LabelColumns]) -> None:
        for name, value in (("kind", "consensus"), ("key", ""), ("columns", columns)):
            object.__setattr__(self, name, value)

    columns: Mapping[str, LabelColumns]

    @cached_property
    def payload(self) -> Mapping[str, Any]:
        """Payload as described in `hitl.platform`, built on demand."""
        return {"questions": {name: columns.rows() for name, columns in self.columns.items()}}

    @cached_property
    def packed(self) -> bytes:
        """Concatenated Arrow streams of the questions."""
        return b"".join(as_stream(columns.as_arrow(name)) for name, columns in self.columns.items())

    @cached_property
    def digest(self) -> str:
        """Hex digest of the columns."""
        return hashlib.sha256(self.packed).hexdigest()[:16]

    def is_close_to(self, other: ConsensusOperation) -> bool:
        """Return True if the two are shown as the same."""
        return self.columns.keys() == other.columns.keys() and all(
            columns.is_close_to(other.columns[name]) for name, columns in self.columns.items()
        )


class WantedOperation(Operation):
    """Total number of answers that each of (M,) items should get."""

    def __init__(self, items: pa.Array, labels: Ints) -> None:
        for name, value in (("kind", "labels_wanted"), ("key", ""), ("items", items), ("labels", labels)):
            object.__setattr__(self, name, value)

    items: pa.Array
    labels: Ints

    @cached_property
    def payload(self) -> Mapping[str, Any]:
        """Payload as described in `hitl.platform`, built on demand."""
        return {"items": dict(zip(self.items.to_pylist(), self.labels.tolist(), strict=True))}

    @cached_property
    def table(self) -> pa.Table:
        """Table of item and labels, sorted by item name."""
        return pa.table({"item": self.items, "labels": pa.array(self.labels)}).sort_by("item").combine_chunks()

    @cached_property
    def packed(self) -> bytes:
        """Arrow stream of the table."""
        return as_stream(self.table)

    @cached_property
    def digest(self) -> str:
        """Hex digest of the columns, independent of the order of the items."""
        return hashlib.sha256(self.packed).hexdigest()[:16]

    @classmethod
    def of(cls, operation: Operation) -> WantedOperation:
        """Convert an operation of this kind to columns."""
        if isinstance(operation, WantedOperation):
            return operation
        wanted = operation.payload["items"]
        return cls(pa.array(list(wanted), pa.string()), np.array(list(wanted.values()), np.int32))


def as_stream(table: pa.Table) -> bytes:
    """Return an Arrow stream of a table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def as_bytes(operation: Operation) -> bytes:
    """Return the stored payload of an operation: JSON, or Arrow streams of operations in columns."""
    if isinstance(operation, ConsensusOperation | WantedOperation):
        return operation.packed
    return json.dumps(operation.payload).encode()


def from_bytes(kind: Any, key: str, payload: bytes, digest: str) -> Operation:
    """Rebuild an operation from its stored payload and digest."""
    if payload.startswith(b"{"):
        found = Operation(kind, key, json.loads(payload))
    else:
        tables = _streams(payload)
        if kind == "consensus":
            named = {table.schema.metadata[b"name"].decode(): LabelColumns.from_arrow(table) for table in tables}
            found = ConsensusOperation(named)
        else:
            items, labels = map(_one, tables[0].columns)
            found = WantedOperation(items, labels.to_numpy())
            found.__dict__["table"] = tables[0]  # already sorted
    found.__dict__["digest"] = digest  # avoids computing it from the payload
    return found


def _streams(packed: bytes) -> list[pa.Table]:
    reader, found = pa.BufferReader(packed), []
    while reader.tell() < reader.size():
        found.append(pa.ipc.open_stream(reader).read_all())
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([*column.chunks, pa.array([], column.type)])
