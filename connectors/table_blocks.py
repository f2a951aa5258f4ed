"""Blocks of items of tables, each with a digest of all that the tables say of them.

A pull makes rows of the blocks alone whose digest its cursor does not have. A block ends where the hash of an item's
name says so, and not after so many: an item that comes or goes changes its own block and no other.

The digests that a cursor keeps are of blocks that are stored just so. Those of blocks that are no longer there are
forgotten before the first page: one of their items may be in a page that is sent now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

_ODD = np.uint64(0x9E3779B97F4A7C15)

Range = tuple[int, int]
"""Items from the first to before the end."""


class ItemRows:
    """The rows of a table of which each is about one item."""

    def __init__(self, table: pa.Table, item: str) -> None:
        self.table, self.item = table, item
        filled = pc.fill_null(table.column(item).cast(pa.string()), "")
        coded = filled.dictionary_encode().chunks  # one dictionary, in order of first appearance
        self.names: list[str] = coded[0].dictionary.to_pylist() if coded else []
        """The items, in order of first appearance; "" is that of rows without one."""
        self.codes: Ints = np.concatenate([np.empty(0, np.int64), *(np.asarray(chunk.indices) for chunk in coded)])
        """(rows,) places among the names."""

    def kept(self, rows: npt.NDArray[np.bool_]) -> ItemRows:
        """These rows alone."""
        if rows.all():
            return self
        found = object.__new__(ItemRows)
        found.table, found.item = self.table.filter(pa.array(rows)), self.item
        found.names, found.codes = self.names, self.codes[rows]
        there = np.zeros(len(self.names), bool)
        there[found.codes] = True
        if not there.all():
            found.names = [name for name, is_there in zip(self.names, there, strict=True) if is_there]
            found.codes = (np.cumsum(there) - 1)[found.codes]
        return found

    def last_of_each(self) -> ItemRows:
        """The last row of each item."""
        last = np.zeros(len(self.names), np.int64)
        last[self.codes] = np.arange(len(self.codes))  # of repeated places the last stays
        rows = np.zeros(len(self.codes), bool)
        rows[last] = True
        return self.kept(rows) if len(self.codes) else self

    def ordered(self, keys: Sequence[str]) -> _Ordered:
        """The rows in the order of these items."""
        codes = self.codes
        if self.names != keys[: len(self.names)]:
            place = {key: number for number, key in enumerate(keys)}
            codes = np.fromiter((place[name] for name in self.names), np.int64, len(self.names))[codes]
        table = self.table
        if (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")
            codes, table = codes[order], table.take(pa.array(order))
        return _Ordered(table, self.item, codes)


class _Ordered:
    """Rows in the order of the items: those of a range of items are a slice. A digest says what columns are called."""

    def __init__(self, table: pa.Table, item: str, codes: Ints) -> None:
        self._table, self._codes = table, codes
        columns = [table.column(name) for name in table.column_names if name != item]
        are_codes = pa.types.is_dictionary
        self._called = repr([(f.name, None if are_codes(f.type) else str(f.type)) for f in table.schema]).encode()
        self._names = [_hashes_of(column) for column in columns if pa.types.is_dictionary(column.type)]
        self._columns = [_bytes_of(column) for column in columns if not pa.types.is_dictionary(column.type)]

    def rows(self, first: int, end: int) -> list[dict[str, Any]]:
        """The rows of the items from `first` to before `end`."""
        start, stop = np.searchsorted(self._codes, [first, end])
        columns = [_values_of(column.slice(start, stop - start)) for column in self._table.columns]
        return [dict(zip(self._table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]

    def update(self, digests: Sequence[Any], bounds: Ints) -> None:
        """Add to each digest the rows of its items, which begin and end at these bounds."""
        starts = np.searchsorted(self._codes, bounds)
        rows = (self._codes - np.repeat(bounds[:-1], np.diff(starts))).view(np.uint64)  # which of its block's items
        for hashes in self._names:
            rows *= _ODD
            rows += hashes
        for digest, (start, stop) in zip(digests, pairwise(starts.tolist()), strict=True):
            digest.update(self._called)
            digest.update(rows[start:stop])
            for offsets, text, valid in self._columns:
                digest.update((offsets[start : stop + 1] - offsets[start]).tobytes())
                digest.update(text[offsets[start] : offsets[stop]])
                digest.update(valid[start:stop].tobytes())


def in_codes(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """A column of text of which many rows say the same."""
    coded = column if pa.types.is_dictionary(column.type) else column.cast(pa.string()).dictionary_encode()
    return pa.concat_arrays([*coded.unify_dictionaries().chunks] or [pa.array([], coded.type)])


def _values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, text without a look at a dictionary for each."""
    whole = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    values: list[Any] = whole.to_pylist()
    return values


