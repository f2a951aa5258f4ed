"""A folder of shards as a sequence of `Evidence`. Each shard is mapped into memory on access."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.annotations import Annotations, Ints, Names
from hitl.errors import BadEvidence, BadTable
from hitl.evidence import Evidence
from hitl.shards import places
from hitl.shards.forms import MANIFEST, Contents, Folder, Manifest


class MappedAnnotations(Annotations):
    """Annotations of a shard. The hot loops read arrays of the file; everything else is built on demand.

    They are not validated: the writer has done that, and a checksum detects changes.
    """

    item_names: pa.Array
    """(N,) names of the items as an Arrow array."""

    @classmethod
    def of(cls, contents: Contents, annotators: Names, like: Manifest) -> MappedAnnotations:
        """Build from the contents of a shard."""
        made = object.__new__(cls)
        vars(made).update(
            item_names=contents.items,
            n_items=len(contents.items),
            item_start=contents.item_start,
            cell=contents.cell,
            annotators=annotators,
            classes=like.classes,
            options=like.options,
            anonymous=like.anonymous,
            time=contents.time,
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


class StoredShards(Sequence[Evidence]):
    """Shards of one or several folders: `len`, `[i]`, and their common properties.

    `shards[i]` reads the shard each time and holds nothing: release it before you take the next one. On first
    access its checksum is verified. A shard at an address is read from there each time, unless copies are
    kept (`with_copies`).

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
        """Take the shards of folders with consistent codes.

        The longest list of annotators provides the names for all.
        """
        self.manifest = max((manifest for _, manifest in folders), key=lambda manifest: len(manifest.annotators))
        self._shards = [(folder, shard) for folder, manifest in folders for shard in manifest.shards]
        self._checked: set[int] = set()
        self._copies: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, perhaps on another machine."""
        return {**vars(self), "_copies": None, "_checked": set()}

    def with_copies(self, folder: str) -> StoredShards:
        """Copy shards at an address to this local folder on first access."""
        copied = object.__new__(StoredShards)
        vars(copied).update(self.__getstate__(), _copies=folder)
        return copied

    @classmethod
    def open(cls, *patterns: str) -> StoredShards:
        """Open the shards of all folders that the paths, globs or addresses name, in order.

        Raise BadTable if a folder holds no shards, or its codes differ from the others' (see `encode`, `like`).
        """
        folders = [place for pattern in patterns for place in places.matching(pattern)]
        found = [(folder, manifest_of(folder)) for folder in folders]
        shards, first = cls(found), found[0][1]
        for folder, manifest in found:
            known = shards.annotators[: len(manifest.annotators)]
            if manifest.annotators != known or _common(manifest) != _common(first):
                raise BadTable(
                    f"{folder}: its shards have other classes, options, models or codes of annotators than those in "
                    f"{folders[0]}; expected shards that were made alike (hitl shard --like {folders[0]})"
                )
        return shards

    @property
    def classes(self) -> Names:
        """Class names."""
        return self.manifest.classes

    @property
    def annotators(self) -> Names:
        """Annotator names."""
        return self.manifest.annotators

    @property
    def options(self) -> Names:
        """Option names, the classes first."""
        return self.manifest.options

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
        """One checksum per shard: equal lists mean equal data."""
        return tuple(shard.checksum for _, shard in self._shards)

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._shards)

    @overload
    def __getitem__(self, which: int) -> Evidence: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[Evidence]: ...
    def __getitem__(self, which: int | slice) -> Evidence | Sequence[Evidence]:
        """Read shard number `which`. Raise BadTable if the file has changed since it was written."""
        if isinstance(which, slice):
            chosen = object.__new__(StoredShards)
            vars(chosen).update(self.__getstate__(), _shards=self._shards[which])
            return chosen
        contents = self.contents(which)
        annotations = MappedAnnotations.of(contents, self.annotators, self.manifest)
        truth = np.full(len(contents.items), -1, np.int32) if contents.truth is None else contents.truth
        return Evidence.trusted(annotations, contents.probabilities, truth, contents.sequence)

    def contents(self, which: int) -> Contents:
        """Return the arrays of a shard, mapped from its file. Raise BadTable if it has changed since it was written."""
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
        return Contents.mapped(source)

    def require_disjoint(self) -> None:
        """Raise BadTable if two folders share an item. Only names with equal hashes are compared."""
        for (other, (elsewhere, its)), (one, (folder, shard)) in combinations(enumerate(self._shards), 2):
            if elsewhere == folder or not _meet(shard.buckets, its.buckets):
                continue
            names = self.contents(one).items
            twice = names.filter(pc.is_in(names, value_set=self.contents(other).items))
            if len(twice):
                raise BadTable(
                    f"{folder} and {elsewhere} both have the item {twice[0].as_py()!r}; make one folder of shards of "
                    "all tables"
                )


def _meet(one: Sequence[int] | None, two: Sequence[int] | None) -> bool:
    """Return True if these buckets may share items; unknown buckets may be any."""
    return one is None or two is None or (one[0] < two[1] and two[0] < one[1])


def manifest_of(folder: str) -> Manifest:
    """Read the manifest of a folder of shards. Raise BadTable if it has none."""
    place = places.join(folder, MANIFEST)
    if not places.exists(place):
        raise BadTable(f"{folder}: no shards: {MANIFEST} is not there; make them with `hitl shard TABLES -o {folder}`")
    return Manifest.from_bytes(places.read(place), place)


def write(evidences: Sequence[Evidence], folder: str) -> None:
    """Write tables with the same classes, options and annotators, and disjoint items, as one shard each.

    Features and graph are not stored. Raise BadTable if the folder does not exist; BadEvidence if a sequence spans
    two of the tables.
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
        of, items = evidence.annotations, pa.array(evidence.annotations.items)
        arrays = of.item_start, of.cell, of.time, evidence.truth, evidence.probabilities, evidence.sequence
        written.add(Contents(items, *arrays))
    first, models = evidences[0].annotations, tuple(evidences[0].probabilities)
    written.conclude(Manifest(first.classes, first.options, first.annotators, first.anonymous, models, True, ()))


def _common(manifest: Manifest) -> tuple[Any, ...]:
    """Return the parts that all folders must share."""
    return manifest.classes, manifest.options, manifest.models
