"""How large, deep and wide a file may be: checked before it is parsed, so that a hostile one is an error and no crash.

The limits are those of `[limits]` in hitl.toml within a project, else those of the environment (HITL_LIMITS__ROWS).

    packed files   .gz, and the archives .xlsx and .npz: their size unpacked, also as a multiple of the file's
    JSON Lines     how deep values lie in each other (a parser that recurses ends the process), and how many names rows
                   have that few others have: a table has a field for each of them in each row
    all            rows, columns, the length of names
"""

from __future__ import annotations

import gzip
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.errors import BadSettings, BadTable

BLOCK = 1 << 22
SMALL = 1 << 28
"""Bytes that any packed file may become."""

MAX_RATIO = 200
"""How many times its size a packed file may become beyond that; tables become 3 to 20 times theirs."""

SPARSE = 50
"""How many fields a table of JSON Lines may have for each value that is there."""

FEW_FIELDS = 10_000_000


@dataclass(frozen=True)
class Limits:
    """What a file may hold: levels of nested values, bytes when unpacked, rows, columns, classes, letters of a name."""

    nesting: int = 100
    unpacked: int = 8 << 30
    rows: int = 200_000_000
    columns: int = 25_000
    classes: int = 20_000
    name_length: int = 1_000


_here: ContextVar[Limits | None] = ContextVar("limits", default=None)


def limits() -> Limits:
    """Those that hold here."""
    return _here.get() or _of_environment()


@contextmanager
def within(these: Limits) -> Iterator[None]:
    """Have these hold for the block."""
    token = _here.set(these)
    try:
        yield
    finally:
        _here.reset(token)


def require_harmless(path: Path, kind: str) -> None:
    """Raise BadTable, naming the file, where what it holds passes a limit before it is parsed."""
    if path.suffix.lower() == ".gz":
        _require_unpacked(path, _unpacked_gzip(path))
    if kind in ("xlsx", "npz"):
        _require_unpacked(path, _unpacked_archive(path))
    if kind == "jsonl":
        _require_plain_json(path)


def require_fit(table: pa.Table, path: Path, names: Sequence[str] = ()) -> None:
    """Raise BadTable where a table has too many rows or columns, or, in the columns `names`, too long a name."""
    require_shape(path, table.num_rows, table.num_columns)
    import pyarrow.compute as pc

    for name in names:
        column = table.column(name) if table.column_names.count(name) == 1 else None
        if column is None or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        longest = pc.max(pc.utf8_length(column)).as_py() or 0
        if longest > limits().name_length:
            row = pc.index(pc.equal(pc.utf8_length(column), longest), True).as_py()
            raise BadTable(
                f"{path}, row {row}: the {name} has {longest:,} characters; expected at most "
                f"{limits().name_length:,} (limits.name_length)"
            )


def require_shape(path: Path, rows: int, columns: int) -> None:
    """Raise BadTable for too many rows or columns."""
    for found, what, most in ((rows, "rows", limits().rows), (columns, "columns", limits().columns)):
        if found > most:
            raise BadTable(f"{path}: {found:,} {what}; expected at most {most:,} (limits.{what})")


# -- packed ------------------------------------------------------------------------------------------------


def _require_unpacked(path: Path, size: int) -> None:
    most = min(limits().unpacked, max(SMALL, MAX_RATIO * path.stat().st_size))
    if size > most:
        raise BadTable(
            f"{path}: unpacked it has {size:,} bytes or more; expected at most {most:,} for a file of "
            f"{path.stat().st_size:,} (limits.unpacked, and {MAX_RATIO} times its size)"
        )


def _unpacked_gzip(path: Path) -> int:
    """Bytes when unpacked, counted up to the limit; 0 where even the most is no problem."""
    if path.stat().st_size * 1032 < SMALL:  # deflate packs no better
        return 0
    size, most = 0, min(limits().unpacked, max(SMALL, MAX_RATIO * path.stat().st_size))
    try:
        with gzip.open(path) as file:
            while size <= most and (block := file.read(BLOCK)):
                size += len(block)
    except (OSError, EOFError, zlib.error) as error:
        raise BadTable(f"{path}: cannot be unpacked: {error}") from None
    return size


