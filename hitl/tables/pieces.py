"""The rows of a text in pieces that what is written before and behind them does not change.

A piece ends behind a row whose own bytes say so: a row that comes or goes changes its own piece, and hardly ever the
next one. So the pieces that two states of a file share are found by their digests, and the others alone are parsed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt

LEAST, MOST = 1 << 15, 1 << 18
"""Bytes of a piece, but for the last one; of one with longer rows more."""

ROWS = 16
"""About every so many rows one ends a piece, as soon as it has LEAST bytes."""

QUOTE = ord('"')


def header_end(data: bytes) -> int:
    """Where the rows begin: behind the first end of a line that is not within quotes."""
    return _row_end(data, 0, odd=False)


def bounds(data: bytes, start: int) -> list[int]:
    """Where the pieces of what begins at `start` begin, and where the last one ends."""
    text, found = np.frombuffer(data, np.uint8), [start]
    while found[-1] < len(data):
        found.append(_piece_end(data, text, found[-1]))
    return found


def digest_of(data: bytes, start: int, end: int) -> bytes:
    """That of a piece."""
    return hashlib.sha256(memoryview(data)[start:end]).digest()[:16]


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


def _piece_end(data: bytes, text: npt.NDArray[np.uint8], start: int) -> int:
    """Where the piece ends that begins at `start`, outside of quotes."""
    if start + LEAST >= len(data):
        return len(data)
    odd = bool(np.count_nonzero(text[start : start + LEAST] == QUOTE) % 2)
    end = _row_end(data, start + LEAST, odd)  # of the row that is cut there, the end alone is seen
    for row, behind in _rows(data, end):
        end = behind
        if crc32(row) % ROWS == 0 or end - start >= MOST:
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
