"""File formats of a folder of shards.

    manifest.json       classes, options, annotators, other data besides labels; size and checksum of each shard
    shard-00000.arrow   one row per item (Arrow IPC, not compressed, one record batch):
        item                string or int64
        cell                list of uint32 (uint64 if there are many): annotator * options + option, ascending
        time                list of float64: seconds since the epoch of each label, NaN if unknown; optional
        truth               int32: class code, -1 if unknown; optional
        sequence            list of two int64: sequence and position; if the items are in sequences
        p of MODEL          list of float64, one per class, NaN if the model abstains

The hot loops read a list column directly: its offsets mark where the labels of an item begin, its values are the
labels. Mapping the file provides these without a copy. Any Arrow reader opens the same file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Floats, Ints, Name, Names
from hitl.errors import BadTable
from hitl.shards import places
from hitl.tables.encode import natural_order

MANIFEST = "manifest.json"
MODEL = "p of "
"""Prefix of the column names of model probabilities."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: its numbers of items and labels, size in bytes, and CRC-32.

    `buckets`: half-open range of the buckets of its items' hashes; None if its items were not hashed.
    """

    file: str
    items: int
    labels: int
    bytes: int
    checksum: int
    buckets: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """List of shards, and their common properties.

    The position of a name is its code; `anonymous` is the code of annotators without ids, or None. `models` have
    columns of probabilities.
    """

    classes: Names
    options: Names
    annotators: Names
    anonymous: int | None
    models: tuple[str, ...]
    truth: bool
    shards: tuple[Shard, ...]

    @property
    def items(self) -> int:
        """Number of items in all shards."""
        return sum(shard.items for shard in self.shards)

    @property
    def labels(self) -> int:
        """Number of labels in all shards."""
        return sum(shard.labels for shard in self.shards)

    def to_bytes(self) -> bytes:
        """Return JSON."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, packed: bytes, where: str) -> Manifest:
        """Parse the output of `to_bytes`. Raise BadTable, naming the place, for anything else."""
        try:
            found = json.loads(packed)
            found["shards"] = tuple(Shard(**shard) for shard in found["shards"])
            names = ("classes", "options", "annotators", "models")
            return cls(**found | {name: tuple(found[name]) for name in names})
        except (ValueError, TypeError, LookupError) as error:
            raise BadTable(f"{where}: no manifest of shards: {error}") from None


@dataclass(frozen=True)
class Contents:
    """Arrays of one shard: item n has the labels item_start[n]:item_start[n + 1]."""

    items: pa.Array
    item_start: npt.NDArray[np.int64]
    cell: npt.NDArray[Any]
    time: Floats | None
    truth: Ints | None
    probabilities: Mapping[str, Floats]
    sequence: npt.NDArray[np.int64] | None = None

    def to_bytes(self) -> pa.Buffer:
        """Return the file's bytes."""
        columns: dict[str, pa.Array] = {"item": self.items, "cell": self._of_items(self.cell)}
        if self.time is not None:
            columns["time"] = self._of_items(self.time)
        if self.truth is not None:
            columns["truth"] = pa.array(self.truth)
        if self.sequence is not None:
            columns["sequence"] = _rows(self.sequence, np.int64)
        for model, p_nj in self.probabilities.items():
            columns[MODEL + model] = _rows(p_nj, np.float64)
        batch = pa.record_batch(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue()

    def _of_items(self, values: npt.NDArray[Any]) -> pa.Array:
        return pa.LargeListArray.from_arrays(pa.array(self.item_start), pa.array(values))

    @classmethod
    def mapped(cls, source: Any) -> Contents:
        """Read an open Arrow file without copying its arrays."""
        file = pa.ipc.open_file(source)
        batch = file.get_batch(0)
        cells = batch.column("cell")
        beside = {name: batch.column(name) for name in batch.schema.names}
        models = [name.removeprefix(MODEL) for name in batch.schema.names if name.startswith(MODEL)]
        return cls(
            batch.column("item"),
            np.asarray(cells.offsets),
            np.asarray(cells.values),
            np.asarray(beside["time"].values) if "time" in beside else None,
            np.asarray(beside["truth"]) if "truth" in beside else None,
            {model: _matrix(beside[MODEL + model]) for model in models},
            _matrix(beside["sequence"]) if "sequence" in beside else None,
        )


def _rows(values: npt.NDArray[Any], of: type) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values, of).ravel()), values.shape[1])


def _matrix(column: pa.FixedSizeListArray) -> npt.NDArray[Any]:
    return np.asarray(column.values).reshape(len(column), column.type.list_size)


class Folder:
    """Folder of shards being written. Its manifest comes last; without it the folder is not valid."""

    def __init__(self, folder: str) -> None:
        """Take an existing folder, a path or an address."""
        self.folder = folder
        self._shards: list[Shard] = []

    def add(self, contents: Contents, buckets: tuple[int, int] | None = None) -> None:
        """Write the next shard; `buckets` is the range of its items, if they are hashed."""
        name = f"shard-{len(self._shards):05d}.arrow"
        packed = contents.to_bytes()
        places.write(places.join(self.folder, name), packed)
        checksum = zlib.crc32(packed)
        shard = Shard(name, len(contents.items), len(contents.cell), packed.size, checksum, buckets)
        self._shards.append(shard)

    def conclude(self, common: Manifest) -> Manifest:
        """Write the manifest, with the shards' common properties and their list."""
        manifest = replace(common, shards=tuple(self._shards))
        places.write(places.join(self.folder, MANIFEST), manifest.to_bytes())
        return manifest


def cell_type(n_annotators: int, n_options: int) -> type[np.uint32] | type[np.uint64]:
    """Return the smallest type that holds annotator * options + option, as in `Annotations.cell`."""
    return np.uint64 if n_annotators * n_options > 2**32 else np.uint32


def in_order(known: Names, found: list[Name]) -> Names:
    """Return the known names in their order, then new names in natural order."""
    there = set(known)
    return (*known, *natural_order([name for name in found if name not in there]))
