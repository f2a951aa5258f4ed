"""Read a table of items for a model, in batches. Each row holds numbers, a text, the path of an image, or texts.

Only one batch and the names of the items are in memory at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.errors import BadSettings, BadTable
from hitl.tables.columns import as_text, empty_as_null, require_columns, require_names, vectors
from hitl.tables.read import batches, column_names, files_of, is_arrow, place_in_file, read_table

Kind = Literal["features", "text", "image", "fields"]
NAME_ROWS = 65_536
"""Number of rows per batch when only names or image paths are read."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive items of a table.

    Attributes:
        start: row of the first item in the table, from 0.
        items: names of the B items.
        kind: kind of `inputs`.
        inputs: (B, D) numbers, NaN if missing; or a list of B texts, image paths or fields (column -> text), None if
            missing.
        columns: names of the D features, or () if a list column holds several; for a text or image, its one column.
        groups: group of each item, None for items without one.
    """

    start: int
    items: list[str]
    kind: Kind
    inputs: Any
    columns: tuple[str, ...] = ()
    groups: list[str | None] = field(default_factory=list)

    @property
    def empty(self) -> npt.NDArray[np.bool_]:
        """(B,) True for items without any input."""
        if self.kind == "features":
            return np.asarray(np.isnan(self.inputs).all(axis=1))
        return np.array([value is None for value in self.inputs], dtype=np.bool_)

    def take(self, rows: npt.NDArray[np.intp]) -> Any:
        """Return the inputs of these rows of the batch."""
        return self.inputs[rows] if self.kind == "features" else [self.inputs[row] for row in rows]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Table of items and the columns that a model reads.

    Attributes:
        path: a table in any format that `hitl.tables.read` supports.
        item: column of item names, which are unique and not empty.
        features: columns of numbers or of lists of numbers, in the order the model expects; by default all columns but
            the item and the group.
        text, image: the single column of texts, or of image paths, that the model reads instead of features.
        folder: folder that relative image paths start from; None: the folder of the table.
        group: column with the group of each item; None: no groups.
        fields: True to read the features as texts by the names of their columns, for language models.
    """

    path: Path
    item: str = "item"
    features: tuple[str, ...] = ()
    text: str | None = None
    image: str | None = None
    folder: Path | None = None
    group: str | None = None
    fields: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("features", "text", "image") if getattr(self, name)]
        if len(given) > 1:
            raise BadSettings(f"--{' and --'.join(given)} exclude each other; a model sees one kind of input")

    @property
    def kind(self) -> Kind:
        """Kind of input that the model reads."""
        return "text" if self.text else "image" if self.image else "fields" if self.fields else "features"

    def names(self) -> list[str]:
        """Return all item names, in order. Raise BadTable for an empty or repeated name and for an empty table."""
        items: list[str] = []
        for table in batches(self.path, [self.item], NAME_ROWS):
            items += self._items(table, len(items))
        return require_names(items, "item", str(self.path), place_in_file(self.path))

    def batches(self, size: int, start: int = 0) -> Iterator[Batch]:
        """Yield the items in order from row `start` on, at most `size` at a time.

        Raise BadTable, which names column and row, for values that cannot be read.
        """
        seen = self._seen()
        columns = list(dict.fromkeys([self.item, *seen, *([self.group] if self.group else [])]))
        row = 0
        for table in batches(self.path, columns, size):
            first, row = row, row + table.num_rows
            if row > start:
                skipped = max(start - first, 0)
                yield self._batch(table.slice(skipped), first + skipped, seen)

    def digest(self) -> str:
        """Return a digest of the table's bytes, the chosen columns, and the sizes and modification times of images."""
        digest = hashlib.sha256(repr((self.item, self.features, self.text, self.image, self.group)).encode())
        for file in files_of(self.path):
            digest.update(file_digest(file).encode())
        if self.image:
            for batch in self.batches(NAME_ROWS):
                for path in batch.inputs:
                    digest.update(f"{path and stamp(path)}\n".encode())
        return digest.hexdigest()

    def _seen(self) -> tuple[str, ...]:
        if self.text or self.image:
            return (str(self.text or self.image),)
        seen = self.features or tuple(name for name in column_names(self.path) if name not in (self.item, self.group))
        if not seen:
            raise BadTable(f"{self.path}: no column but {self.item!r}; expected features, or --text or --image")
        return seen

    def _items(self, table: pa.Table, first: int) -> list[str]:
        names = _texts(table.column(self.item))
        if None in names:
            where = place_in_file(self.path, first)(names.index(None))
            raise BadTable(f"{where}: the {self.item} is empty; expected a name in every row")
        return names

    def _batch(self, table: pa.Table, first: int, seen: tuple[str, ...]) -> Batch:
        items = self._items(table, first)
        groups = [None] * len(items) if self.group is None else _texts(table.column(self.group))
        if self.kind == "features":
            parts = []
            for name in seen:
                where = f"{self.path}, column {name!r} (name the features with --features)"
                parts.append(vectors(table.column(name), where, place_in_file(self.path, first)))
            numbers = np.hstack(parts)
            return Batch(first, items, "features", numbers, seen if numbers.shape[1] == len(seen) else (), groups)
        values = _texts(table.column(seen[0]))
        if self.kind == "fields":
            rows = zip(*(_texts(table.column(name)) for name in seen), strict=True)
            values = [dict(zip(seen, row, strict=True)) if any(row) else None for row in rows]
        if self.kind == "image":
            folder = self.folder or (self.path if is_arrow(self.path) and self.path.is_dir() else self.path.parent)
            values = [None if name is None else folder / name for name in values]
        return Batch(first, items, self.kind, values, seen, groups)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def stamp(path: Path, name: str | None = None) -> str:
    """Return a text that changes when a file does: its name (default: the path), size and modification time."""
    try:
        status = path.stat()
    except OSError:
        return f"{name or path} is missing"
    return f"{name or path} {status.st_size} {status.st_mtime_ns}"


def read_labels(path: Path, item: str, label: str = "label") -> dict[str, str]:
    """Read item -> label from a table or a saved consensus (.npz). Rows without an item or a label are skipped.

    Raise BadTable if an item occurs twice.
    """
    if path.suffix == ".npz":
        from hitl.consensus import Consensus

        frame = Consensus.load(path).frame()
        columns = [frame["item"].astype(str).tolist(), frame["label"].astype(str).tolist()]
    else:
        table = read_table(path, [item, label])
        require_columns(table, [item, label], str(path))
        columns = [table.column(name).to_pylist() for name in (item, label)]
    pairs = [(name, value) for name, value in zip(*columns, strict=True) if name and value]
    labels = dict(pairs)
    if len(labels) < len(pairs):
        raise BadTable(f"{path}: an item appears twice; expected one label each")
    return labels


def _texts(column: pa.ChunkedArray) -> list[Any]:
    return list(empty_as_null(as_text(column)).to_pylist())
