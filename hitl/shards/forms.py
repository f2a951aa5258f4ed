"""What a folder of shards holds.

    manifest.json       classes, options, annotators, what there is beside the labels; each shard, its size and checksum
    shard-00000.arrow   a row is an item (Arrow IPC, not compressed, one record batch):
        item                string or int64
        cell                list of uint32 (uint64 where there are many): annotator * options + option, in rising order
        time                list of float64: seconds since the epoch of each label, NaN where unknown; if there are any
        truth               int32: class code, -1 where unknown; if any is known
        sequence            list of two int64: which sequence, which position; if the items are in sequences
        p of MODEL          list of float64 of the length of the classes, NaN where the model abstains

A list column is what the hot loops read: its offsets say where the labels of an item begin, its values are the labels.
A map of the file gives them these without a copy. Any reader of Arrow opens the same file.
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
from hitl.tables.encoding import natural_order

MANIFEST = "manifest.json"
MODEL = "p of "
"""What the column of a model's probabilities begins with."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: how many items and labels it has, its size in bytes, and the CRC-32 of its bytes.

    `buckets`: of the hashes of its items, from the first to before the last; None where its items were not hashed.
    """

    file: str
    items: int
    labels: int
    bytes: int
    checksum: int
    buckets: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """List of shards, and what they have in common.

    The place of a name is its code; `anonymous` is the code of annotators without ids, or None. `models` have columns
    of probabilities.
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
        """Items of all shards."""
        return sum(shard.items for shard in self.shards)

    @property
    def labels(self) -> int:
        """Labels of all shards."""
        return sum(shard.labels for shard in self.shards)

    def to_bytes(self) -> bytes:
        """Return JSON."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, packed: bytes, where: str) -> Manifest:
        """Read what `to_bytes` made. Raises BadTable, naming the place, for anything else."""
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
        """The file."""
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
    """A folder of shards that is being written; without its manifest, which comes last, it is none."""

    def __init__(self, folder: str) -> None:
        """`folder` is a path or an address, and is there."""
        self.folder = folder
        self._shards: list[Shard] = []

    def add(self, contents: Contents, buckets: tuple[int, int] | None = None) -> None:
        """Write the next shard; `buckets` are those of its items, if they are hashed."""
        name = f"shard-{len(self._shards):05d}.arrow"
        packed = contents.to_bytes()
        places.write(places.join(self.folder, name), packed)
        checksum = zlib.crc32(packed)
        shard = Shard(name, len(contents.items), len(contents.cell), packed.size, checksum, buckets)
        self._shards.append(shard)

    def conclude(self, common: Manifest) -> Manifest:
        """Write the manifest: what the shards have in common, and the list of them."""
        manifest = replace(common, shards=tuple(self._shards))
        places.write(places.join(self.folder, MANIFEST), manifest.to_bytes())
        return manifest


def cell_type(n_annotators: int, n_options: int) -> type[np.uint32] | type[np.uint64]:
    """The smallest type that holds annotator * options + option, as `Annotations.cell` has it."""
    return np.uint64 if n_annotators * n_options > 2**32 else np.uint32


def in_order(known: Names, found: list[Name]) -> Names:
    """Names with the places that they have, then those that are new, in natural order."""
    there = set(known)
    return (*known, *natural_order([name for name in found if name not in there]))
