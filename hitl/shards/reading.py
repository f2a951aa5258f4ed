"""Write folders of shards, and read them as a sequence of `Evidence` that maps each shard into memory on access.

    manifest.json       classes, options, annotators, models; size and checksum of each shard; written last
    shard-00000.arrow   one row per item (Arrow IPC, not compressed, one record batch):
        item                string or int64
        cell                list of uint32 (uint64 if that is too small): for each label of the item
                            annotator * number of options + option, ascending
        time                list of float64: seconds since the epoch of each label, NaN if unknown; only with times
        truth               int32: class code, -1 if unknown; only if any truth is known
        sequence            list of two int64: sequence and position; only if the items are in sequences
        p of MODEL          list of float64, one per class, NaN if the model abstains

Compiled code reads the arrays of a list column directly: its offsets show where the labels of an item begin, and its
values are the labels. They are mapped from the file without a copy. Any Arrow reader can open the file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.annotations import Annotations, Floats, Ints, Names
from hitl.errors import BadEvidence, BadTable
from hitl.evidence import Evidence
from hitl.shards import places

MANIFEST = "manifest.json"
MODEL = "p of "
"""Prefix of the column names of model probabilities."""


@dataclass(frozen=True, slots=True)
class Shard:
    """File of a shard: name, numbers of items and labels, size in bytes, and CRC-32.

    `buckets`: half-open range of the buckets of the items' hashes; None if the items were not hashed.
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

    The code of a class, option or annotator is its position. `anonymous`: code of annotators without ids, or None.
    `models`: names of the models whose probabilities are stored.
    """

    classes: Names
    options: Names
    annotators: Names
    anonymous: int | None
    models: tuple[str, ...]
    shards: tuple[Shard, ...] = ()

    @property
    def items(self) -> int:
        """Number of items in all shards."""
        return sum(shard.items for shard in self.shards)

    @property
    def labels(self) -> int:
        """Number of labels in all shards."""
        return sum(shard.labels for shard in self.shards)

    @property
    def common(self) -> tuple[Any, ...]:
        """Properties that must be equal in folders that are combined."""
        return self.classes, self.options, self.models

    @classmethod
    def read(cls, folder: str) -> Manifest:
        """Read the manifest of a folder of shards. Raise BadTable if there is none, or it has other fields."""
        place = places.join(folder, MANIFEST)
        if not places.exists(place):
            raise BadTable(
                f"{folder}: no shards: {MANIFEST} is not there; make them with `hitl shard TABLES -o {folder}`"
            )
        try:
            stored = _with_fields_of(cls, json.loads(places.read(place)))
            stored["shards"] = [Shard(**_with_fields_of(Shard, shard)) for shard in stored["shards"]]
            names = ("classes", "options", "annotators", "models", "shards")
            return cls(**stored | {name: tuple(stored[name]) for name in names})
        except (ValueError, TypeError, LookupError) as error:
            raise BadTable(
                f"{place}: no manifest that this version of hitl reads: {error}; make the shards again (hitl shard)"
            ) from None


def _with_fields_of(kind: type[Manifest | Shard], stored: Any) -> dict[str, Any]:
    """Return the stored fields. Raise ValueError unless they are exactly those of the class."""
    names = {one.name for one in fields(kind)}
    if not isinstance(stored, dict) or stored.keys() != names:
        wrong = sorted(names ^ stored.keys()) if isinstance(stored, dict) else [type(stored).__name__]
        raise ValueError(f"missing or unknown: {', '.join(wrong)}")
    return stored


class MappedAnnotations(Annotations):
    """Annotations of a shard, with arrays that are mapped from its file. Everything else is built on demand.

    They are not validated, because the writer did that, and a checksum detects changes.
    """

    item_names: pa.Array
    """(N,) names of the items as an Arrow array."""

    @classmethod
    def of(
        cls,
        items: pa.Array,
        item_start: npt.NDArray[np.int64],
        cell: npt.NDArray[Any],
        time: Floats | None,
        annotators: Names,
        common: Manifest,
    ) -> MappedAnnotations:
        """Build from the arrays of a shard: item n has the labels item_start[n]:item_start[n + 1]."""
        made = object.__new__(cls)
        vars(made).update(
            item_names=items,
            n_items=len(items),
            item_start=item_start,
            cell=cell,
            annotators=annotators,
            classes=common.classes,
            options=common.options,
            anonymous=common.anonymous,
            time=time,
            duration=None,
        )
        return made

    @cached_property
    def n_items(self) -> int:
        """Number of items, labeled or not."""
        return len(self.items)

    def __len__(self) -> int:
        """Return the number of annotations."""
        return int(self.item_start[-1])

    @cached_property
    def items(self) -> Names:
        """(N,) item names."""
        return tuple(self.item_names.to_pylist())

    @cached_property
    def item(self) -> Ints:
        """(M,) item codes."""
        return np.repeat(np.arange(self.n_items, dtype=np.int32), self.labels_per_item)

    @cached_property
    def annotator(self) -> Ints:
        """(M,) annotator codes."""
        return (self.cell // self.cell.dtype.type(self.n_options)).astype(np.int32)

    @cached_property
    def label(self) -> Ints:
        """(M,) option codes."""
        return (self.cell % self.cell.dtype.type(self.n_options)).astype(np.int32)


# -- writing -----------------------------------------------------------------------------------------------


class Folder:
    """Writer of a folder of shards. The manifest is written last; without it the folder is not valid."""

    def __init__(self, folder: str) -> None:
        """Write into an existing folder, a path or an address."""
        self._folder = folder
        self._shards: list[Shard] = []

    def add(self, evidence: Evidence, buckets: tuple[int, int] | None = None) -> None:
        """Write the next shard. `buckets`: range of the buckets of its items, if they were hashed."""
        of = evidence.annotations
        items = of.item_names if isinstance(of, MappedAnnotations) else pa.array(of.items)
        columns: dict[str, pa.Array] = {"item": items, "cell": _of_items(of, of.cell)}
        if of.time is not None:
            columns["time"] = _of_items(of, of.time)
        if evidence.known.any():
            columns["truth"] = pa.array(evidence.truth)
        if evidence.sequence is not None:
            columns["sequence"] = _rows(evidence.sequence, np.int64)
        columns |= {MODEL + model: _rows(p_nj, np.float64) for model, p_nj in evidence.probabilities.items()}
        batch, sink = pa.record_batch(columns), pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = sink.getvalue()
        shard = Shard(
            f"shard-{len(self._shards):05d}.arrow", of.n_items, len(of), content.size, zlib.crc32(content), buckets
        )
        places.write(places.join(self._folder, shard.file), content)
        self._shards.append(shard)

    def conclude(self, common: Manifest) -> Manifest:
        """Write and return the manifest: the common properties, and the list of the shards written."""
        manifest = replace(common, shards=tuple(self._shards))
        text = json.dumps(asdict(manifest), indent=1, ensure_ascii=False)
        places.write(places.join(self._folder, MANIFEST), text.encode() + b"\n")
        return manifest


def write(evidences: Sequence[Evidence], folder: str) -> None:
    """Write each evidence as one shard. They must have the same classes, options and annotators, and no common items.

    Features and graph are not stored. Raise BadTable if the folder does not exist, and BadEvidence if a sequence is in
    two shards.
    """
    shard_of: dict[int, int] = {}
    for number, evidence in enumerate(evidences):
        for one in [] if evidence.sequence is None else np.unique(evidence.sequence[:, 0]).tolist():
            if shard_of.setdefault(one, number) != number:
                raise BadEvidence(
                    f"sequence {one} is in the tables {shard_of[one]} and {number}; expected all its items in one"
                )
    written = Folder(folder)
    for evidence in evidences:
        written.add(evidence)
    first, models = evidences[0].annotations, tuple(evidences[0].probabilities)
    written.conclude(Manifest(first.classes, first.options, first.annotators, first.anonymous, models))


def _of_items(annotations: Annotations, values: npt.NDArray[Any]) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(annotations.item_start), pa.array(values))


def _rows(values: npt.NDArray[Any], of: type) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values, of).ravel()), values.shape[1])


# -- reading -----------------------------------------------------------------------------------------------


class StoredShards(Sequence[Evidence]):
    """Shards of one or several folders, as a sequence, with their common properties.

    `shards[i]` reads the shard each time and keeps no reference to it. To save memory, release it before you read the
    next one. Its checksum is verified on first access. A shard at an address is read from there each time, unless there
    are local copies (`with_copies`).

    Example:
        >>> import tempfile
        >>> from hitl import Annotations, Evidence
        >>> from hitl.shards.reading import StoredShards, write
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0], [1, 1]], classes=["cat", "dog"]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write([evidence], folder)
        ...     StoredShards.open(folder)[0].annotations.label.tolist()
        [0, 0, 1, 1]
    """

    def __init__(self, folders: Sequence[tuple[str, Manifest]]) -> None:
        """Combine the shards of folders with consistent codes.

        The names of annotators are those of the folder with the longest list.
        """
        self.manifest = max((manifest for _, manifest in folders), key=lambda manifest: len(manifest.annotators))
        self.classes, self.options = self.manifest.classes, self.manifest.options
        self.annotators = self.manifest.annotators
        self._shards = [(folder, shard) for folder, manifest in folders for shard in manifest.shards]
        self._checked: set[int] = set()
        self._copies: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, perhaps on another machine."""
        return {**vars(self), "_copies": None, "_checked": set()}

    def with_copies(self, folder: str) -> StoredShards:
        """Return these shards, with those at an address copied to this local folder on first access."""
        return self._changed(_copies=folder)

    def _changed(self, **values: Any) -> StoredShards:
        copy = object.__new__(StoredShards)
        vars(copy).update(self.__getstate__() | values)
        return copy

    @classmethod
    def open(cls, *patterns: str) -> StoredShards:
        """Open the shards of all folders that the paths, globs or addresses name, in order.

        Raise BadTable if a folder has no shards, or its codes differ from the others. To get the same codes, use the
        argument `like` of `encode`.
        """
        folders = [place for pattern in patterns for place in places.matching(pattern)]
        manifests = [(folder, Manifest.read(folder)) for folder in folders]
        shards = cls(manifests)
        for folder, manifest in manifests:
            same_codes = manifest.annotators == shards.annotators[: len(manifest.annotators)]
            if not same_codes or manifest.common != manifests[0][1].common:
                raise BadTable(
                    f"{folder}: its shards have other classes, options, models or codes of annotators than those in "
                    f"{folders[0]}; expected shards that were made alike (hitl shard --like {folders[0]})"
                )
        return shards

    @property
    def n_items(self) -> int:
        """Number of items in all shards."""
        return sum(shard.items for _, shard in self._shards)

    @property
    def n_labels(self) -> int:
        """Number of labels in all shards."""
        return sum(shard.labels for _, shard in self._shards)

    @property
    def checksums(self) -> tuple[int, ...]:
        """One checksum per shard. If all of them are equal, the data are equal."""
        return tuple(shard.checksum for _, shard in self._shards)

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._shards)

    @overload
    def __getitem__(self, which: int) -> Evidence: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[Evidence]: ...
    def __getitem__(self, which: int | slice) -> Evidence | Sequence[Evidence]:
        """Map the shard with this number from its file. Raise BadTable if the file has changed since it was written."""
        if isinstance(which, slice):
            return self._changed(_shards=self._shards[which])
        batch = self._batch(which)
        columns = {name: batch.column(name) for name in batch.schema.names}
        cells, time, sequence = columns["cell"], columns.get("time"), columns.get("sequence")
        arrays = np.asarray(cells.offsets), np.asarray(cells.values), None if time is None else np.asarray(time.values)
        models = {name.removeprefix(MODEL): _matrix(p_nj) for name, p_nj in columns.items() if name.startswith(MODEL)}
        return Evidence.trusted(
            MappedAnnotations.of(columns["item"], *arrays, self.annotators, self.manifest),
            models,
            np.asarray(columns["truth"]) if "truth" in columns else np.full(len(cells), -1, np.int32),
            None if sequence is None else _matrix(sequence),
        )

    def _batch(self, which: int) -> pa.RecordBatch:
        folder, shard = self._shards[which]
        place = places.join(folder, shard.file)
        if self._copies is not None and places.is_address(place):
            copy = str(Path(self._copies, f"{which}.arrow"))
            if not places.exists(copy):
                places.write(copy, places.read(place))
            place = copy
        source = places.mapped(place)
        if which not in self._checked:
            if source.size() != shard.bytes or zlib.crc32(source.read_buffer()) != shard.checksum:
                raise BadTable(f"{place}: the file is not what was written; make the shards anew (hitl shard)")
            source.seek(0)
            self._checked.add(which)
        return pa.ipc.open_file(source).get_batch(0)

    def require_disjoint(self) -> None:
        """Raise BadTable if two folders share an item. Only shards whose ranges of buckets overlap are compared."""
        for (other, (elsewhere, its)), (one, (folder, shard)) in combinations(enumerate(self._shards), 2):
            if elsewhere == folder or not _may_meet(shard.buckets, its.buckets):
                continue
            names = self._batch(one).column("item")
            twice = names.filter(pc.is_in(names, value_set=self._batch(other).column("item")))
            if len(twice):
                raise BadTable(
                    f"{folder} and {elsewhere} both have the item {twice[0].as_py()!r}; make one folder of shards of "
                    "all tables"
                )


def _may_meet(one: Sequence[int] | None, two: Sequence[int] | None) -> bool:
    """Return True if two ranges of buckets overlap. None is an unknown range, which may overlap any other."""
    return one is None or two is None or (one[0] < two[1] and two[0] < one[1])


def _matrix(column: pa.FixedSizeListArray) -> npt.NDArray[Any]:
    return np.asarray(column.values).reshape(len(column), column.type.list_size)
