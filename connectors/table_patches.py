"""A file with a row for each of many items, of which only those rows are made anew that say something else.

    consensus.csv            the table
    .consensus.csv.index     of which bytes it was when it was written here, and what each row said

The other rows are taken from the file as it is, if it is what was written: its digest is looked at each time, so that a
file that somebody has edited is made anew as a whole. So is one that was written by another version, or before a new
whole (`row_differences`), or of which a row is more than one line. Either way the file is the same, byte by byte.

The index is written behind the file: a process that is killed in between leaves one of another file, which is not used.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
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
        rows: those that differed from the whole.
        said: (N,) which items had a row.
    """

    read_as: Mapping[str, Any]
    rows: npt.NDArray[np.int32]
    said: npt.NDArray[np.bool_]

    def write(self, path: Path) -> None:
        """Keep it, whole or not at all."""
        header = json.dumps({"form": FORM, "items": len(self.said), **self.read_as}).encode()
        arrays = {"header": np.frombuffer(header, np.uint8), "rows": self.rows, "said": np.packbits(self.said)}
        with atomic(path) as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def read(cls, path: Path) -> Written | None:
        """What `write` kept; None where there is nothing of the kind, or it is damaged."""
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as kept:
                arrays = dict(kept)
            header = json.loads(arrays["header"].tobytes())
            if header.pop("form") != FORM:
                return None
            said = np.unpackbits(arrays["said"], count=header.pop("items")).astype(bool)
            return cls(header, arrays["rows"], said)
        except (OSError, LookupError, TypeError, ValueError, EOFError, zipfile.BadZipFile):
            return None


def write_consensus(path: Path, operation: ConsensusByDifference) -> int:
    """Write the consensus of the only question; how many rows had to be written."""
    ((name, rows),) = operation.rows.items()
    items, classes = operation.named(), operation.classes[name]
    said = rows.columns[0] != NOTHING
    read_as = {"named": rows.items, "version": rows.version, "classes": [*classes]}
    index = path.with_name(f".{path.name}.index")
    data = path.read_bytes() if path.exists() else None
    kept = None if data is None else Written.read(index)
    if data is not None and kept is not None and kept.read_as == {"file": _digest(data), **read_as}:
        changed = np.union1d(kept.rows, rows.rows)
        parts = _patched(data, _lines_of(items, classes, rows, changed), changed, kept.said, said)
        if parts is not None:
            return _replace(path, index, data, parts, Written(read_as, rows.rows, said), len(changed))
    table = columns_of(items, classes, rows.columns).table()
    written = write_if_changed(path, table)
    _keep(index, Written({"file": _digest(path.read_bytes()), **read_as}, rows.rows, said))
    return table.num_rows if written else 0


def _replace(path: Path, index: Path, data: bytes, parts: list[memoryview], now: Written, changed: int) -> int:
    """Write the parts in place of the data unless they are the same; how many rows had to be written."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    file = digest.hexdigest()
    if file != _digest(data):
        with atomic(path) as handle:
            handle.writelines(parts)
    else:
        changed = 0
    _keep(index, Written({"file": file, **now.read_as}, now.rows, now.said))
    return changed


def _keep(index: Path, written: Written) -> None:
    with suppress(OSError, BadInput):  # without one the next push makes the file anew
        written.write(index)


def _lines_of(
    items: pa.Array, classes: tuple[str, ...], rows: RowsByDifference, changed: npt.NDArray[np.int32]
) -> list[bytes]:
    """The lines that a file has of those of these rows that are said, without its header."""
    some = columns_of(items.take(pa.array(changed)), classes, tuple(column[changed] for column in rows.columns))
    return csv_bytes(some.table()).splitlines(keepends=True)[1:]


def _patched(
    data: bytes,
    lines: list[bytes],
    changed: npt.NDArray[np.int32],
    before: npt.NDArray[np.bool_],
    now: npt.NDArray[np.bool_],
) -> list[memoryview] | None:
    """The parts of a file with these lines in place of those of the changed rows; None where lines are not rows.

    `before`, `now`: (N,) which rows the file has, and is to have.
    """
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == END) + 1
    if len(ends) != 1 + int(before.sum()) or len(lines) != int(now[changed].sum()):
        return None
    if any(line.count(b"\n") != 1 or b"\r" in line for line in lines) or (len(ends) and ends[-1] != len(data)):
        return None
    behind = np.cumsum(before)  # rows of the file up to each of N, itself among them
    last = ends[behind[changed]]
    first = ends[behind[changed] - before[changed]]
    return [*_parts(memoryview(data), lines, first.tolist(), last.tolist(), now[changed].tolist())]


def _parts(
    data: memoryview, lines: list[bytes], first: list[int], last: list[int], said: list[bool]
) -> Iterator[memoryview]:
    """The data with a line in place of each range, or nothing where nothing is said."""
    done, fresh = 0, iter(lines)
    for start, end, has_line in zip(first, last, said, strict=True):
        yield data[done:start]
        if has_line:
            yield memoryview(next(fresh))
        done = end
    yield data[done:]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
