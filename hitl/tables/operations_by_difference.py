"""What a cycle says of every item to the platform, by difference from what it said before (`row_differences`).

    ConsensusByDifference   label (-1: nothing is said of the item), confidence and probabilities in millionths
    WantedByDifference      labels (-1: nothing)

A row is said anew where its label is another or a number differs by more than `CLOSE`; a platform that shows the others
shows them as they were. The store has the rows, and of the operation itself only where they are (`as_text`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.tables.label_columns import (
    CLOSE,
    MILLION,
    ConsensusOperation,
    LabelColumns,
    WantedOperation,
)
from hitl.tables.row_differences import AT_ONCE, Columns, RowsByDifference

Named = Callable[[], pa.Array]
"""The names of all items, when they are asked for."""

NOTHING = -1

MARK = '{"whole"'
"""What the stored text of such an operation begins with."""


class ConsensusByDifference(ConsensusOperation):
    """The consensus of questions with one label an item.

    Attributes:
        classes: of each question.
        rows: of each question (N,) columns: label, confidence, the probability of each class.
        named: names of the N items.
    """

    def __init__(
        self, named: Named, classes: Mapping[str, tuple[str, ...]], rows: Mapping[str, RowsByDifference]
    ) -> None:
        for name, value in (
            ("kind", "consensus"),
            ("key", ""),
            ("named", named),
            ("classes", classes),
            ("rows", rows),
        ):
            object.__setattr__(self, name, value)

    named: Named
    classes: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, RowsByDifference]

    @cached_property
    def columns(self) -> Mapping[str, LabelColumns]:  # type: ignore[override]
        """Those of the items of which anything is said."""
        items = self.named()
        return {name: columns_of(items, self.classes[name], rows.columns) for name, rows in self.rows.items()}

    @cached_property
    def digest(self) -> str:
        """Of what is said, and how it came to be."""
        return _digest([[name, [*self.classes[name]], rows.items, rows.digest] for name, rows in self.rows.items()])

    @property
    def text(self) -> str:
        """What is stored of it beside its rows."""
        return json.dumps({"whole": {name: [*classes] for name, classes in self.classes.items()}})

    def follow(self, other: ConsensusOperation) -> ConsensusByDifference:
        """The same as what comes after another; the other itself where nothing else is said."""
        # The order counts too: rows are stored by the place of their question.
        if not isinstance(other, ConsensusByDifference) or [*self.classes.items()] != [*other.classes.items()]:
            return self
        rows = {name: _followed(other.rows[name], each, CLOSE) for name, each in self.rows.items()}
        if all(rows[name] is other.rows[name] for name in rows):
            return other
        return ConsensusByDifference(self.named, self.classes, rows)


class WantedByDifference(WantedOperation):
    """How many answers items should get in all; `rows` has one column of all items."""

    def __init__(self, named: Named, rows: RowsByDifference) -> None:
        for name, value in (("kind", "labels_wanted"), ("key", ""), ("named", named), ("rows", rows)):
            object.__setattr__(self, name, value)

    named: Named
    rows: RowsByDifference

    @cached_property
    def _said(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.rows.columns[0] != NOTHING)

    @cached_property
    def items(self) -> pa.Array:
        """Those of which anything is said."""
        return self.named().take(pa.array(self._said))

    @cached_property
    def labels(self) -> npt.NDArray[np.int32]:  # type: ignore[override]
        """How many each should get."""
        return np.asarray(self.rows.columns[0][self._said], np.int32)

    @cached_property
    def digest(self) -> str:
        """Of what is said, and how it came to be."""
        return _digest([self.rows.items, self.rows.digest])

    @property
    def text(self) -> str:
        """What is stored of it beside its rows."""
        return json.dumps({"whole": {}})

    def follow(self, other: WantedOperation) -> WantedByDifference:
        """The same as what comes after another; the other itself where nothing else is said."""
        if not isinstance(other, WantedByDifference):
            return self
        rows = _followed(other.rows, self.rows, 0)
        return other if rows is other.rows else WantedByDifference(self.named, rows)


def consensus_columns(
    labels: npt.NDArray[np.int32],
    confidence: npt.NDArray[np.float64],
    probabilities: npt.NDArray[np.float64],
    said: npt.NDArray[np.bool_],
) -> list[npt.NDArray[np.int32]]:
    """The columns of a `ConsensusByDifference`, of N items of which something is said of some."""
    shares = (confidence, *probabilities.T)
    found: list[npt.NDArray[np.int32]] = [np.empty(len(said), np.int32) for _ in range(1 + len(shares))]
    for start in range(0, len(said), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        found[0][part] = np.where(said[part], labels[part], NOTHING)
        for column, share in zip(found[1:], shares, strict=True):
            column[part] = np.rint(share[part] * MILLION)
            column[part][~said[part]] = 0
    return found


def columns_of(items: pa.Array, classes: tuple[str, ...], columns: Columns) -> LabelColumns:
    """Those of the items of which anything is said, as they are written."""
    label, *shares = columns
    said = np.flatnonzero(label != NOTHING)
    if len(said) < len(label):
        items, label, shares = items.take(pa.array(said)), label[said], [share[said] for share in shares]
    return LabelColumns(items, classes, np.asarray(label, np.int32), np.stack(shares).T)


def names_of(operation: Any) -> dict[str, RowsByDifference]:
    """The rows of an operation by the names under which they are stored; none of one that has none."""
    if isinstance(operation, ConsensusByDifference):
        return {f"{operation.kind} {place}": rows for place, rows in enumerate(operation.rows.values())}
    return {operation.kind: operation.rows} if isinstance(operation, WantedByDifference) else {}


def stored_names(kind: str, text: str) -> list[str]:
    """The names under which the rows of the operation with this text are stored."""
    return [f"{kind} {place}" for place in range(len(json.loads(text)["whole"]))] if kind == "consensus" else [kind]


def from_rows(kind: str, text: str, digest: str, stored: Mapping[str, RowsByDifference], named: Named) -> Any:
    """The operation with this text and digest, of the rows that `names_of` names; None where they are of another."""
    said = json.loads(text)["whole"]
    found: ConsensusByDifference | WantedByDifference
    try:
        if kind == "consensus":
            rows = {name: stored[f"{kind} {place}"] for place, name in enumerate(said)}
            found = ConsensusByDifference(named, {name: tuple(classes) for name, classes in said.items()}, rows)
        else:
            found = WantedByDifference(named, stored[kind])
    except KeyError:
        return None
    return found if found.digest == digest else None


def _followed(before: RowsByDifference, fresh: RowsByDifference, close: int) -> RowsByDifference:
    """`before` with the rows that say something else; the first column is compared exactly."""
    if before.items != fresh.items or len(before.base) != len(fresh.base):
        return fresh
    return before.follow(fresh.columns, before.differing(fresh.columns, partial(_say_else, close)))


def _say_else(close: int, before: Columns, now: Columns) -> npt.NDArray[np.bool_]:
    moved = np.asarray(before[0] != now[0])
    for own, column in zip(before[1:], now[1:], strict=True):
        moved |= np.abs(own - column) > close
    return moved


def _digest(said: Any) -> str:
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
