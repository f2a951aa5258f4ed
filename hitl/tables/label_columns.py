"""What a cycle says of every item, in columns: as it is compared, stored and written for a million items.

    ConsensusOperation   the label of each, with its probabilities
    WantedOperation      how many answers each should get

Such an operation has its payload, as `hitl.platform` says, when it is asked for it.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
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
"""Probabilities are whole numbers of millionths: the digits that are pushed."""

CLOSE = 2
"""Two numbers that differ by so many millionths at most are shown as the same."""


@dataclass(frozen=True, eq=False)
class LabelColumns:
    """The consensus of one question.

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
        """Those of (N,) items and labels, with (N, J) probabilities."""
        shares = np.empty((1 + len(classes), len(labels)), np.int32).T  # columns as they are stored and written
        for n, column in enumerate((confidence, *probabilities.T)):
            shares[:, n] = np.rint(column * MILLION)
        return cls(items, tuple(map(str, classes)), np.asarray(labels, np.int32), shares)

    def rows(self) -> list[dict[str, Any]]:
        """As an operation's payload has them."""
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
        """item, label, confidence, p_<class>, ..."""
        named = {"item": self.items, "label": pa.array(self.classes, pa.string()).take(pa.array(self.labels))}
        numbers = self.shares / MILLION
        columns = ["confidence", *(f"p_{name}" for name in self.classes)]
        return pa.table(named | {name: pa.array(numbers[:, n]) for n, name in enumerate(columns)})

    def is_close_to(self, other: LabelColumns) -> bool:
        """Whether items and labels are equal, and all probabilities to the digits that are pushed."""
        return (
            self.classes == other.classes
            and self.items.equals(other.items)
            and np.array_equal(self.labels, other.labels)
            and bool((np.abs(self.shares - other.shares) <= CLOSE).all())
        )

    def packed(self, compression: str | None = "zstd") -> bytes:
        """The bytes from which `unpacked` makes the same columns."""
        table = pa.table({"item": self.items, "label": pa.array(self.labels)})
        for n in range(self.shares.shape[1]):
            table = table.append_column(str(n), pa.array(np.ascontiguousarray(self.shares[:, n])))
        table = table.replace_schema_metadata({"classes": json.dumps(self.classes)})
        return _as_bytes(table, compression)

    @classmethod
    def unpacked(cls, packed: bytes) -> LabelColumns:
        """What `packed` holds."""
        table = pa.ipc.open_stream(packed).read_all().combine_chunks()
        items, labels, *shares = (column.combine_chunks() for column in table.columns)
        classes = tuple(json.loads((table.schema.metadata or {})[b"classes"]))
        return cls(items, classes, labels.to_numpy(), np.stack([share.to_numpy() for share in shares]).T)


class ConsensusOperation(Operation):
    """The consensus of questions with one label an item."""

    def __init__(self, columns: Mapping[str, LabelColumns]) -> None:
        for name, value in (("kind", "consensus"), ("key", ""), ("columns", columns)):
            object.__setattr__(self, name, value)

    columns: Mapping[str, LabelColumns]

    @cached_property
    def payload(self) -> Mapping[str, Any]:
        """As `hitl.platform` says; made when it is asked for."""
        return {"questions": {name: columns.rows() for name, columns in self.columns.items()}}

    @cached_property
    def digest(self) -> str:
        """Hex digest of the columns."""
        digest = hashlib.sha256()
        for name, columns in self.columns.items():
            digest.update(json.dumps(name).encode())
            digest.update(columns.packed(None))  # of what is said, however it is compressed
        return digest.hexdigest()[:16]

    def is_close_to(self, other: ConsensusOperation) -> bool:
        """Whether the two show the same."""
        return self.columns.keys() == other.columns.keys() and all(
            columns.is_close_to(other.columns[name]) for name, columns in self.columns.items()
        )


class WantedOperation(Operation):
    """How many answers each of (M,) items should get in all."""

    def __init__(self, items: pa.Array, labels: Ints) -> None:
        for name, value in (("kind", "labels_wanted"), ("key", ""), ("items", items), ("labels", labels)):
            object.__setattr__(self, name, value)

    items: pa.Array
    labels: Ints

    @cached_property
    def payload(self) -> Mapping[str, Any]:
        """As `hitl.platform` says; made when it is asked for."""
        return {"items": dict(zip(self.items.to_pylist(), self.labels.tolist(), strict=True))}

    @cached_property
    def table(self) -> pa.Table:
        """item, labels; by the name of the item."""
        return pa.table({"item": self.items, "labels": pa.array(self.labels)}).sort_by("item").combine_chunks()

    @cached_property
    def packed(self) -> bytes:
        """The bytes from which `unpacked` makes the same columns."""
        return _as_bytes(self.table)

    @cached_property
    def digest(self) -> str:
        """Hex digest of the columns, in whatever order the items were given."""
        return hashlib.sha256(self.packed).hexdigest()[:16]

    @classmethod
    def unpacked(cls, packed: bytes) -> WantedOperation:
        """What `packed` holds."""
        items, labels = (column.combine_chunks() for column in pa.ipc.open_stream(packed).read_all().columns)
        return cls(items, labels.to_numpy())

    @classmethod
    def of(cls, operation: Operation) -> WantedOperation:
        """An operation of this kind, in columns."""
        if isinstance(operation, WantedOperation):
            return operation
        wanted = operation.payload["items"]
        return cls(pa.array(list(wanted), pa.string()), np.array(list(wanted.values()), np.int32))


def _as_bytes(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def as_text(operation: Operation) -> str:
    """What is stored of an operation's payload."""
    text = getattr(operation, "text", None)  # of one whose rows are stored by difference
    if text is not None:
        return str(text)
    if isinstance(operation, ConsensusOperation):
        packed = {name: b64encode(columns.packed()).decode() for name, columns in operation.columns.items()}
        return json.dumps({"columns": packed})
    if isinstance(operation, WantedOperation):
        return json.dumps({"columns": b64encode(_as_bytes(operation.table, "zstd")).decode()})
    return json.dumps(operation.payload)


def from_text(kind: Any, key: str, text: str, digest: str) -> Operation:
    """The operation whose payload was stored so, with this digest."""
    payload = json.loads(text)
    if "columns" not in payload:
        found = Operation(kind, key, payload)
    elif kind == "consensus":
        columns = {name: LabelColumns.unpacked(b64decode(packed)) for name, packed in payload["columns"].items()}
        found = ConsensusOperation(columns)
    else:
        found = WantedOperation.unpacked(b64decode(payload["columns"]))
    found.__dict__["digest"] = digest  # which would be made of all that it says
    return found
