"""A file with a row for each of many items, of which only those rows are made anew that say something else.

    consensus.csv            the table
    .consensus.csv.index     of which bytes it was when it was written here, and what each row said

The other rows are copied from the file, if it still is what was written here: its digest is compared each time. All
rows are written again where somebody has edited the file, where another version of hitl or an earlier whole
(`row_differences`) made it, or where a row takes more than one line. Either way the file is the same, byte by byte.

The index is written behind the file: a process that is killed in between leaves one of another file, which is not used.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.connectors.table_output import write_if_changed
from hitl.errors import BadInput
from hitl.tables.files import atomic, csv_bytes
from hitl.tables.operations_by_difference import NOTHING, ConsensusByDifference, columns_of
from hitl.tables.row_differences import RowsByDifference

FORM = 1
"""Of the index; another one is not read."""

END = ord("\n")


@dataclass(frozen=True, eq=False)
class Written:
    """What a file was when it was written.

    Attributes:
        read_as: digest of its bytes, of the names of the items and of the whole of its rows, and its classes.
        rows: (R,) those that differed from the whole.
        values: (C, R) what they said.
        lengths: (N,) bytes of the line of each item, 0 where it had none.
    """

    read_as: Mapping[str, Any]
    rows: npt.NDArray[np.int32]
    values: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.uint16]

    def write(self, path: Path) -> None:
        """Keep it, whole or not at all."""
        header = np.frombuffer(json.dumps({"form": FORM, **self.read_as}).encode(), np.uint8)
        arrays: dict[str, Any] = {"header": header, "rows": self.rows, "values": self.values, "lengths": self.lengths}
        with atomic(path) as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def read(cls, path: Path) -> Written | None:
        """What `write` kept; None where there is nothing of the kind, or it is damaged."""
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as kept:
                arrays = dict(kept)
            header = json.loads(arrays["header"].tobytes())
            known = header.pop("form") == FORM
            return cls(header, arrays["rows"], arrays["values"], arrays["lengths"]) if known else None
        except (OSError, LookupError, TypeError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def changed(self, now: RowsByDifference) -> npt.NDArray[np.int32]:
        """The rows that say something else now; the whole is the same."""
        both = np.intersect1d(self.rows, now.rows, assume_unique=True)
        before = self.values[:, np.searchsorted(self.rows, both)]
        same = np.all([own == column[both] for own, column in zip(before, now.columns, strict=True)], axis=0)
        return np.setdiff1d(np.union1d(self.rows, now.rows), both[same], assume_unique=True)


def write_consensus(path: Path, operation: ConsensusByDifference) -> int:
    """Write the consensus of the only question; how many rows had to be written."""
    ((name, rows),) = operation.rows.items()
    items, classes = operation.named(), operation.classes[name]
    read_as = {"named": rows.items, "version": rows.version, "classes": [*classes]}
    index = path.with_name(f".{path.name}.index")
    data = path.read_bytes() if path.exists() else None
    kept = None if data is None else Written.read(index)
    if data is not None and kept is not None and kept.read_as == {"file": _digest(data), **read_as}:
        changed = kept.changed(rows)
        if not len(changed):
            return 0
        fresh = _patched(data, kept.lengths, changed, _lines_of(items, classes, rows, changed), rows.columns[0])
        if fresh is not None:
            content, lengths = fresh
            with atomic(path) as handle:
                handle.write(content)
            _keep(index, content, read_as, rows, lengths)
            return len(changed)
    table = columns_of(items, classes, rows.columns).table()
    written = write_if_changed(path, table)
    content = path.read_bytes()
    _keep(index, content, read_as, rows, _lengths(content, rows.columns[0] != NOTHING))
    return table.num_rows if written else 0


def _keep(
    index: Path,
    content: bytes,
    read_as: Mapping[str, Any],
    rows: RowsByDifference,
    lengths: npt.NDArray[np.uint16] | None,
) -> None:
    """Keep what the file is now; where its lines are not its rows there is nothing to keep."""
    if lengths is None:
        index.unlink(missing_ok=True)
        return
    values = np.stack([column[rows.rows] for column in rows.columns])
    with suppress(OSError, BadInput):  # without one the next push makes the file anew
        Written({"file": _digest(content), **read_as}, rows.rows, values, lengths).write(index)


def _lengths(content: bytes, said: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint16] | None:
    """(N,) bytes of the line of each item that has one; None where lines are not rows."""
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == END)
    if len(ends) != 1 + int(said.sum()) or ends[-1] != len(content) - 1:
        return None
    each = np.diff(ends)
    if each.max(initial=0) > np.iinfo(np.uint16).max:
        return None
    lengths = np.zeros(len(said), np.uint16)
    lengths[said] = each
    return lengths


def _lines_of(
    items: pa.Array, classes: tuple[str, ...], rows: RowsByDifference, changed: npt.NDArray[np.int32]
) -> list[bytes]:
    """The lines that a file has of those of these rows that are said, without its header."""
    some = columns_of(items.take(pa.array(changed)), classes, tuple(column[changed] for column in rows.columns))
    return io.BytesIO(csv_bytes(some.table())).readlines()[1:]


def _patched(
    data: bytes,
    lengths: npt.NDArray[np.uint16],
    changed: npt.NDArray[np.int32],
    lines: list[bytes],
    label: npt.NDArray[np.int32],
) -> tuple[bytes, npt.NDArray[np.uint16]] | None:
    """The file with these lines in place of those of the changed rows, and its lengths; None where lines are not rows.

    `label`: (N,) of each row now, `NOTHING` for one that the file is not to have.
    """
    said = label[changed] != NOTHING
    longest = np.iinfo(np.uint16).max
    if len(lines) != int(said.sum()) or any(line[-1] != END or len(line) > longest for line in lines):
        return None
    ends = np.cumsum(lengths, dtype=np.int64) + (len(data) - int(lengths.sum(dtype=np.int64)))  # behind the header
    last = ends[changed]
    first = last - lengths[changed]
    after = lengths.copy()
    after[changed] = 0
    after[changed[said]] = [len(line) for line in lines]
    fresh, done, parts, whole = iter(lines), 0, list[Any](), memoryview(data)
    for start, end, has_line in zip(first.tolist(), last.tolist(), said.tolist(), strict=True):
        parts.append(whole[done:start])
        if has_line:
            parts.append(next(fresh))
        done = end
    parts.append(whole[done:])
    return b"".join(parts), after


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
