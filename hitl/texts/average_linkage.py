"""Which marks of different annotators are about the same thing: average linkage of their overlaps.

Two clusters are joined from the largest overlap downwards; their overlap is the mean of that of all pairs of marks.
Of equal overlaps those come first that agree more often about the kind, and then those that begin first. No cluster
has two marks of one annotator.

Only pairs that overlap are ever looked at: O(E log E) for E of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats

Indices = npt.NDArray[np.int64]

DIGITS = 9
"""Mean overlaps are equal if they agree to so many digits."""


@dataclass(slots=True)
class _Cluster:
    """Places, marks, kinds and annotators (a bit each) of a cluster, and the sums of overlaps with its neighbours."""

    places: list[int]
    marks: float
    kinds: Floats
    who: int
    beside: dict[int, float]


def joined(
    pair_e2: Indices, overlap_e: Floats, kind_pk: Floats, who_pa: npt.NDArray[np.bool_], least: float = 0.0
) -> list[list[int]]:
    """Places of each cluster, by their first ones; two that overlap by no more than `least` are not joined.

    `pair_e2` (E, 2): pairs of places that overlap, the smaller number first, and `overlap_e` (E,) by how much.
    `kind_pk` (P, kinds) counts the marks of each place, `who_pa` (P, annotators) says whose they are.
    """
    count_p = kind_pk.sum(axis=1)
    clusters = {
        p: _Cluster([p], float(count_p[p]), kind_pk[p].copy(), sum(1 << int(a) for a in np.flatnonzero(who_pa[p])), {})
        for p in range(len(kind_pk))
    }
    totals = overlap_e * count_p[pair_e2[:, 0]] * count_p[pair_e2[:, 1]]
    for (a, b), total in zip(pair_e2.tolist(), totals.tolist(), strict=True):
        clusters[a].beside[b] = clusters[b].beside[a] = total
    waiting = [ranked for a in clusters for ranked in _ranked(clusters, a, least) if ranked[2] == a]
    heapq.heapify(waiting)
    while waiting:
        *_, a, b, marks = heapq.heappop(waiting)
        # What was put there before one of the two has grown, or is gone, is out of date.
        if a in clusters and b in clusters and clusters[a].marks + clusters[b].marks == marks:
            _join(clusters, a, b)
            for ranked in _ranked(clusters, a, least):
                heapq.heappush(waiting, ranked)
    return [sorted(cluster.places) for _, cluster in sorted(clusters.items())]


def _ranked(clusters: dict[int, _Cluster], one: int, least: float) -> Iterator[tuple[float, float, int, int, float]]:
    """For each neighbour that it may be joined with: what ranks the two, their numbers, and their number of marks."""
    own = clusters[one]
    for other, total in own.beside.items():
        neighbour = clusters[other]
        pairs = own.marks * neighbour.marks
        if not own.who & neighbour.who and total > least * pairs:
            agree = float(own.kinds @ neighbour.kinds) / pairs
            a, b = min(one, other), max(one, other)
            yield -round(total / pairs, DIGITS), -round(agree, DIGITS), a, b, own.marks + neighbour.marks


def _join(clusters: dict[int, _Cluster], a: int, b: int) -> None:
    """Let cluster b become part of cluster a."""
    grown, gone = clusters[a], clusters.pop(b)
    grown.places += gone.places
    grown.marks += gone.marks
    grown.kinds += gone.kinds
    grown.who |= gone.who
    del grown.beside[b], gone.beside[a]
    for other, total in gone.beside.items():
        del clusters[other].beside[b]
        grown.beside[other] = clusters[other].beside[a] = grown.beside.get(other, 0.0) + total
