"""Sums over some items of all shards: those of known truth, or a sample.

What is fitted to such items is fitted in many steps, and each needs a sum over them. Where they are few they are
gathered in one pass; where there are more than memory should hold, each sum is a pass that finds them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from hitl.evidence import Evidence
from hitl.models.inference.passes import Engine

MOST_NUMBERS = 2**24
"""Numbers of gathered items at most: some 100 MB."""

Total = Callable[[Callable[[Any], Any]], Any]
"""A term of some items -> its sum over all of them."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Arrays whose rows are items; those of two shards follow each other."""

    def __add__(self, other: Self) -> Self:
        return type(self)(
            *(np.concatenate((getattr(self, one.name), getattr(other, one.name))) for one in fields(self))
        )


def over(rows: Any) -> Total:
    """Sums over these items, of one table."""
    return lambda term: term(rows)


def over_shards(engine: Engine, shards: Sequence[Evidence], find: Callable[[Evidence], Any], numbers: int) -> Total:
    """Sums over the items that `find` gives of each shard, together so many numbers.

    A term is given the items of one shard or more, and may be pickled, as `find` may. Terms of two shards add up.
    """
    if numbers <= MOST_NUMBERS:
        return over(engine.total(find, shards))
    return lambda term: engine.total(_Term(find, term), shards)


@dataclass(frozen=True, eq=False)
class _Term:
    find: Callable[[Evidence], Any]
    term: Callable[[Any], Any]

    def __call__(self, evidence: Evidence) -> Any:
        return self.term(self.find(evidence))
