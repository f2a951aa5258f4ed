"""Columns of numbers as compressed bytes with a checksum, and numbers that are made when they are asked for."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Floats

Array = npt.NDArray[Any]
Later = Callable[[], Floats] | None
"""Numbers, when they are asked for; None: all are unknown."""

_HEAD = struct.Struct("<IQI")
"""Checksum of what follows in a pack, bytes of it unpacked, and bytes of its description."""


class DoesNotFit(Exception):
    """What is kept does not say what these answers are: they have to be read as they are."""


def packed_columns(columns: Mapping[str, Array]) -> bytes:
    """Columns of numbers as one compressed piece with a checksum."""
    said = json.dumps([[name, column.dtype.str, len(column)] for name, column in columns.items()]).encode()
    plain = b"".join([said, *(column.tobytes() for column in columns.values())])
    small: bytes = pa.Codec("zstd", 1).compress(plain, asbytes=True)
    return _HEAD.pack(zlib.crc32(small), len(plain), len(said)) + small


@dataclass(frozen=True)
class PackedColumns:
    """What `packed_columns` packed. Raises DoesNotFit for anything else."""

    packed: bytes

    def __post_init__(self) -> None:
        if len(self.packed) < _HEAD.size or _HEAD.unpack_from(self.packed)[0] != zlib.crc32(self._body):
            raise DoesNotFit

    @property
    def _body(self) -> memoryview:
        return memoryview(self.packed)[_HEAD.size :]

    def columns(self) -> dict[str, Array]:
        """The columns by name."""
        _, size, at = _HEAD.unpack_from(self.packed)
        plain = memoryview(pa.Codec("zstd").decompress(self._body, size))
        found = {}
        for name, kind, length in json.loads(bytes(plain[:at])):
            found[name] = np.frombuffer(plain, kind, length, at)
            at += found[name].nbytes
        return found


def unpacked_later(name: str, packed: bytes | None) -> Later:
    """The numbers of this name in a pack; None without one. Raises DoesNotFit where it is damaged."""
    return None if packed is None else partial(_column, PackedColumns(packed), name)


def _column(packed: PackedColumns, name: str) -> Floats:
    return packed.columns()[name]


def narrow(column: Array) -> Array:
    """Whole numbers in as few bytes as they need; those below 0 as they are."""
    if column.min(initial=0) < 0:
        return column
    return column.astype(np.min_scalar_type(int(column.max(initial=0))))


def known(numbers: Floats | None) -> Later:
    """These numbers; None where all are unknown."""
    return None if numbers is None or np.isnan(numbers).all() else partial(_itself, numbers)


def _itself(numbers: Floats) -> Floats:
    return numbers
