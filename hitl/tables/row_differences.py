"""Numbers of N items as they were when all were written, and the rows that are otherwise since.

    whole      columns of all N rows, with a version (a digest of them)
    changes    R rows that differ from the whole, and what they say now

Who changes ten rows of a million writes ten. Once more than one row in `PART` differs, all are written anew: a whole
of N rows then follows at least N / PART changed ones, so that each change costs PART rows at most, on average.

A row is written where it has `moved`, as the caller says; else it stays as it stands here. What it is compared with is
what stands, and not what it was in the last cycle: small steps do not add up unseen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int32]
Columns = tuple[npt.NDArray[Any], ...]
Differ = Callable[[Columns, Columns], npt.NDArray[np.bool_]]
"""Which rows of some columns are to be written in place of those of others."""

LEAST = 20_000
"""Of fewer items all rows are written: that takes no time."""

AT_ONCE = 1 << 15
"""Rows that are compared at a time: what is computed of them stays in the processor's cache."""

PART = 8
"""If more than one row in so many differs from the whole, a new whole is written."""


@dataclass(frozen=True, eq=False)
class RowsByDifference:
    """C columns of numbers of N items.

    Attributes:
        items: digest of the names of the items (`digest_of`).
        base: (N,) each, those of the whole.
        rows: (R,) those that differ from the whole, in order.
        values: (R,) each, what these rows say.
        stored_version: that of the whole, where it is known.
        unwritten: what of it is not stored yet.
    """

    items: str
    base: Columns
    rows: Ints
    values: Columns
    stored_version: str | None = None
    unwritten: Literal["", "changes", "whole"] = ""

    @classmethod
    def whole(cls, items: str, columns: Sequence[npt.NDArray[Any]]) -> RowsByDifference:
        """These columns, of which nothing is stored."""
        made = tuple(np.ascontiguousarray(column) for column in columns)
        return cls(items, made, np.empty(0, np.int32), tuple(column[:0] for column in made), unwritten="whole")

    @cached_property
    def columns(self) -> Columns:
        """(N,) each, as they are now."""
        if not len(self.rows):
            return self.base
        now = tuple(column.copy() for column in self.base)
        for column, changed in zip(now, self.values, strict=True):
            column[self.rows] = changed
        return now

    def at(self, rows: npt.NDArray[np.integer[Any]]) -> Columns:
        """(C, rows) what some rows are now."""
        if not len(self.rows):
            return tuple(column[rows] for column in self.base)
        place = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        changed = self.rows[place] == rows
        return tuple(
            np.where(changed, now[place], column[rows]) for column, now in zip(self.base, self.values, strict=True)
        )

    @cached_property
    def version(self) -> str:
        """That of the whole: a digest of its columns."""
        if self.stored_version is not None:
            return self.stored_version
        digest = hashlib.sha256(self.items.encode())
        for column in self.base:
            digest.update(column.dtype.str.encode())
            digest.update(column.data)
        return digest.hexdigest()[:16]

    def differing(self, fresh: Sequence[npt.NDArray[Any]], differ: Differ) -> npt.NDArray[np.bool_]:
        """(N,) which rows `differ` from those of other columns."""
        found = np.empty(len(fresh[0]), bool)
        for start in range(0, len(found), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            found[part] = differ(tuple(own[part] for own in self.base), tuple(other[part] for other in fresh))
        found[self.rows] = differ(self.values, tuple(other[self.rows] for other in fresh))
        return found

    def follow(self, columns: Sequence[npt.NDArray[Any]], moved: npt.NDArray[np.bool_]) -> RowsByDifference:
        """The same with the rows that have moved as these columns have them."""
        fresh = np.flatnonzero(moved).astype(np.int32)
        if not len(fresh):
            return self
        rows = np.union1d(self.rows, fresh)
        if len(rows) * PART > len(moved):
            return self.whole(self.items, columns)
        before, after = np.searchsorted(rows, self.rows), np.searchsorted(rows, fresh)
        now = tuple(np.empty(len(rows), own.dtype) for own in self.base)
        for own, old, column in zip(now, self.values, columns, strict=True):
            own[before] = old
            own[after] = column[fresh]
        return replace(self, rows=rows, values=now, stored_version=self.version, unwritten="changes")

    @cached_property
    def digest(self) -> str:
        """Of the whole and of what has changed since."""
        digest = hashlib.sha256(self.version.encode())
        digest.update(self.rows.data)
        for column in self.values:
            digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()[:16]

    def packed_whole(self) -> bytes:
        """The bytes of all rows, soon read; whole numbers shrink, and the digits of probabilities do not."""
        are_whole = all(np.issubdtype(column.dtype, np.integer) for column in self.base)
        return _packed([pa.array(column) for column in self.base], "lz4" if are_whole else None)

    def packed_changes(self) -> bytes:
        """The bytes of the rows that differ."""
        return _packed([pa.array(self.rows), *(pa.array(column) for column in self.values)], "zstd")

    @classmethod
    def unpacked(cls, items: str, version: str, whole: bytes, changes: bytes | None) -> RowsByDifference:
        """What `packed_whole` and `packed_changes` hold."""
        base = _unpacked(whole)
        if changes is None:
            return cls(items, base, np.empty(0, np.int32), tuple(column[:0] for column in base), version)
        rows, *values = _unpacked(changes)
        return cls(items, base, rows, tuple(values), version)


def digest_of(names: pa.Array) -> str:
    """That of a column of text, however it came to be."""
    column = names.cast(pa.string())
    if column.offset or column.null_count or np.frombuffer(column.buffers()[1], np.int32, 1)[0]:
        column = pa.concat_arrays([column, pa.array([], pa.string())])
    _, offsets, text = column.buffers()
    places = np.frombuffer(offsets, np.int32, len(column) + 1)
    digest = hashlib.sha256(places.data)
    if text is not None:
        digest.update(memoryview(text)[: int(places[-1])])
    return digest.hexdigest()[:16]


def _packed(columns: Sequence[pa.Array], compression: str | None) -> bytes:
    table = pa.table({str(n): column for n, column in enumerate(columns)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _unpacked(packed: bytes) -> Columns:
    table = pa.ipc.open_stream(packed).read_all().combine_chunks()
    return tuple(_numbers(column) for column in table.columns)


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    return np.asarray(column.chunk(0) if column.num_chunks else column)