def _hashes_of(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Of each row 8 bytes of a digest of what it says; 0 where it says nothing."""
    coded = in_codes(column)
    said = (b"" if name is None else name.encode() for name in coded.dictionary.to_pylist())
    digests = b"".join(hashlib.sha256(name).digest()[:8] for name in said) + bytes(8)
    indices = np.asarray(pc.fill_null(coded.indices, len(coded.dictionary)))
    hashes: npt.NDArray[np.uint64] = np.frombuffer(digests, np.uint64)[indices]
    return hashes


def _bytes_of(column: pa.ChunkedArray) -> tuple[Ints, memoryview, npt.NDArray[np.bool_]]:
    """Where the text of each row begins, the text of all, and which rows have any."""
    if not pa.types.is_string(column.type):
        column = pa.chunked_array([[json.dumps(value, default=str) for value in column.to_pylist()]], pa.string())
    whole = pa.concat_arrays([*column.cast(pa.large_string()).chunks, pa.array([], pa.large_string())])
    _, offsets, text = whole.buffers()
    starts = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    return starts, memoryview(text or b""), np.asarray(whole.is_valid())


class Blocks:
    """All items in order, in blocks of about `size`, and what is said of them.

    `ordered` are rows by item; `named` what else is said of an item by its name, in an order of its own.
    """

    def __init__(
        self, keys: Sequence[str], size: int, rows: Sequence[ItemRows], named: Sequence[Mapping[str, Any]]
    ) -> None:
        self.keys = keys
        self.parts = [each.ordered(keys) for each in rows]
        hashes = np.fromiter(map(crc32, map(str.encode, keys)), np.int64, len(keys))
        ends = np.flatnonzero(hashes % size == 0) + 1
        self._bounds = [*dict.fromkeys([0, *map(int, ends), len(keys)])]
        self.digests = self._digests([each for each in named if each])

    @property
    def of_all_keys(self) -> str:
        """A digest of which items there are."""
        return hashlib.sha256(json.dumps(self.keys).encode()).hexdigest()[:16]

    def pages(self, known: frozenset[str], again: frozenset[str], size: int) -> Iterator[tuple[list[Range], list[str]]]:
        """The ranges of items whose digests are not known, with these, by pages of at least `size` items.

        Those that hold one of the items `again` are not known.
        """
        ranges: list[Range] = []
        digests: list[str] = []
        looked_at = self._holding(again)
        for block, (digest, (first, end)) in enumerate(zip(self.digests, pairwise(self._bounds), strict=True)):
            if digest not in known or block in looked_at:
                ranges.append((first, end))
                digests.append(digest)
                if sum(end - first for first, end in ranges) >= size:
                    yield ranges, digests
                    ranges, digests = [], []
        if ranges:
            yield ranges, digests

    def _holding(self, items: frozenset[str]) -> set[int]:
        """The blocks that hold these items."""
        places = [place for place, key in enumerate(self.keys) if key in items] if items else []
        return set((np.searchsorted(self._bounds, places, side="right") - 1).tolist())

    def _digests(self, named: Sequence[Mapping[str, Any]]) -> list[str]:
        """That of each block."""
        offsets, text, _ = _bytes_of(pa.chunked_array([pa.array(self.keys, pa.string())]))
        digests = []
        for first, end in pairwise(self._bounds):
            digest = hashlib.sha256((offsets[first : end + 1] - offsets[first]).tobytes())
            digest.update(text[offsets[first] : offsets[end]])
            for said in named:
                digest.update(repr([said.get(key) for key in self.keys[first:end]]).encode())
            digests.append(digest)
        for part in self.parts:
            part.update(digests, np.array(self._bounds, np.int64))
        return [digest.hexdigest()[:12] for digest in digests]
