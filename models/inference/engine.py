"""Shards, and the engine that computes passes over them.

A shard is a table of evidence; together shards hold disjoint items of one crowd, and share classes, options and
annotators with the same codes. A fit of shards is made of passes:

    pass     sum over shards of work(shard)        `work` takes its parameters with it, and can be pickled

Sums are added in pairs of neighbours, pairs of pairs and so on. So a result depends on the shards alone, to the last
bit, and not on the number of workers nor on their speed. One table in memory is a single shard, and its own sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations
from hitl.errors import BadEvidence
from hitl.evidence import Evidence

MOST_LABELS = 127
"""Labels of an item up to which items are counted apart."""

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class Engine(Protocol):
    """Computes passes over shards. Each shard is requested when its turn comes and held no longer."""

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """Return the sum of `work` over all shards, added in the order of `summed`."""
        ...

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield `work` of each shard, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Serial:
    """One shard after the other, in this process."""

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """Return the sum of `work` over all shards."""
        total: S = summed(self.each(work, shards))
        return total

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield `work` of each shard."""
        return (work(shards[i]) for i in range(len(shards)))


SERIAL = Serial()


@dataclass(frozen=True, eq=False)
class Additive:
    """A statistic: the sum of two adds up their fields."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, eq=False)
class Rows:
    """Arrays with a row per item: the sum of two puts their rows one after the other."""

    def __add__(self, other: Self) -> Self:
        return type(self)(
            *(np.concatenate((getattr(self, one.name), getattr(other, one.name))) for one in fields(self))
        )


@dataclass(frozen=True, eq=False)
class Size(Additive):
    """Numbers of items and labels.

    Attributes:
        labels_k: (K,) labels per annotator.
        known: items with known truth.
        open_m: (MOST_LABELS + 1,) other items by their number of labels; the last counts those with more, too.
    """

    labels_k: npt.NDArray[np.int64]
    known: int
    open_m: npt.NDArray[np.int64]

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Count one shard."""
        labels_n = np.minimum(evidence.annotations.labels_per_item[~evidence.known], MOST_LABELS)
        open_m = np.bincount(labels_n, minlength=MOST_LABELS + 1)
        return cls(evidence.annotations.labels_per_annotator, int(evidence.known.sum()), open_m)

    @property
    def items(self) -> int:
        """Number of all items."""
        return self.counted(0)

    @property
    def labels(self) -> int:
        """Number of all labels."""
        return int(self.labels_k.sum())

    def counted(self, least_labels: int) -> int:
        """Return the number of items with known truth or that many labels."""
        return self.known + int(self.open_m[min(least_labels, MOST_LABELS) :].sum())


@dataclass(frozen=True, eq=False)
class Shards(Sequence[Evidence]):
    """Evidence in shards, which need not be in memory together, and the engine of a fit to them.

    `tables` may read each shard from a file whenever it is asked for.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import MajorityVote
        >>> from hitl.models.inference.engine import Shards
        >>> shards = Shards([Evidence(Annotations.from_matrix(rows)) for rows in ([[0, 0]], [[1, 1]])])
        >>> learned = MajorityVote().fit(shards)
        >>> [MajorityVote().apply(learned, shard).labels.tolist() for shard in shards]
        [[0], [1]]
    """

    tables: Sequence[Evidence]
    engine: Engine = SERIAL

    def __post_init__(self) -> None:
        if not len(self.tables):
            raise BadEvidence("no shards: expected at least one table of evidence")

    def __len__(self) -> int:
        return len(self.tables)

    @overload
    def __getitem__(self, i: int) -> Evidence: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Evidence]: ...
    def __getitem__(self, i: int | slice) -> Evidence | Sequence[Evidence]:
        return self.tables[i]

    @property
    def table(self) -> Evidence | None:
        """The one table in memory, whose items are judged with the fit; None for shards."""
        return None

    @cached_property
    def annotations(self) -> Annotations:
        """Annotations of the first shard, for the names and codes that all share."""
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
        """Return `work`, computed only once for a table in memory."""
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
    """A function of a shard; its value at a table in memory is kept."""

    work: Callable[[Evidence], R]
    table: Evidence | None = None
    value: R | None = None

    def __call__(self, evidence: Evidence) -> R:
        """Return the value at this shard."""
        if self.table is evidence and self.value is not None:
            return self.value
        return self.work(evidence)


def summed(parts: Iterable[Any]) -> Any:
    """Add up all parts in pairs of neighbours, then pairs of pairs; at least one part.

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
