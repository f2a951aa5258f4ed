"""The rows of a text in pieces that what is written before and behind them does not change.

A piece ends behind a row whose own bytes say so: a row that comes or goes changes its own piece, and hardly ever the
next one. So the pieces that two states of a file share are found by their digests, and the others alone are parsed.

Where pieces end follows from the bytes alone, and so does the digest of a file that is made of theirs. A file of which
pieces are known is read once, piece by piece: one that has the bytes of a known one ends where that ended.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO
from zlib import crc32

import numpy as np

LEAST, MOST = 1 << 15, 1 << 18
"""Bytes of a piece, but for the last one; of one with longer rows more."""

ROWS = 16
"""About every so many rows one ends a piece, as soon as it has LEAST bytes."""

QUOTE = ord('"')

Known = Sequence[tuple[bytes, int]]
"""Digest and length of pieces that a file had."""


def rule() -> list[int]:
    """What else decides where pieces end: those of another rule are not these."""
    return [LEAST, MOST, ROWS]


@dataclass(frozen=True)
class Pieces:
    """The P pieces of a text.

    Attributes:
        header: what stands before them, the first line.
        digests, lengths: (P,) of the bytes.
    """

    header: bytes
    digests: tuple[bytes, ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, path: Path, known: Known = ()) -> Pieces:
        """Those of a file; `known` are those of an earlier state of it, and save time alone."""
        with path.open("rb", buffering=0) as file:
            header = _Window(file).until(lambda data: _row_end(data, 0, odd=False))
            return cls(header, *_cut(file, len(header), known))

    @cached_property
    def digest(self) -> bytes:
        """That of the whole text, made of theirs."""
        return hashlib.sha256(b"".join([hashlib.sha256(self.header).digest(), *self.digests])).digest()

    @property
    def size(self) -> int:
        """Bytes of all."""
        return len(self.header) + sum(self.lengths)

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """Where each begins and ends."""
        return [*pairwise(np.cumsum([len(self.header), *self.lengths]).tolist())]

    def read(self, path: Path, places: Sequence[int]) -> list[bytes] | None:
        """The bytes of some; None where the file has others by now."""
        found = []
        with path.open("rb", buffering=0) as file:
            for place in places:
                start, end = self.bounds[place]
                file.seek(start)
                data = filled(file, bytearray(end - start))
                if _digest_of(data) != self.digests[place]:
                    return None
                found.append(bytes(data))
        return found


def unshared(these: Sequence[bytes], others: Sequence[bytes]) -> list[int]:
    """The places of those digests that the others do not have, or not so often."""
    left = Counter(others)
    found = []
    for place, digest in enumerate(these):
        if left[digest]:
            left[digest] -= 1
        else:
            found.append(place)
    return found


def _cut(file: IO[bytes], start: int, known: Known) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """The digests and lengths of the pieces of what begins at `start`."""
    digests, lengths, place = list[bytes](), list[int](), 0
    places = {digest: number for number, (digest, _) in enumerate(known)}
    buffer, window = memoryview(bytearray(max((length for _, length in known), default=0))), _Window(file)
    file.seek(start)
    while True:
        # The last one ended with the file: what now stands behind it may belong to its last row.
        if place < len(known) - 1 and _is_next(file, buffer, *known[place]):
            digest, length = known[place]
        else:
            file.seek(start)
            data = window.until(_piece_end)
            if not data:
                return tuple(digests), tuple(lengths)
            digest, length = _digest_of(data), len(data)
            place = places.get(digest, place)
            file.seek(start + length)
        digests.append(digest)
        lengths.append(length)
        start, place = start + length, place + 1


def _is_next(file: IO[bytes], buffer: memoryview, digest: bytes, length: int) -> bool:
    """Whether the bytes that come next are those of a known piece."""
    data = filled(file, buffer[:length])
    return len(data) == length and _digest_of(data) == digest


class _Window:
    """What a file has from a place on, as much of it as is needed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def until(self, end_of: Callable[[bytes], int]) -> bytes:
        """Up to an end, which is seen where something stands behind it, or the file ends there."""
        data = self._file.read(LEAST + LEAST // 8)
        while True:
            end = end_of(data)
            if end < len(data):
                return data[:end]
            fresh = self._file.read(max(len(data), 1))
            if not fresh:
                return data
            data += fresh


def filled(file: IO[bytes], buffer: bytearray | memoryview) -> memoryview:
    """What is next in a file, as much as fits; less at its end."""
    view, done = memoryview(buffer), 0
    while done < len(view) and (count := file.readinto(view[done:])):  # type: ignore[attr-defined]
        done += count
    return view[:done]


def _digest_of(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def _piece_end(data: bytes) -> int:
    """Where the piece ends that begins the data, outside of quotes."""
    if len(data) <= LEAST:
        return len(data)
    odd = bool(np.count_nonzero(np.frombuffer(data, np.uint8, LEAST) == QUOTE) % 2)
    end = _row_end(data, LEAST, odd)  # of the row that is cut there, the end alone is seen
    for row, behind in _rows(data, end):
        end = behind
        if crc32(row) % ROWS == 0 or end >= MOST:
            break
    return end


def _rows(data: bytes, start: int) -> Iterator[tuple[bytes, int]]:
    """The rows that begin at `start`, each with where it ends."""
    while start < len(data):
        end = _row_end(data, start, odd=False)
        yield data[start:end], end
        start = end


def _row_end(data: bytes, start: int, odd: bool) -> int:
    """Behind the first end of a line that is not within quotes; `odd`: it begins within them."""
    while True:
        end = data.find(b"\n", start) + 1
        if not end:
            return len(data)
        odd ^= bool(data.count(b'"', start, end) % 2)
        if not odd:
            return end
        start = end
