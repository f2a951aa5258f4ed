"""Shards, and the engine that computes passes over them.

A shard is a table of evidence. Shards hold disjoint items of one crowd, and share classes, options and
annotators with the same codes. A fit of shards is a series of passes:

    pass     sum over shards of work(shard)        `work` carries its parameters, and can be pickled

Shards are added in pairs of neighbors, then pairs of pairs and so on. So a result depends on the shards alone, to the
last bit, and not on the number or speed of workers. One table in memory is a single shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from operator import add
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations
from hitl.errors import BadEvidence
from hitl.evidence import Evidence

MOST_LABELS = 127
"""Number of labels per item up to which items are counted by their exact number of labels."""

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class Engine(Protocol):
    """Engine that computes passes over shards. It requests each shard in turn and releases it afterwards."""

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """Return the sum of `work` over all shards, added in the order of `summed`."""

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield the result of `work` for each shard, in order."""


@dataclass(frozen=True, slots=True)
class Serial:
    """Engine that processes one shard after the other, in this process."""

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """Return the sum of `work` over all shards."""
        total: S = summed(self.each(work, shards))
        return total

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield the result of `work` for each shard."""
        return (work(shards[i]) for i in range(len(shards)))


SERIAL = Serial()


@dataclass(frozen=True, eq=False)
class Additive:
    """Statistic that is added field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, eq=False)
class Sums:
    """Several statistics of one pass, each added separately. Iterating yields them."""

    parts: tuple[Any, ...]

    def __add__(self, other: Sums) -> Sums:
        return Sums(tuple(map(add, self.parts, other.parts)))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)


@dataclass(frozen=True, eq=False)
class Rows:
    """Arrays with one row per item; adding concatenates them."""

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        return type(self)(*map(np.concatenate, pairs))


@dataclass(frozen=True, eq=False)
class Size(Additive):
    """Numbers of items and labels.

    Attributes:
        labels_k: (K,) number of labels per annotator.
        single_k: (K,) number of an annotator's labels that are their item's only one, without ground truth.
        known: number of items with ground truth.
        open_m: (MOST_LABELS + 1,) number of items without known truth that have m labels; the last entry includes items
            with more.
    """

    labels_k: npt.NDArray[np.int64]
    single_k: npt.NDArray[np.int64]
    known: int
    open_m: npt.NDArray[np.int64]

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Count one shard."""
        annotations = evidence.annotations
        open_m = np.bincount(
            np.minimum(annotations.labels_per_item[~evidence.known], MOST_LABELS), minlength=MOST_LABELS + 1
        )
        single_n = (annotations.labels_per_item == 1) & ~evidence.known
        single_k = np.bincount(annotations.annotator, single_n[annotations.item], annotations.n_annotators)
        return cls(annotations.labels_per_annotator, single_k.astype(np.int64), int(evidence.known.sum()), open_m)

    @property
    def labels(self) -> int:
        """Number of all labels."""
        return int(self.labels_k.sum())

    def counted(self, least_labels: int) -> int:
        """Return the number of items with ground truth or at least `least_labels` labels."""
        return self.known + int(self.open_m[min(least_labels, MOST_LABELS) :].sum())


@dataclass(frozen=True, eq=False)
class Shards:
    """Evidence in shards, which need not be in memory together, and the engine that fits them.

    `tables` may read each shard from a file on every access. A fit of shards returns a consensus without items; `apply`
    then predicts the items, shard by shard.
    """

    tables: Sequence[Evidence]
    engine: Engine = SERIAL

    def __post_init__(self) -> None:
        if not len(self.tables):
            raise BadEvidence("no shards: expected at least one table of evidence")

    @property
    def table(self) -> Evidence | None:
        """The table, if there is only one and it is in memory: then a fit also returns its beliefs. None for shards."""
        return None

    @cached_property
    def annotations(self) -> Annotations:
        """Annotations of the first shard, for the names and codes that all shards share."""
        return self.tables[0].annotations

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Names of the models, which all shards share."""
        return tuple(self.tables[0].probabilities)

    @cached_property
    def size(self) -> Size:
        """Numbers of items and labels in all shards."""
        return self.total(Size.of)

    def total(self, work: Callable[[Evidence], S]) -> S:
        """Return the sum of `work` over all shards."""
        return self.engine.total(work, self.tables)

    def once(self, work: Callable[[Evidence], R]) -> PerShard[R]:
        """Wrap `work` so that it is computed only once for a table in memory, and in each call for shards."""
        return PerShard(work) if self.table is None else PerShard(work, self.table, work(self.table))


class Table(Shards):
    """One table in memory."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__((evidence,))

    @property
    def table(self) -> Evidence:
        """The table."""
        return self.tables[0]


@dataclass(frozen=True, eq=False)
class PerShard(Generic[R]):
    """Function of a shard that caches its value for a table in memory."""

    work: Callable[[Evidence], R]
    table: Evidence | None = None
    value: R | None = None

    def __call__(self, evidence: Evidence) -> R:
        """Return the value for this shard."""
        if self.table is evidence and self.value is not None:
            return self.value
        return self.work(evidence)


def summed(parts: Iterable[Any]) -> Any:
    """Add up all parts (at least one) in pairs of neighbors, then pairs of pairs.

    At most about log2 n sums of n parts are in memory at a time.
    """
    sums: list[tuple[int, Any]] = []  # (number of parts, their sum), most parts first
    for part in parts:
        size = 1
        while sums and sums[-1][0] == size:
            part, size = sums.pop()[1] + part, 2 * size
        sums.append((size, part))
    total = sums.pop()[1]
    while sums:
        total = sums.pop()[1] + total
    return total
