"""A folder of shards as a sequence of `Evidence`: each is mapped into memory when it is asked for."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.annotations import Annotations, Ints, Names
from hitl.errors import BadEvidence, BadTable
from hitl.evidence import Evidence
from hitl.shards import places
from hitl.shards.forms import MANIFEST, Contents, Manifest


class MappedAnnotations(Annotations):
    """The annotations of a shard. What the hot loops read is that of the file; the rest is made when it is asked for.

    It is not checked: who wrote the shard has done that, and a checksum says that it is what was written.
    """

    item_names: pa.Array
    """(N,) the names of the items, not yet as Python has them."""

    @classmethod
    def of(cls, contents: Contents, annotators: Names, like: Manifest) -> MappedAnnotations:
        """The annotations in the contents of a shard."""
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
        """N, items labeled or not."""
        return len(self.items)

    def __len__(self) -> int:
        """M, the number of annotations."""
        return int(self.item_start[-1])

    @cached_property
    def items(self) -> Names:
        """(N,) names."""
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
    """The shards of one or several folders: `len`, `[i]`, and what they have in common.

    `shards[i]` reads the shard anew each time and holds nothing: let go of it before you take the next one. The first
    time it is checked against its checksum. A shard at an address is read from there each time, unless copies are
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
        """Take the shards of folders whose codes agree; the longest list of annotators names those of all."""
        self.manifest = max((manifest for _, manifest in folders), key=lambda manifest: len(manifest.annotators))
        self._shards = [(folder, shard) for folder, manifest in folders for shard in manifest.shards]
        self._checked: set[int] = set()
        self._copies: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which may be on another machine."""
        return {**vars(self), "_copies": None, "_checked": set()}

    def with_copies(self, folder: str) -> StoredShards:
        """Copy shards at an address to this local folder when they are first requested."""
        copied = object.__new__(StoredShards)
        vars(copied).update(self.__getstate__(), _copies=folder)
        return copied

    @classmethod
    def open(cls, *patterns: str) -> StoredShards:
        """The shards of all folders that the paths, globs or addresses name, in their order.

        Raises BadTable where a folder holds no shards, or not in the same codes as the others (see `encode`, `like`).
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
        """J names."""
        return self.manifest.classes

    @property
    def annotators(self) -> Names:
        """K names."""
        return self.manifest.annotators

    @property
    def options(self) -> Names:
        """L names, the classes first."""
        return self.manifest.options

    @property
    def n_items(self) -> int:
        """N, of all shards."""
        return sum(shard.items for _, shard in self._shards)

    @property
    def n_labels(self) -> int:
        """M, of all shards."""
        return sum(shard.labels for _, shard in self._shards)

    @property
    def checksums(self) -> tuple[int, ...]:
        """One a shard: two lists that are equal are of the same data."""
        return tuple(shard.checksum for _, shard in self._shards)

    def __len__(self) -> int:
        """Number of shards."""
        return len(self._shards)

    @overload
    def __getitem__(self, which: int) -> Evidence: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[Evidence]: ...
    def __getitem__(self, which: int | slice) -> Evidence | Sequence[Evidence]:
        """Shard number `which`. Raises BadTable where the file is not what was written."""
        if isinstance(which, slice):
            chosen = object.__new__(StoredShards)
            vars(chosen).update(self.__getstate__(), _shards=self._shards[which])
            return chosen
        contents = self.contents(which)
        annotations = MappedAnnotations.of(contents, self.annotators, self.manifest)
        truth = np.full(len(contents.items), -1, np.int32) if contents.truth is None else contents.truth
        return Evidence.trusted(annotations, contents.probabilities, truth, contents.sequence)

    def contents(self, which: int) -> Contents:
        """The arrays of a shard, of the file as it is mapped. Raises BadTable where it is not what was written."""
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
        """Raise BadTable where two folders have an item in common. It looks at the names of items whose hashes meet."""
        for one, (folder, shard) in enumerate(self._shards):
            meeting = [
                other
                for other, (elsewhere, its) in enumerate(self._shards[:one])
                if elsewhere != folder and _meet(shard.buckets, its.buckets)
            ]
            names = self.contents(one).items if meeting else None
            for other in meeting:
                twice = names.filter(pc.is_in(names, value_set=self.contents(other).items))  # type: ignore[union-attr]
                if len(twice):
                    raise BadTable(
                        f"{folder} and {self._shards[other][0]} both have the item {twice[0].as_py()!r}; make one "
                        "folder of shards of all tables"
                    )


def _meet(one: Sequence[int] | None, two: Sequence[int] | None) -> bool:
    """Return True if these buckets may share items; unknown buckets may be any."""
    return one is None or two is None or (one[0] < two[1] and two[0] < one[1])


def manifest_of(folder: str) -> Manifest:
    """The manifest of a folder of shards. Raises BadTable where it has none."""
    place = places.join(folder, MANIFEST)
    if not places.exists(place):
        raise BadTable(f"{folder}: no shards: {MANIFEST} is not there; make them with `hitl shard TABLES -o {folder}`")
    return Manifest.from_bytes(places.read(place), place)


def write(evidences: Sequence[Evidence], folder: str) -> None:
    """Write tables with the same classes, options and annotators, and disjoint items, as a shard each.

    Features and graph are not kept. Raises BadTable where the folder does not exist; BadEvidence where a sequence is in
    two of the tables.
    """
    from hitl.shards.forms import Folder

    _require_whole_sequences(evidences)
    written = Folder(folder)
    for evidence in evidences:
        annotations = evidence.annotations
        truth = evidence.truth
        items = pa.array(annotations.items)
        start, cell = annotations.item_start, annotations.cell
        others = evidence.probabilities, evidence.sequence
        written.add(Contents(items, start, cell, annotations.time, truth, *others))
    first, models = evidences[0].annotations, tuple(evidences[0].probabilities)
    common = Manifest(first.classes, first.options, first.annotators, first.anonymous, models, True, ())
    written.conclude(common)


def _require_whole_sequences(evidences: Sequence[Evidence]) -> None:
    shard_of: dict[int, int] = {}
    for number, evidence in enumerate(evidences):
        for one in [] if evidence.sequence is None else np.unique(evidence.sequence[:, 0]).tolist():
            if shard_of.setdefault(one, number) != number:
                raise BadEvidence(
                    f"sequence {one} is in the tables {shard_of[one]} and {number}; expected all its items in one"
                )


def _common(manifest: Manifest) -> tuple[Any, ...]:
    """Return what all folders must share."""
    return manifest.classes, manifest.options, manifest.models
