"""The answers of many blocks in columns of their own: each block is read, copied to its place, and let go.

A million items have thousand blocks. To keep them all until they are joined takes as much memory again, and memory that
is touched for the first time takes longer than what is done with it.

A block's answers name annotators and labels by codes of its own. All dictionaries are put behind each other, a code c
of the block whose dictionary begins at d becomes d + c, and the different names among all of them are found once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NUMBERS = ("time", "duration")
NAMES = ("annotator", "label")

_ROOM = 1 << 16
"""Answers for which there is room at first."""


class JoinedAnswers:
    """The answers of blocks that are added in order.

    Attributes:
        items, positions: names and positions of the items of each block.
        counts: answers of each item.
    """

    def __init__(self) -> None:
        self.items: list[pa.Array] = []
        self.positions: list[npt.NDArray[np.int64]] = []
        self.counts: list[npt.NDArray[np.int32]] = []
        self._size = 0
        self._numbers = {name: np.empty(_ROOM) for name in NUMBERS}
        self._codes = {name: np.empty(_ROOM, np.int32) for name in NAMES}
        self._dictionaries: dict[str, list[pa.Array]] = {name: [] for name in NAMES}
        self._known = dict.fromkeys(NAMES, 0)

    def add(self, block: pa.Table) -> None:
        """The items and answers of a block (`packed`)."""
        self.items += map(_copied, block.column("item").chunks)
        self.positions.append(np.array(block.column("position")))
        for listed in block.column("answers").chunks:
            if len(listed):
                self.counts.append(np.diff(listed.offsets.to_numpy()))
                self._add(listed.flatten())

    def _add(self, answers: pa.StructArray) -> None:
        start, end = self._size, self._size + len(answers)
        self._reserve(end)
        for name, numbers in self._numbers.items():
            numbers[start:end] = answers.field(name).to_numpy(zero_copy_only=False)
        for name, codes in self._codes.items():
            column = answers.field(name)
            fresh, before = column.dictionary, self._dictionaries[name]
            if not before or not before[-1].equals(fresh):
                before.append(_copied(fresh))
                self._known[name] += len(fresh)
            begins = self._known[name] - len(fresh)
            if column.indices.null_count:
                own = np.asarray(column.indices.fill_null(-1 - begins))
            else:
                own = np.asarray(column.indices)
            np.add(own, begins, out=codes[start:end])
        self._size = end

    def _reserve(self, size: int) -> None:
        """Room for so many answers: what is not used is not touched."""
        for columns in (self._numbers, self._codes):
            for name, column in columns.items():
                if len(column) < size:
                    columns[name] = np.empty(max(size, 4 * len(column)), column.dtype)
                    columns[name][: self._size] = column[: self._size]

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column of numbers."""
        return self._numbers[name][: self._size]

    def coded(self, name: str) -> pa.DictionaryArray:
        """A column of names, of which some may be null; null in place of -1."""
        codes, dictionaries = self._codes[name][: self._size], self._dictionaries[name]
        if not dictionaries:
            return pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array([], pa.string()))
        unified = pa.concat_arrays(dictionaries).dictionary_encode()
        place = np.asarray(unified.indices)
        unknown = codes < 0
        some = bool(unknown.any())
        found = place[np.where(unknown, 0, codes)] if some and len(place) else codes if some else place[codes]
        return pa.DictionaryArray.from_arrays(pa.array(found, mask=unknown if some else None), unified.dictionary)


def _copied(column: pa.Array) -> pa.Array:
    """The same in memory of its own: a part of a block keeps all of it."""
    return pa.concat_arrays([column, column.slice(0, 0)])


def joined(blocks: Iterable[pa.Table]) -> JoinedAnswers:
    """The answers of these blocks."""
    made = JoinedAnswers()
    for block in blocks:
        made.add(block)
    return made


def one(columns: Sequence[pa.Array]) -> pa.Array:
    """One column of text."""
    return pa.concat_arrays(columns) if columns else pa.array([], pa.string())
