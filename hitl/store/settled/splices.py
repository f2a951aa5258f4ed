"""Columns of many rows in which some are replaced by others: what stands before, between and behind is copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.store.settled.columns import Array, Later


@dataclass(frozen=True, eq=False)
class Splice:
    """Parts of a column, `at` to before `behind`, that are replaced by parts of another, `first` to before `end`."""

    at: Array
    behind: Array
    first: Array
    end: Array

    @classmethod
    def of(cls, *bounds: Array) -> Splice:
        """Of these bounds, (R,) each, in the order of the attributes."""
        return cls(*(np.asarray(each, np.int64) for each in bounds))

    def parts(self, old: Any, fresh: Any) -> list[Any]:
        """What the new column is made of."""
        found, done = [], 0
        for at, behind, first, end in zip(*(each.tolist() for each in vars(self).values()), strict=True):
            found += [old[done:at], fresh[first:end]]
            done = behind
        return [*found, old[done:]]

    def spliced(self, old: Array, fresh: Array) -> Array:
        """The new column."""
        kind = np.result_type(old, fresh)
        return np.concatenate([part.astype(kind, copy=False) for part in self.parts(old, fresh)])

    def gone(self, old: Array) -> Array:
        """What is replaced."""
        pairs = zip(self.at.tolist(), self.behind.tolist(), strict=True)
        return np.concatenate([old[:0], *(old[at:behind] for at, behind in pairs)])

    def later(self, old: Later, fresh: Later, m: int, m_fresh: int) -> Later:
        """The new column of numbers, computed on first use."""
        if old is None and fresh is None:
            return None
        return partial(_joined, self, old or partial(np.full, m, np.nan), fresh or partial(np.full, m_fresh, np.nan))


def _joined(splice: Splice, old: Callable[[], Floats], fresh: Callable[[], Floats]) -> Floats:
    found: Floats = splice.spliced(old(), fresh())
    return found


def bounds_of(positions: Array, wanted: Array) -> tuple[Array, Array]:
    """Where the wanted positions stand, or would, and the place behind each that is there."""
    at = np.searchsorted(positions, wanted)
    there = np.append(positions, -1)[at] == wanted
    return at, at + there


def starts(counts: Array) -> Array:
    """(N + 1,) where the answers of each item begin, of these counts, and the last end."""
    return np.append(0, np.cumsum(counts, dtype=np.int64))
