"""What the rows of a text say of which item, by pieces of the file (`hitl.tables.pieces`).

    digests, lengths  of the bytes of each piece
    item, said        of each item that a piece names: a digest of the name, and one of all that its rows say

An item's rows stand anywhere. What they say in all is the sum over the pieces, so two states of a file say the same of
an item where the pieces that they do not share have equal sums. It follows from the bytes of the file alone, and is a
shortcut: a pull without one, or with one of another file, looks at everything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.connectors.table_blocks import in_codes
from hitl.tables import kept_arrays, pieces

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

FORM = 2
"""Another one is not read: without an index everything is, and there is a new one."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)


@dataclass(frozen=True, eq=False)
class Said:
    """What one piece says: of E items, in R rows with these labels."""

    rows: int
    item: Hashes
    said: Hashes
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Index:
    """What the P pieces of one file say.

    Attributes:
        read_as: which file it is, in which state, and as what its columns are read.
        digests, lengths: (P,) of the bytes.
        said: (P,) of the rows; none, where they cannot be told: such an index helps to cut the file (`pieces_in`), and
            is not read otherwise.
    """

    read_as: Mapping[str, Any]
    digests: tuple[bytes, ...]
    lengths: tuple[int, ...]
    said: tuple[Said, ...]

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(each.rows for each in self.said)

    @cached_property
    def labels(self) -> list[str]:
        """What the labels are, each once."""
        return [*dict.fromkeys(name for each in self.said for name in each.labels)]

    def touched(self, before: Index) -> Hashes:
        """The items, by the digest of their name, of which the two do not say the same; in order."""
        fresh = _joined([self.said[place] for place in pieces.unshared(self.digests, before.digests)])
        gone = _joined([before.said[place] for place in pieces.unshared(before.digests, self.digests)])
        item, place = np.unique(np.concatenate([fresh[0], gone[0]]), return_inverse=True)
        balance = np.zeros(len(item), np.uint64)
        np.add.at(balance, place, np.concatenate([fresh[1], np.uint64(0) - gone[1]]))
        found: Hashes = item[balance != 0]
        return found

    def naming(self, items: Hashes) -> list[int]:
        """The pieces that name any of these items."""
        ends = np.cumsum([len(each.item) for each in self.said])
        found = np.searchsorted(ends, _places_among(self._joined[0], items), side="right")
        return [int(place) for place in np.unique(found)]

    def are_there(self, items: Hashes) -> npt.NDArray[np.bool_]:
        """Which of these items have rows."""
        named = self._joined[0]
        found: npt.NDArray[np.bool_] = np.isin(items, named[_places_among(named, items)])
        return found

    @cached_property
    def _joined(self) -> tuple[Hashes, Hashes]:
        return _joined(self.said)

    def write(self, path: Path) -> None:
        """Keep it, whole or not at all."""
        names = self.labels
        code = {name: number for number, name in enumerate(names)}
        header = {"read_as": dict(self.read_as), "labels": names, "rule": pieces.rule()}
        sizes = [[each.rows, len(each.item), len(each.labels)] for each in self.said]
        labels = [code[name] for each in self.said for name in each.labels]
        item, said = self._joined
        arrays: dict[str, npt.NDArray[Any]] = {
            "digests": np.frombuffer(b"".join(self.digests), np.uint8),
            "lengths": np.array(self.lengths, np.int64),
            "sizes": np.array(sizes, np.int64).reshape(-1, 3),
            "labels": np.array(labels, np.int64),
            "item": item,
            "said": said,
        }
        kept_arrays.write(path, FORM, header, arrays)

    @classmethod
    def read(cls, path: Path) -> Index | None:
        """What `write` kept; None where there is nothing of the kind, or it is damaged."""
        kept = kept_arrays.read(path, FORM)
        try:
            return None if kept is None else cls._unpacked(*kept)
        except (LookupError, TypeError, ValueError):
            return None

    @classmethod
    def _unpacked(cls, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Index:
        bounds = np.concatenate([np.zeros((1, 3), np.int64), np.cumsum(arrays["sizes"], axis=0)])
        digests, lengths = _digests_in(arrays), tuple(arrays["lengths"].tolist())
        parts = {len(digests), len(lengths)}, {len(arrays["item"]), len(arrays["said"])}
        if parts != ({len(bounds) - 1}, {int(bounds[-1, 1])}):
            raise ValueError("its parts do not fit")
        names = [header["labels"][code] for code in arrays["labels"].tolist()]
        said = tuple(
            Said(last - first, arrays["item"][start:end], arrays["said"][start:end], tuple(names[a:b]))
            for (first, start, a), (last, end, b) in pairwise(bounds.tolist())
        )
        return cls(header["read_as"], digests, lengths, said)


def pieces_in(path: Path) -> pieces.Known:
    """The pieces of an index that `Index.write` kept; none where there is nothing of the kind, or of another rule."""
    kept = kept_arrays.read(path, FORM, ("digests", "lengths"))
    if kept is None or kept[0].get("rule") != pieces.rule():
        return ()
    return [*zip(_digests_in(kept[1]), kept[1]["lengths"].tolist(), strict=False)]


def _digests_in(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[bytes, ...]:
    bytes_of = arrays["digests"].tobytes()
    return tuple(bytes_of[n : n + 16] for n in range(0, len(bytes_of), 16))


class Digests:
    """8 bytes of a digest of each text, kept for the next time."""

    def __init__(self) -> None:
        self._known: dict[str | None, bytes] = {None: bytes(8)}

    def of_names(self, names: pa.Array) -> Hashes:
        """Of names of which hardly any comes again: SipHash, in a fifth of the time of a digest."""
        from pandas.util import hash_array

        found: Hashes = hash_array(names.to_numpy(zero_copy_only=False), categorize=False)
        return found

    @property
    def of_a_name(self) -> int:
        """That of one name, which is another one where names are hashed in another way."""
        return int(self.of_names(pa.array(["name"]))[0])

    def of_column(self, column: pa.ChunkedArray) -> Hashes:
        """Of each row of a column of which many rows say the same; 0 where it says nothing."""
        coded = in_codes(column)
        names = [*coded.dictionary.to_pylist(), None]
        for name in names:
            if name not in self._known:
                self._known[name] = hashlib.sha256(name.encode()).digest()[:8]
        digests = np.frombuffer(b"".join(map(self._known.__getitem__, names)), np.uint64)
        found: Hashes = digests[np.asarray(pc.fill_null(coded.indices, len(names) - 1))]
        return found


def said_in(
    table: pa.Table, counts: Sequence[int], item: str, label: str, others: Sequence[str], digests: Digests
) -> list[Said]:
    """What these rows say, so many of each piece: the label, and the columns `others` beside it."""
    coded, labels = in_codes(pc.fill_null(table.column(item), "")), in_codes(table.column(label))
    code = np.asarray(coded.indices)
    names = digests.of_names(coded.dictionary)
    row = names[code]
    for column in (label, *others):
        row = _mixed(row * _ODD + digests.of_column(table.column(column)))
    given = np.asarray(pc.fill_null(labels.indices, -1))
    ends = np.cumsum([0, *counts]).tolist()
    called = labels.dictionary.to_pylist()
    return [_summed(names, code[a:b], row[a:b], given[a:b], called) for a, b in pairwise(ends)]


def _summed(
    names: Hashes, code: npt.NDArray[np.int32], row: Hashes, given: npt.NDArray[np.int32], called: Sequence[str]
) -> Said:
    """What the rows of one piece say in all."""
    if (np.diff(code) < 0).any():
        order = np.argsort(code, kind="stable")
        code, row = code[order], row[order]
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    said = np.add.reduceat(row, starts) if len(row) else row
    labels = tuple(called[place] for place in np.unique(given).tolist() if place >= 0 and called[place])
    return Said(len(row), names[code[starts]], said, labels)


def _mixed(row: Hashes) -> Hashes:
    """Each bit from all bits, so that sums over rows tell who said what (the finaliser of MurmurHash3)."""
    for odd in _MIX:
        row = (row ^ (row >> _SHIFT)) * odd
    return row ^ (row >> _SHIFT)


def _joined(said: Sequence[Said]) -> tuple[Hashes, Hashes]:
    """The items of all these, and what is said of them."""
    none = np.empty(0, np.uint64)
    return np.concatenate([none, *(each.item for each in said)]), np.concatenate([none, *(each.said for each in said)])


def _places_among(item: Hashes, few: Hashes) -> Ints:
    """The places of those that are among a few."""
    ends = np.zeros(1 << 16, bool)  # of hashes the last bits alone tell nearly all apart
    ends[few.astype(np.uint16)] = True
    places = np.flatnonzero(ends[item.astype(np.uint16)])
    found: Ints = places[np.isin(item[places], few)]
    return found
