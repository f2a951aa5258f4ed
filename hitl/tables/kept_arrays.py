"""Numbers that are kept beside a file for a shortcut: as they were written, or not at all.

Each array and what describes them has a check of its own, so that some can be read without the others. What is damaged,
or of another form, is as good as none: who finds none goes the long way.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from hitl.tables.files import atomic

Arrays = dict[str, npt.NDArray[Any]]


def write(path: Path, form: int, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Keep these arrays and a header of JSON values, whole or not at all."""
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described = [[name, array.dtype.str, array.shape, zlib.crc32(_bytes_of(array))] for name, array in held.items()]
    head = json.dumps({"form": form, "header": dict(header), "arrays": described}).encode()
    with atomic(path) as file:
        file.write(b"%d %d\n" % (zlib.crc32(head), len(head)))
        file.write(head)
        for array in held.values():
            file.write(_bytes_of(array))


def read(path: Path, form: int, names: Collection[str] | None = None) -> tuple[dict[str, Any], Arrays] | None:
    """What `write` kept, or of its arrays those of these names; None where there is none of this form, unharmed."""
    try:
        with path.open("rb") as file:
            check, size = map(int, file.readline(40).split())
            head = file.read(size)
            if zlib.crc32(head) != check:
                return None
            said = json.loads(head)
            return (said["header"], _arrays(file, said["arrays"], names)) if said["form"] == form else None
    except (OSError, LookupError, TypeError, ValueError, OverflowError):
        return None


def _arrays(file: IO[bytes], described: list[Any], names: Collection[str] | None) -> Arrays:
    """The arrays that stand here. Raises ValueError for a damaged one."""
    found = {}
    for name, kind, shape, check in described:
        if names is not None and name not in names:
            file.seek(math.prod(shape) * np.dtype(kind).itemsize, 1)
            continue
        array = np.empty(shape, kind)
        content = _bytes_of(array)
        if file.readinto(content) != len(content) or zlib.crc32(content) != check:  # type: ignore[attr-defined]
            raise ValueError(f"{name} is damaged")
        found[name] = array
    return found


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8).data)
