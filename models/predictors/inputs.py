"""The items a model judges: a table read in batches, with numbers, a text or the path of an image in each row.

Held in memory are a batch and the names of the items, nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.errors import BadSettings, BadTable
from hitl.tables.batches import batches, column_names, files_of, is_arrow
from hitl.tables.columns import as_text, empty_as_null, require_columns, require_names, vectors
from hitl.tables.files import read_table
from hitl.tables.places import place_in_file
from hitl.tables.probabilities import Array

Kind = Literal["features", "text", "image"]
NAMES = 65_536
"""Rows a batch when only names are read."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A few items in a row.

    Attributes:
        start: row of the first one in the table.
        items: their names.
        kind: what `inputs` is: (B, D) numbers (NaN where empty), B texts or B paths (None where empty).
        columns: names of the D features, or () where a list column makes several of them.
        groups: the group of each item, None where it has none.
    """

    start: int
    items: list[str]
    kind: Kind
    inputs: Any
    columns: tuple[str, ...] = ()
    groups: list[str | None] = field(default_factory=list)

    @property
    def empty(self) -> npt.NDArray[np.bool_]:
        """(B,) where there is nothing to judge by."""
        if self.kind == "features":
            nothing: npt.NDArray[np.bool_] = np.isnan(self.inputs).all(axis=1)
            return nothing
        return np.array([value is None for value in self.inputs], dtype=np.bool_)

    def take(self, rows: npt.NDArray[np.intp]) -> Any:
        """The inputs of some rows."""
        return self.inputs[rows] if self.kind == "features" else [self.inputs[row] for row in rows]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Where the items are and which columns a model sees: features, or a text, or the path of an image.

    Attributes:
        path: any table of `hitl.tables.batches`.
        item: column of the item, unique and never empty.
        features: columns of numbers or of lists of numbers, in the order the model expects; none named: all columns but
            the item and the group.
        text, image: the one column the model sees instead.
        folder: what a relative path of an image is relative to (default: the folder of the table).
        group: column of the group, or None.
    """

    path: Path
    item: str = "item"
    features: tuple[str, ...] = ()
    text: str | None = None
    image: str | None = None
    folder: Path | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("features", "text", "image") if getattr(self, name)]
        if len(given) > 1:
            raise BadSettings(f"--{' and --'.join(given)} exclude each other; a model sees one kind of input")

    @property
    def kind(self) -> Kind:
        """What a model sees."""
        return "text" if self.text else "image" if self.image else "features"

    def names(self) -> list[str]:
        """All items, in order. Raises BadTable for an empty or repeated name and for an empty table."""
        found: list[str] = []
        for table in batches(self.path, [self.item], NAMES):
            found += self._items(table, len(found))
        return require_names(found, "item", str(self.path))

    def batches(self, size: int, start: int = 0) -> Iterator[Batch]:
        """The items in order from row `start` on, `size` at a time. Raises BadTable naming column and row."""
        seen = self._seen()
        group = [self.group] if self.group else []
        columns = list(dict.fromkeys([self.item, *seen, *group]))
        row = 0
        for table in batches(self.path, columns, size):
            first, row = row, row + table.num_rows
            if row <= start:
                continue
            if first < start:
                table, first = table.slice(start - first), start
            yield self._batch(table, first, seen)

    def digest(self) -> str:
        """Of all the answers depend on: the bytes of the table, the choice of columns, size and time of images."""
        digest = hashlib.sha256(repr((self.item, self.features, self.text, self.image, self.group)).encode())
        for file in files_of(self.path):
            digest.update(file_digest(file).encode())
        if self.image:
            for batch in self.batches(NAMES):
                for path in batch.inputs:
                    digest.update(_stamp(path).encode())
        return digest.hexdigest()

    def _seen(self) -> tuple[str, ...]:
        if self.text or self.image:
            return (str(self.text or self.image),)
        if self.features:
            return self.features
        seen = tuple(name for name in column_names(self.path) if name not in (self.item, self.group))
        if not seen:
            raise BadTable(f"{self.path}: no column but {self.item!r}; expected features, or --text or --image")
        return seen

    def _items(self, table: pa.Table, first: int) -> list[str]:
        names = _texts(table.column(self.item))
        if None in names:
            where = place_in_file(self.path)(first + names.index(None))
            raise BadTable(f"{where}: the {self.item} is empty; expected a name in every row")
        return [name for name in names if name is not None]

    def _batch(self, table: pa.Table, first: int, seen: tuple[str, ...]) -> Batch:
        items = self._items(table, first)
        groups: list[str | None] = [None] * len(items) if self.group is None else _texts(table.column(self.group))
        if self.kind == "features":
            values, columns = self._features(table, first, seen)
            return Batch(first, items, "features", values, columns, groups)
        texts = _texts(table.column(seen[0]))
        if self.kind == "text":
            return Batch(first, items, "text", texts, seen, groups)
        folder = self.folder or (self.path if is_arrow(self.path) and self.path.is_dir() else self.path.parent)
        return Batch(first, items, "image", [None if name is None else folder / name for name in texts], seen, groups)

    def _features(self, table: pa.Table, first: int, seen: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
        place_of = place_in_file(self.path)

        def vectors_of(name: str) -> Array:
            where = f"{self.path}, column {name!r} (name the features with --features)"
            return vectors(table.column(name), where, lambda row: place_of(first + row))

        parts = [vectors_of(name) for name in seen]
        values: Array = np.hstack(parts)
        return values, seen if values.shape[1] == len(seen) else ()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    found: list[str | None] = empty_as_null(as_text(column)).to_pylist()
    return found


def _stamp(path: Path | None) -> str:
    try:
        status = None if path is None else path.stat()
    except OSError:
        status = None
    return f"{path}\n" if status is None else f"{path} {status.st_size} {status.st_mtime_ns}\n"


def labels_of(path: Path, item: str, label: str = "label") -> dict[str, str]:
    """Item -> label from a table, or from a saved consensus (.npz); rows without a label are left out.

    Raises BadTable for an item that has two.
    """
    pairs: Sequence[tuple[Any, Any]]
    if path.suffix == ".npz":
        from hitl.consensus import Consensus

        judged = Consensus.load(path).frame()
        pairs = list(zip(judged["item"].astype(str), judged["label"].astype(str), strict=True))
    else:
        table = read_table(path, [item, label])
        require_columns(table, [item, label], str(path))
        pairs = list(zip(table.column(item).to_pylist(), table.column(label).to_pylist(), strict=True))
    known = [(name, said) for name, said in pairs if name and said]
    labels = dict(known)
    if len(labels) < len(known):
        raise BadTable(f"{path}: an item appears twice; expected one label each")
    return labels
