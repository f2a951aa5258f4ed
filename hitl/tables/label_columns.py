"""The labels that a cycle concludes, in columns: as they are compared, stored and written for a million items.

An operation that pushes them has its payload, as `hitl.exchange` says, when it is asked for it.
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
from hitl.exchange import Operation

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
        items: Names,
        classes: Names,
        labels: npt.NDArray[Any],
        confidence: npt.NDArray[np.float64],
        probabilities: npt.NDArray[np.float64],
    ) -> LabelColumns:
        """Those of (N,) items and labels, with (N, J) probabilities."""
        shares = np.rint(np.column_stack([confidence, probabilities]) * MILLION).astype(np.int32)
        names = pa.array(list(map(str, items)), pa.string())
        return cls(names, tuple(map(str, classes)), np.asarray(labels, np.int32), shares)

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

    @cached_property
    def packed(self) -> bytes:
        """The bytes from which `unpacked` makes the same columns."""
        table = pa.table({"item": self.items, "label": pa.array(self.labels)})
        for n in range(self.shares.shape[1]):
            table = table.append_column(str(n), pa.array(np.ascontiguousarray(self.shares[:, n])))
        table = table.replace_schema_metadata({"classes": json.dumps(self.classes)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    @classmethod
    def unpacked(cls, packed: bytes) -> LabelColumns:
        """What `packed` holds."""
        table = pa.ipc.open_stream(packed).read_all().combine_chunks()
        items, labels, *shares = (column.combine_chunks() for column in table.columns)
        classes = tuple(json.loads((table.schema.metadata or {})[b"classes"]))
        return cls(items, classes, labels.to_numpy(), np.column_stack([share.to_numpy() for share in shares]))


class ConsensusOperation(Operation):
    """The consensus of questions with one label an item."""

    def __init__(self, columns: Mapping[str, LabelColumns]) -> None:
        for name, value in (("kind", "consensus"), ("key", ""), ("columns", columns)):
            object.__setattr__(self, name, value)

    columns: Mapping[str, LabelColumns]

    @cached_property
    def payload(self) -> Mapping[str, Any]:
        """As `hitl.exchange` says; made when it is asked for."""
        return {"questions": {name: columns.rows() for name, columns in self.columns.items()}}

    @cached_property
    def digest(self) -> str:
        """Hex digest of the columns."""
        digest = hashlib.sha256()
        for name, columns in self.columns.items():
            digest.update(json.dumps(name).encode())
            digest.update(columns.packed)
        return digest.hexdigest()[:16]

    def is_close_to(self, other: ConsensusOperation) -> bool:
        """Whether the two show the same."""
        return self.columns.keys() == other.columns.keys() and all(
            columns.is_close_to(other.columns[name]) for name, columns in self.columns.items()
        )


def as_text(operation: Operation) -> str:
    """What is stored of an operation's payload."""
    if isinstance(operation, ConsensusOperation):
        packed = {name: b64encode(columns.packed).decode() for name, columns in operation.columns.items()}
        return json.dumps({"columns": packed})
    return json.dumps(operation.payload)


def from_text(kind: Any, key: str, text: str, digest: str) -> Operation:
    """The operation whose payload was stored so, with this digest."""
    payload = json.loads(text)
    if kind == "consensus" and "columns" in payload:
        columns = {name: LabelColumns.unpacked(b64decode(packed)) for name, packed in payload["columns"].items()}
        found: Operation = ConsensusOperation(columns)
    else:
        found = Operation(kind, key, payload)
    found.__dict__["digest"] = digest  # which would be made of all that it says
    return found
