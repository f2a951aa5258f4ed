"""A file with a row for each of many items, of which only those rows are made anew that say something else.

    consensus.csv            the table
    .consensus.csv.index     of which bytes it was when it was written here, and what each row said

The other rows are copied from the file, if it still is what was written here: each group of its rows has a check, which
is compared each time. The whole file is written if it was edited, if another version of hitl wrote it or it follows
from an earlier whole (`row_differences`), or if a row takes more than one line. Either way the file is the same, byte
by byte.

The index is written behind the file: a process that is killed in between leaves one of another file, which is not used.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.connectors.table_output import write_bytes_if_changed
from hitl.errors import BadInput
from hitl.tables import kept_arrays
from hitl.tables.files import atomic, csv_bytes
from hitl.tables.operations_by_difference import NOTHING, ConsensusByDifference, WantedByDifference, columns_of
from hitl.tables.pieces import filled
from hitl.tables.row_differences import RowsByDifference

FORM = 2
"""Of the index; another one is not read."""

GROUP = 4096
"""Rows of a group: its bytes stay in the processor while they are checked, changed and written."""

END = ord("\n")

Rows = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.uint16]


@dataclass(frozen=True, eq=False)
class Said:
    """What a file is to say: a row of each of N items, but of those with `NOTHING` in the first column.

    Attributes:
        rows: what is said, by item.
        read_as: what else the bytes of the file follow from.
        whole: the table.
        some: the rows of these items alone.
        order: (N,) the items in the order of the file; None: theirs.
    """

    rows: RowsByDifference
    read_as: Mapping[str, Any]
    whole: Callable[[], pa.Table]
    some: Callable[[Rows], pa.Table]
    order: Callable[[], Rows | None]

    @classmethod
    def of_consensus(cls, operation: ConsensusByDifference) -> Said:
        """The consensus of the only question."""
        ((name, rows),) = operation.rows.items()
        classes = operation.classes[name]

        def some(these: Rows) -> pa.Table:
            items = operation.named().take(pa.array(these))
            return columns_of(items, classes, rows.at(these)).table()

        read_as = {"named": rows.items, "version": rows.version, "classes": [*classes]}
        return cls(
            rows, read_as, lambda: columns_of(operation.named(), classes, rows.columns).table(), some, lambda: None
        )

    @classmethod
    def of_wanted(cls, operation: WantedByDifference) -> Said:
        """How many labels items should get, by the names of the items."""
        rows = operation.rows

        def some(these: Rows) -> pa.Table:
            (labels,) = rows.at(these)
            said = labels != NOTHING
            items = operation.named().take(pa.array(these[said]))
            return pa.table({"item": items, "labels": pa.array(np.asarray(labels[said], np.int32))})

        def order() -> Rows:
            return np.asarray(pc.sort_indices(operation.named())).astype(np.int32)

        read_as = {"named": rows.items, "version": rows.version}
        return cls(rows, read_as, lambda: operation.table, some, order)

    def says(self) -> npt.NDArray[np.bool_]:
        """(N,) whether anything is said of each item."""
        said: npt.NDArray[np.bool_] = self.rows.columns[0] != NOTHING
        return said


@dataclass(frozen=True, eq=False)
class Written:
    """What a file was when it was written: its rows in groups, behind its header.

    Attributes:
        read_as: what its bytes follow from.
        header: bytes of its first line.
        rows: (R,) the items that differed from the whole.
        values: (C, R) what they said.
        places: (N,) of each item in the order of the file; none where it is theirs.
        lengths: (N,) bytes of the line of each place, 0 where there is none.
        checks: (1 + G,) of the header and of the bytes of each group.
    """

    read_as: Mapping[str, Any]
    header: int
    rows: Rows
    values: Rows
    places: Rows
    lengths: Lengths
    checks: npt.NDArray[np.uint32]

    ARRAYS = ("rows", "values", "places", "lengths", "checks")

    def write(self, path: Path) -> None:
        """Keep it, whole or not at all."""
        header = {"read_as": dict(self.read_as), "header": self.header, "group": GROUP}
        kept_arrays.write(path, FORM, header, {name: getattr(self, name) for name in self.ARRAYS})

    @classmethod
    def read(cls, path: Path) -> Written | None:
        """What `write` kept; None where there is nothing of the kind, or it is damaged."""
        kept = kept_arrays.read(path, FORM)
        if kept is None or kept[0].get("group") != GROUP:
            return None
        return cls(kept[0]["read_as"], kept[0]["header"], *(kept[1][name] for name in cls.ARRAYS))

    def changed(self, now: RowsByDifference) -> Rows:
        """The items of which something else is said now; the whole is the same."""
        both = np.intersect1d(self.rows, now.rows, assume_unique=True)
        before = self.values[:, np.searchsorted(self.rows, both)]
        same = np.all([own == column for own, column in zip(before, now.at(both), strict=True)], axis=0)
        return np.setdiff1d(np.union1d(self.rows, now.rows), both[same], assume_unique=True)

    def groups(self, file: IO[bytes]) -> Iterator[memoryview]:
        """The header and the bytes of each group of the file. Raises Edited where it is not what was written."""
        sizes = [self.header, *_sums(self.lengths)]
        buffer = memoryview(bytearray(max(sizes)))
        for size, check in zip(sizes, self.checks.tolist(), strict=True):
            data = filled(file, buffer[:size])
            if len(data) != size or zlib.crc32(data) != check:
                raise Edited
            yield data
        if file.read(1):
            raise Edited


class Edited(Exception):
    """A file is not what was written here."""


def write_consensus(path: Path, operation: ConsensusByDifference) -> int:
    """Write the consensus of the only question; how many rows had to be written."""
    return write_said(path, Said.of_consensus(operation))


def write_wanted(path: Path, operation: WantedByDifference) -> int:
    """Write how many labels items should get; how many rows had to be written."""
    return write_said(path, Said.of_wanted(operation))


def write_said(path: Path, said: Said) -> int:
    """Make the file say this; how many rows had to be written."""
    index = path.with_name(f".{path.name}.index")
    kept = Written.read(index)
    if kept is not None and kept.read_as == said.read_as:
        with suppress(Edited, FileNotFoundError):
            return _changed(path, index, kept, said)
    table = said.whole()
    content = csv_bytes(table)
    written = write_bytes_if_changed(path, content)
    order = said.order()
    places = np.empty(0, np.int32) if order is None else np.empty(len(order), np.int32)
    if order is not None:
        places[order] = np.arange(len(order), dtype=np.int32)
    there = said.says() if order is None else said.says()[order]
    lengths = _lengths(content, there)
    if lengths is None:
        index.unlink(missing_ok=True)
    else:
        header = len(content) - int(lengths.sum(dtype=np.int64))
        bounds = np.cumsum([0, header, *_sums(lengths)]).tolist()
        checks = [zlib.crc32(memoryview(content)[start:end]) for start, end in pairwise(bounds)]
        _keep(index, header, said, places, lengths, np.array(checks, np.uint32))
    return table.num_rows if written else 0


def _changed(path: Path, index: Path, kept: Written, said: Said) -> int:
    """Change what the file says; how many rows had to be written. Raises Edited where it cannot be made of itself."""
    changed = kept.changed(said.rows)
    with path.open("rb", buffering=0) as file:
        if not len(changed):
            for _ in kept.groups(file):
                pass
            return 0
        place = kept.places[changed] if len(kept.places) else changed
        order = np.argsort(place)
        lines = _lines_of(said, changed[order])
        with atomic(path) as target:
            lengths, checks = _patched(file, target, kept, place[order], lines)
    _keep(index, kept.header, said, kept.places, lengths, checks)
    return len(changed)


def _keep(index: Path, header: int, said: Said, places: Rows, lengths: Lengths, checks: npt.NDArray[np.uint32]) -> None:
    """Keep what the file is now."""
    values = np.stack(said.rows.values)
    with suppress(OSError, BadInput):  # without one the next push makes the file anew
        Written(said.read_as, header, said.rows.rows, values, places, lengths, checks).write(index)


def _lengths(content: bytes, said: npt.NDArray[np.bool_]) -> Lengths | None:
    """(N,) bytes of the line of each place that has one; None where lines are not rows."""
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == END)
    if len(ends) != 1 + int(said.sum()) or ends[-1] != len(content) - 1:
        return None
    each = np.diff(ends)
    if each.max(initial=0) > np.iinfo(np.uint16).max:
        return None
    lengths = np.zeros(len(said), np.uint16)
    lengths[said] = each
    return lengths


def _sums(lengths: Lengths) -> list[int]:
    """Bytes of each group of lines."""
    starts = np.arange(0, len(lengths), GROUP)
    return np.add.reduceat(lengths, starts, dtype=np.int64).tolist() if len(starts) else []


def _lines_of(said: Said, changed: Rows) -> list[bytes]:
    """The line of each of these items, nothing where none is said. Raises Edited where a row is not a line."""
    there = (said.rows.at(changed)[0] != NOTHING).tolist()
    lines = io.BytesIO(csv_bytes(said.some(changed))).readlines()[1:]
    longest = np.iinfo(np.uint16).max
    if len(lines) != sum(there) or any(line[-1] != END or len(line) > longest for line in lines):
        raise Edited
    fresh = iter(lines)
    return [next(fresh) if is_said else b"" for is_said in there]


def _patched(
    file: IO[bytes], target: IO[bytes], kept: Written, place: Rows, lines: Sequence[bytes]
) -> tuple[Lengths, npt.NDArray[np.uint32]]:
    """Write the file with these lines at these places, in order; its lengths and checks."""
    lengths, checks = kept.lengths.copy(), kept.checks.copy()
    lengths[place] = [len(line) for line in lines]
    bounds = np.searchsorted(place, np.arange(-1, len(checks)) * GROUP).tolist()  # the header has no lines
    for group, data in enumerate(kept.groups(file)):
        here = slice(bounds[group], bounds[group + 1]) if group else slice(0)
        fresh: bytes | memoryview = data
        if len(lines[here]):
            first = (group - 1) * GROUP
            own = kept.lengths[first : first + GROUP]
            ends, at = np.cumsum(own, dtype=np.int64), place[here] - first
            fresh = _spliced(data, (ends[at] - own[at]).tolist(), ends[at].tolist(), lines[here])
            checks[group] = zlib.crc32(fresh)
        target.write(fresh)
    return lengths, checks


def _spliced(data: memoryview, starts: Sequence[int], ends: Sequence[int], lines: Sequence[bytes]) -> bytes:
    """The data with these lines in place of what stands there."""
    parts, done = list[bytes | memoryview](), 0
    for start, end, line in zip(starts, ends, lines, strict=True):
        parts += (data[done:start], line)
        done = end
    parts.append(data[done:])
    return b"".join(parts)
