"""Lazy sequences of values by code, and of numbers, for up to millions of entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import eq
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.tables.encoding import CheckedNames

T = TypeVar("T")


class Coded(Sequence[T]):
    """Values behind (M,) codes, looked up on access.

    Example:
        >>> from hitl.tables.coded import Coded
        >>> list(Coded(("no", "yes"), [1, 1, 0]))
        ['yes', 'yes', 'no']
    """

    __slots__ = ("codes", "values")

    def __init__(self, values: Sequence[T], codes: npt.ArrayLike) -> None:
        self.values = values
        self.codes = np.asarray(codes)

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> Coded[T]: ...

    def __getitem__(self, place: int | slice) -> T | Coded[T]:
        found = self.codes[place]
        return Coded(self.values, found) if isinstance(place, slice) else self.values[int(found)]

    def __iter__(self) -> Iterator[T]:
        return map(self.values.__getitem__, self.codes.tolist())

    def __repr__(self) -> str:
        return repr(list(self))

    @property
    def column(self) -> pa.Array:
        """The values as a column; each distinct value is converted once."""
        names = self.values
        column = names.column if isinstance(names, CheckedNames) else pa.array([*names])
        return column.take(pa.array(self.codes))


class Numbers(Sequence[float]):
    """(M,) numbers, converted to Python's own on access.

    Example:
        >>> from hitl.tables.coded import Numbers
        >>> list(Numbers([0.5, 1]))
        [0.5, 1.0]
    """

    __slots__ = ("_numbers",)

    def __init__(self, numbers: npt.ArrayLike) -> None:
        self._numbers = np.asarray(numbers, np.float64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self._numbers, dtype, copy=copy)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> float: ...

    @overload
    def __getitem__(self, place: slice) -> Numbers: ...

    def __getitem__(self, place: int | slice) -> float | Numbers:
        found = self._numbers[place]
        return Numbers(found) if isinstance(place, slice) else float(found)

    def __iter__(self) -> Iterator[float]:
        return iter(self._numbers.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))
