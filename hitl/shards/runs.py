"""Rows on disk, sorted by the hash of their item: what tables become on the way to shards.

Rows come as they are in the tables. A run of them, as many as memory allows, is sorted by bucket (the first bits of the
hash of the item) and written. All rows of some buckets are then one piece of each run, in the order in which they came:
a shard is read with one read a run, however large the tables are.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.models.numerics.compiled import compiled

BITS = 16
BUCKETS = 1 << BITS
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def buckets_of(items: pa.Array) -> npt.NDArray[np.uint16]:
    """The bucket of each name (string): the first bits of its FNV-1a hash of 64 bits, mixed as MurmurHash3 ends.

    It is the same on every machine and in every version.
    """
    _, offsets, data = items.buffers()
    ends = np.frombuffer(offsets, np.int32)[items.offset : items.offset + len(items) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    found = np.empty(len(items), np.uint16)
    _hash(ends, text, found)
    return found


@compiled
def _hash(ends: Any, text: Any, found: Any) -> None:
    for n in range(found.shape[0]):
        code = _OFFSET
        for place in range(ends[n], ends[n + 1]):
            code = (code ^ np.uint64(text[place])) * _PRIME
        code = (code ^ (code >> np.uint64(33))) * _MIX_1
        code = (code ^ (code >> np.uint64(33))) * _MIX_2
        found[n] = (code ^ (code >> np.uint64(33))) >> np.uint64(64 - BITS)


class Runs:
    """Rows with a column `item` (string) and others of the same types in every run, in files of a folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` is there; the files in it are this object's."""
        self._folder = folder
        self._runs = 0
        self.sizes = np.zeros(BUCKETS, np.int64)
        """(BUCKETS,) rows of each bucket."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Write the rows as one run."""
        bucket = buckets_of(rows.column("item"))
        order = np.argsort(bucket, kind="stable")
        sizes = np.bincount(bucket, minlength=BUCKETS)
        np.save(self._folder / f"run-{self._runs}.npy", np.append(0, np.cumsum(sizes)))
        with pa.ipc.new_file(str(self._folder / f"run-{self._runs}.arrow"), rows.schema) as writer:
            writer.write_batch(rows.take(pa.array(order)))
        self.sizes += sizes
        self._runs += 1

    def rows(self, first: int, last: int) -> pa.Table | None:
        """The rows of the buckets first:last, each bucket's in the order in which they came; None without any run."""
        parts = []
        for run in range(self._runs):
            starts = np.load(self._folder / f"run-{run}.npy", mmap_mode="r")
            begin, end = int(starts[first]), int(starts[last])
            with pa.memory_map(str(self._folder / f"run-{run}.arrow")) as source:
                parts.append(pa.ipc.open_file(source).get_batch(0).slice(begin, end - begin))
        return pa.Table.from_batches(parts).combine_chunks() if parts else None


def equal_ranges(sizes: npt.NDArray[np.int64], size: int) -> list[tuple[int, int]]:
    """Ranges of buckets that together have all rows: about equal ones, with about `size` rows each."""
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    shares = max(1, round(total / size))
    cuts = np.searchsorted(ends, np.arange(1, shares) * (total / shares)) + 1
    bounds = np.unique(np.concatenate([[0], cuts, [len(sizes)]]))
    pairs = [(int(first), int(last)) for first, last in pairwise(bounds)]
    return [(first, last) for first, last in pairs if sizes[first:last].any()]
