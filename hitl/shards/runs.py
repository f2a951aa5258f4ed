"""Rows on disk, sorted by the hash of their item: the intermediate form between tables and shards.

Rows arrive in the order of the tables. As many as memory allows are sorted by bucket (the first bits of the hash of the
item) and written as a run. So the rows of a range of buckets are contiguous in each run, and within a bucket they are
in order of arrival. A shard needs one read per run, however large the tables are.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from hitl.errors import BadTable
from hitl.formatting import listed

BITS = 16
BUCKETS = 1 << BITS


def buckets_of(items: pa.Array) -> npt.NDArray[np.uint16]:
    """Return the bucket of each name (string): the first bits of a hash that is the same on every machine."""
    coded = items.dictionary_encode()
    hashes = pd.util.hash_array(np.array(coded.dictionary.to_pylist(), object), categorize=False)
    buckets: npt.NDArray[np.uint16] = (hashes >> np.uint64(64 - BITS)).astype(np.uint16)[np.asarray(coded.indices)]
    return buckets


class Runs:
    """Rows with a column `item` (string) and other columns of fixed types, in run files of a folder.

    Attributes:
        n_rows: number of rows added.
        sizes: (BUCKETS,) number of rows in each bucket, in the runs written so far.
    """

    def __init__(self, folder: Path, run_bytes: int) -> None:
        """Write to an existing folder, in runs of about `run_bytes` bytes."""
        self._folder, self._run_bytes = folder, run_bytes
        self._runs, self._bytes, self.n_rows = 0, 0, 0
        self._parts: list[pa.Table] = []
        self._names: list[str] = []
        self.sizes = np.zeros(BUCKETS, np.int64)

    def add(self, part: pa.Table, place: str) -> None:
        """Add rows. Raise BadTable, naming `place`, if their columns differ from those of earlier rows."""
        self._names = self._names or part.column_names
        if part.column_names != self._names:
            names, expected = listed(part.column_names), listed(self._names)
            raise BadTable(f"{place}: found the columns {names}; expected those of the tables before: {expected}")
        self._parts += [part] if part.num_rows else []
        self._bytes += part.nbytes
        self.n_rows += part.num_rows
        if self._bytes >= self._run_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as one run."""
        if not self._parts:
            return
        rows = pa.concat_tables(self._parts).combine_chunks().to_batches()[0]
        self._parts, self._bytes = [], 0
        bucket = buckets_of(rows.column("item"))
        sizes = np.bincount(bucket, minlength=BUCKETS)
        np.save(self._folder / f"run-{self._runs}.npy", np.append(0, np.cumsum(sizes)))
        with pa.ipc.new_file(str(self._folder / f"run-{self._runs}.arrow"), rows.schema) as writer:
            writer.write_batch(rows.take(pa.array(np.argsort(bucket, kind="stable"))))
        self.sizes += sizes
        self._runs += 1

    def rows(self, first: int, last: int) -> pa.Table | None:
        """Return the rows of the buckets first:last, in order of arrival within each bucket; None without a run."""
        parts = []
        for run in range(self._runs):
            starts = np.load(self._folder / f"run-{run}.npy", mmap_mode="r")
            begin, end = int(starts[first]), int(starts[last])
            with pa.memory_map(str(self._folder / f"run-{run}.arrow")) as source:
                parts.append(pa.ipc.open_file(source).get_batch(0).slice(begin, end - begin))
        return pa.Table.from_batches(parts).combine_chunks() if parts else None


def equal_ranges(sizes: npt.NDArray[np.int64], size: int) -> list[tuple[int, int]]:
    """Split the buckets into ranges first:last with about `size` rows each. Ranges without rows are left out."""
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    shares = max(1, round(total / size))
    cuts = np.searchsorted(ends, np.arange(1, shares) * (total / shares)) + 1
    bounds = np.unique(np.concatenate([[0], cuts, [len(sizes)]]))
    return [(int(first), int(last)) for first, last in pairwise(bounds) if sizes[first:last].any()]
