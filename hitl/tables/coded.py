"""Values of which each is one of a few, or of many that are there already: there may be a million."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.tables.encoding import CheckedNames

T = TypeVar("T")


class Coded(Sequence[T]):
    """The values behind (M,) codes; none is copied before it is looked at.

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
        """The same in a column; each value is converted once."""
        names = self.values
        column = names.column if isinstance(names, CheckedNames) else pa.array([*names])
        return column.take(pa.array(self.codes))
