"""The seam between what is computed and where: one pass maps a function over shards and adds up what it gives.

A shard is a table of evidence like any other; together they hold disjoint items of one crowd. All have the same
classes, options and annotators, with the same codes.

    pass     sum over shards of work(shard)        `work` may be pickled: it takes its parameters with it

Sums are added in pairs of neighbours, pairs of pairs and so on. So a result depends on the shards alone, to the last
bit, and not on how many workers there are nor on which of them is done first. One shard is the sum of itself.

An engine is whatever does this; `InTurn` does it in this process. Each shard is asked for when its turn comes and held
no longer: a sequence of shards may make them anew each time, from files that are larger than the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self, TypeVar

from hitl.errors import BadEvidence
from hitl.evidence import Evidence

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class Engine(Protocol):
    """Where passes over shards are computed."""

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """The sum of what `work` gives of each shard, by `+`, in the order of `summed`."""
        ...

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """What `work` gives of each shard, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class InTurn:
    """Shards one after the other, in this process."""

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """The sum of what `work` gives of each shard."""
        total: S = summed(self.each(work, shards))
        return total

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """What `work` gives of each shard, in their order."""
        return (work(shards[i]) for i in range(len(shards)))


IN_TURN = InTurn()


@dataclass(frozen=True, eq=False)
class Additive:
    """A statistic: of two shards it is the sum of its fields."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


def summed(parts: Iterable[Any]) -> Any:
    """The sum of all parts, added in pairs of neighbours, then pairs of pairs; at least one part.

    Of n parts, about log2 n sums are held at a time.
    """
    sums: list[tuple[int, Any]] = []  # (number of parts, their sum); each of fewer parts than the one before
    for part in parts:
        size = 1
        while sums and sums[-1][0] == size:
            _, left = sums.pop()
            part, size = left + part, 2 * size
        sums.append((size, part))
    _, total = sums.pop()
    while sums:
        total = sums.pop()[1] + total
    return total


def first_of(shards: Sequence[Evidence]) -> Evidence:
    """A shard that stands for what all have in common. Raises BadEvidence where there is none."""
    if not len(shards):
        raise BadEvidence("no shards: expected at least one table of evidence")
    return shards[0]
