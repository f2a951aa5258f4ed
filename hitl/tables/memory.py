"""Memory that a table or a fit may take, checked before anything is allocated.

The limit is `limits.memory` or, if that is 0, the memory that is available now: to the machine, to the container
(cgroup) and to the process (ulimit -v), whichever is least.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hitl.errors import BadTable
from hitl.tables.limits import limits

CGROUP = Path("/sys/fs/cgroup")
CGROUP_FILES = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
"""Files of the limit and the use, in versions 2 and 1."""


SHARDS = "`hitl shard` reads tables of labels in parts"
SHORTER = "shorten this row, or split it"
FEWER_NUMBERS = "use fewer columns or items, or split the file"
"""Advice on what takes less memory: for tables, for a row of a table, and for numbers."""


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
            yield max(0, int((CGROUP / limit).read_text()) - int((CGROUP / used).read_text()) + _cached())
    with suppress(OSError):
        yield _of_proc("/proc/meminfo", "MemAvailable:")
    with suppress(ImportError, OSError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield max(0, soft - _of_proc("/proc/self/status", "VmSize:"))


def _cached() -> int:
    """Return the bytes of files that the container holds in memory, and the kernel drops when memory is needed."""
    with suppress(OSError):
        return int(dict(map(str.split, (CGROUP / "memory.stat").read_text().splitlines()))["inactive_file"])
    return 0


def _of_proc(path: str, name: str) -> int:
    """Return a size in bytes of a file that has one name and one size in kB per line."""
    return next(int(line.split()[1]) << 10 for line in Path(path).read_text().splitlines() if line.startswith(name))