def _unpacked_archive(path: Path) -> int:
    """What the archive says that its members have, which the library holds them to; 0 of what is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return 0  # who reads it says what is wrong


# -- JSON Lines --------------------------------------------------------------------------------------------

_TEXT = bytes(set(range(256)) - set(b'{}[]"\n'))
_STEP = np.zeros(256, np.int64)
_STEP[list(b"{[")], _STEP[list(b"}]")] = 1, -1
_NAME = re.compile(rb'"([^"]*+)"\s*+:')


def _require_plain_json(path: Path) -> None:
    depth = lowest = rows = values = 0
    names: set[bytes] = set()
    for block in _blocks_of_lines(path):
        block = _without_escapes(block)
        depth, lowest, deepest = _depth(block, depth, lowest)
        if deepest > limits().nesting:
            raise BadTable(
                f"{path}: values lie {deepest:,} deep in each other; expected at most {limits().nesting:,} "
                "(limits.nesting)"
            )
        rows += block.count(b"\n")
        found = _NAME.findall(block)
        values += len(found)
        names.update(found)
        if rows * len(names) > max(FEW_FIELDS, SPARSE * values) or len(names) > limits().columns:
            raise BadTable(
                f"{path}: its rows have {len(names):,} different names, most of them in few rows; expected a table, "
                f"with at most {limits().columns:,} names (limits.columns)"
            )


def _depth(block: bytes, depth: int, lowest: int) -> tuple[int, int, int]:
    """The depth behind these lines, the lowest one so far, and how deep any value lies in others.

    No text goes on behind the end of a line, so quotes are counted within lines. What is closed and was not opened is
    an error for the parser, which may begin anew behind it: depth counts from the lowest point.
    """
    marks = np.frombuffer(block.translate(None, _TEXT), np.uint8)
    inside = _in_text(marks)
    course = depth + np.cumsum(np.where(inside, 0, _STEP[marks]))
    if not len(course):
        return depth, lowest, depth - lowest
    lows = np.minimum(np.minimum.accumulate(course), lowest)
    return int(course[-1]), int(lows[-1]), int((course - lows).max())


def _without_escapes(block: bytes) -> bytes:
    """So that each quote opens or closes a text."""
    return block.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in block else block


def _in_text(marks: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    quotes = np.cumsum(marks == ord('"'))
    ends = np.flatnonzero(marks == ord("\n"))
    before = np.zeros(len(marks), np.int64)
    before[ends] = np.diff(quotes[ends], prepend=0)
    of_lines = np.cumsum(before)  # quotes up to the last line's end
    inside: npt.NDArray[np.bool_] = (quotes - of_lines) % 2 == 1
    return inside


def _blocks_of_lines(path: Path) -> Iterator[bytes]:
    with pa.input_stream(path, compression="detect") as raw:
        rest = b""
        while block := raw.read(BLOCK):
            head, end, tail = block.rpartition(b"\n")
            if end:
                yield rest + head + end
                rest = tail
            else:
                rest += tail
        if rest:
            yield rest + b"\n"


def _of_environment() -> Limits:
    known = {f"HITL_LIMITS__{each.name.upper()}": each.name for each in fields(Limits)}
    found: dict[str, int] = {}
    for name, text in os.environ.items():
        if not name.upper().startswith("HITL_LIMITS__") or not text:
            continue
        if name.upper() not in known:
            raise BadSettings(f"environment: {name}: no such key; expected one of {', '.join(known)}")
        if not text.isascii() or not text.isdigit() or not int(text):
            raise BadSettings(f"{name} is {text!r}; expected a whole number above 0")
        found[known[name.upper()]] = int(text)
    return Limits(**found)
