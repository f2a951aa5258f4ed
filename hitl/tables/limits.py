"""Limits on the size and shape of files and on memory, so that a hostile file is an error and not a crash.

Within a project the limits come from `[limits]` in hitl.toml, elsewhere from environment variables such as
HITL_LIMITS__ROWS. Compressed files (.gz, and the archives .xlsx and .npz) have a limit on their unpacked size, and on
its ratio to the file size. All tables have limits on rows, columns and the length of names. The JSON parser also limits
nesting and sparse rows.

Memory is checked before anything is allocated. Its limit is `limits.memory` or, if that is 0, the memory that is
available now: to the machine, to the container (cgroup) and to the process (ulimit -v), whichever is least.
"""

from __future__ import annotations

import gzip
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadSettings, BadTable

SMALL = 1 << 28
"""Unpacked size in bytes up to which a compressed file may have any compression ratio."""

MAX_RATIO = 200
"""Maximum compression ratio of files that unpack to more than SMALL; tables have ratios of 3 to 20."""

DEFLATE_RATIO = 1032
"""Largest compression ratio that deflate can achieve."""


CGROUP = Path("/sys/fs/cgroup")
CGROUP_FILES = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
"""Files of the limit and the use, in versions 2 and 1."""

SHARDS = "`hitl shard` reads tables of labels in parts"
SHORTER = "shorten this row, or split it"
FEWER_NUMBERS = "use fewer columns or items, or split the file"
"""Advice on what takes less memory: for tables, for a row of a table, and for numbers."""


@dataclass(frozen=True)
class Limits:
    """Limits of a file.

    Attributes:
        nesting: maximum number of levels of nested values.
        unpacked: maximum unpacked size in bytes.
        rows, columns, classes: maximum numbers of these.
        name_length: maximum number of characters of a name.
        memory: maximum bytes that a table or a fit may take; 0: what is available.
    """

    nesting: int = 100
    unpacked: int = 8 << 30
    rows: int = 200_000_000
    columns: int = 25_000
    classes: int = 20_000
    name_length: int = 1_000
    memory: int = 0


_current: ContextVar[Limits | None] = ContextVar("limits", default=None)


def limits() -> Limits:
    """Return the current limits. Raise BadSettings for an invalid limit in the environment."""
    return _current.get() or _from_environment()


@contextmanager
def within(these: Limits) -> Iterator[None]:
    """Use these limits within the block."""
    token = _current.set(these)
    try:
        yield
    finally:
        _current.reset(token)


def require_harmless(path: Path, kind: str) -> None:
    """Raise BadTable if a compressed file unpacks to more than the limits allow."""
    packed = path.stat().st_size
    most = min(limits().unpacked, max(SMALL, MAX_RATIO * packed))
    size = 0
    try:
        if path.suffix.lower() == ".gz" and packed * DEFLATE_RATIO >= SMALL:
            with gzip.open(path) as file:
                while size <= most and (block := file.read(1 << 22)):
                    size += len(block)
        elif kind in ("xlsx", "npz", "zip") and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())  # the library enforces these sizes
    except (OSError, EOFError, ValueError, NotImplementedError, zlib.error, zipfile.BadZipFile) as error:
        raise BadTable(f"{path}: cannot be unpacked: {error}") from None
    if size > most:
        raise BadTable(
            f"{path}: unpacked it has {size:,} bytes or more; expected at most {most:,} for a file of {packed:,} "
            f"(limits.unpacked, and {MAX_RATIO} times its size)"
        )


def require_fit(table: pa.Table, path: Path, names: Sequence[str] = ()) -> None:
    """Raise BadTable if a table has too many rows or columns, or too long a name in the columns `names`."""
    require_shape(path, table.num_rows, table.num_columns)
    for name in names:
        column = table.column(name) if table.column_names.count(name) == 1 else None
        if column is None or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        lengths = pc.utf8_length(column)
        longest = pc.max(lengths).as_py() or 0
        if longest > limits().name_length:
            row = pc.index(lengths, longest).as_py()
            raise BadTable(
                f"{path}, row {row}: the {name} has {longest:,} characters; expected at most "
                f"{limits().name_length:,} (limits.name_length)"
            )


def require_shape(path: Path, rows: int, columns: int) -> None:
    """Raise BadTable for too many rows or columns."""
    for size, what, most in ((rows, "rows", limits().rows), (columns, "columns", limits().columns)):
        if size > most:
            raise BadTable(f"{path}: {size:,} {what}; expected at most {most:,} (limits.{what})")


def _from_environment() -> Limits:
    names = {f"HITL_LIMITS__{field.name.upper()}": field.name for field in fields(Limits)}
    values: dict[str, int] = {}
    for name, text in os.environ.items():
        if not name.upper().startswith("HITL_LIMITS__") or not text:
            continue
        if name.upper() not in names:
            raise BadSettings(f"environment: {name}: no such key; expected one of {', '.join(names)}")
        if not text.isascii() or not text.isdigit() or not int(text):
            raise BadSettings(f"{name} is {text!r}; expected a whole number above 0")
        values[names[name.upper()]] = int(text)
    return Limits(**values)


# -- memory ------------------------------------------------------------------------------------------------


def memory_limit() -> int:
    """Return the bytes that the next table or fit may take."""
    return limits().memory or min(_available(), default=sys.maxsize)


def require_memory(path: Path | str, size: int, most: int | None = None, instead: str = SHARDS) -> None:
    """Raise BadTable if the content of a file takes more memory than there is, or than `most`.

    `instead` says what takes less.
    """
    most = memory_limit() if most is None else most
    if size > most:
        raise BadTable(
            f"{path}: its content takes {readable(size)} of memory or more; expected at most {readable(most)} "
            f"(limits.memory, or what is available); {instead}"
        )


def readable(size: float) -> str:
    """Return a size in bytes as text, such as "3.7 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"


def _available() -> Iterator[int]:
    for limit, used in CGROUP_FILES:
        with suppress(OSError, ValueError):  # no such cgroup, or "max"
            free, cached = int((CGROUP / limit).read_text()) - int((CGROUP / used).read_text()), 0
            with suppress(OSError):  # files in memory, which the kernel drops when memory is needed
                cached = _field(CGROUP / "memory.stat", "inactive_file ")
            yield max(0, free + cached)
    with suppress(OSError):
        yield _field(Path("/proc/meminfo"), "MemAvailable:") << 10
    with suppress(ImportError, OSError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield max(0, soft - (_field(Path("/proc/self/status"), "VmSize:") << 10))


def _field(path: Path, name: str) -> int:
    """Return the number after a name, in a file with one of each per line."""
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(name))
