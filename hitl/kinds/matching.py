"""Match marks of different annotators that are about the same part of an item, by average linkage.

    cluster   marks of different annotators, joined from the largest overlap (intersection over union) downwards; among
              equal overlaps those that agree about the label come first, and then those that begin first
    item      each cluster: an annotator who answered its document gives the label of their mark, or "(nothing)"

An annotator who overlooks a name of three words, or invents one, errs once; as labels of tokens it would be three
errors, each of which seems to confirm the others. The overlap of two clusters is the mean over their pairs of marks,
and no cluster has two marks of one annotator. Joining compares places, so the order of the annotators does not matter.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Names
from hitl.evidence import Evidence
from hitl.kinds.kind import NOTHING

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

EQUAL_DIGITS = 9
"""Decimals to which mean overlaps must agree to count as equal."""


@dataclass(slots=True)
class _Cluster:
    """Places, number of marks, labels and annotators (a bit each), and sums of overlaps with neighbors."""

    places: list[int]
    marks: float
    labels: Floats
    annotators: int
    overlaps: dict[int, float]


def link(
    pair_e2: Indices, overlap_e: Floats, label_pj: Floats, annotator_pk: Flags, least: float = 0.0
) -> list[list[int]]:
    """Join places that overlap by more than `least`; clusters in the order of their first places. O(E log E).

    `pair_e2` (E, 2): pairs of places that overlap, the smaller number first; `overlap_e` (E,): their overlaps;
    `label_pj` (P, J) counts the marks of each place by label; `annotator_pk` (P, K): True for annotators who marked it.
    """
    count_p = label_pj.sum(axis=1)
    clusters = {
        p: _Cluster(
            [p], float(count_p[p]), label_pj[p].copy(), sum(1 << int(k) for k in np.flatnonzero(annotator_pk[p])), {}
        )
        for p in range(len(label_pj))
    }
    totals = overlap_e * count_p[pair_e2[:, 0]] * count_p[pair_e2[:, 1]]
    for (a, b), total in zip(pair_e2.tolist(), totals.tolist(), strict=True):
        clusters[a].overlaps[b] = clusters[b].overlaps[a] = total
    queue = [pair for a in clusters for pair in _joinable(clusters, a, least) if pair[2] == a]
    heapq.heapify(queue)
    while queue:
        *_, a, b, marks = heapq.heappop(queue)
        # A pair is out of date if one of the two has grown since, or is gone.
        if a in clusters and b in clusters and clusters[a].marks + clusters[b].marks == marks:
            _join(clusters, a, b)
            for pair in _joinable(clusters, a, least):
                heapq.heappush(queue, pair)
    return [sorted(cluster.places) for _, cluster in sorted(clusters.items())]


def _joinable(
    clusters: dict[int, _Cluster], number: int, least: float
) -> Iterator[tuple[float, float, int, int, float]]:
    """Yield the neighbors of a cluster that may join it: rank, both numbers, and how many marks they have."""
    own = clusters[number]
    for other, total in own.overlaps.items():
        neighbour = clusters[other]
        pairs = own.marks * neighbour.marks
        if not own.annotators & neighbour.annotators and total > least * pairs:
            agreement = float(own.labels @ neighbour.labels) / pairs
            rank = -round(total / pairs, EQUAL_DIGITS), -round(agreement, EQUAL_DIGITS)
            yield *rank, min(number, other), max(number, other), own.marks + neighbour.marks


def _join(clusters: dict[int, _Cluster], a: int, b: int) -> None:
    grown, gone = clusters[a], clusters.pop(b)
    grown.places += gone.places
    grown.marks += gone.marks
    grown.labels += gone.labels
    grown.annotators |= gone.annotators
    del grown.overlaps[b], gone.overlaps[a]
    for other, total in gone.overlaps.items():
        del clusters[other].overlaps[b]
        grown.overlaps[other] = clusters[other].overlaps[a] = grown.overlaps.get(other, 0.0) + total


@dataclass(frozen=True, eq=False)
class MatchedSpans:
    """C clusters of the spans of one layer, in the order of their documents and places.

    Attributes:
        classes: possible classes of a span.
        document_c: (C,) the document of each cluster.
        member_m5: (M, 5) cluster, annotator, start, end and class of each marked span, clusters in order.
        known_c3: (C, 3) start, end and class of the known span of each cluster; -1 if there is none.
        evidence: the clusters as items; classes "(nothing)" and `classes`. Without a cluster, one item without a label.
    """

    classes: Names
    document_c: Indices
    member_m5: Indices
    known_c3: Indices
    evidence: Evidence

    def __len__(self) -> int:
        return len(self.document_c)

    @property
    def place_m3(self) -> Indices:
        """(M', 3) cluster, start and end of all marked spans, and then of the known ones."""
        known = np.flatnonzero(self.known_c3[:, 2] >= 0)
        return np.concatenate((self.member_m5[:, [0, 2, 3]], np.column_stack((known, self.known_c3[known, :2]))))


def match_spans(
    span_s5: Indices,
    answer_a2: Indices,
    known_d: Flags,
    names: tuple[Names, Names, Names],
    border_v: npt.NDArray[Any] | None = None,
) -> MatchedSpans:
    """Match (S, 5) document, annotator, start, end and class of spans; known spans have annotator -1.

    `answer_a2` (A, 2): document and annotator of each answer, in order; `known_d` (D,): documents whose spans are
    known; `names`: of documents, annotators and classes. `border_v` (V,): values of starts and ends, if these
    are ranks.
    """
    documents, annotators, classes = names
    order = np.lexsort((span_s5[:, 1], span_s5[:, 4], span_s5[:, 3], span_s5[:, 2], span_s5[:, 0]))
    span_s5 = span_s5[order]
    clusters = [group[part] for group in _touching(span_s5) for part in _clusters(span_s5[group], border_v)]
    clusters.sort(key=lambda rows: int(rows[0]))
    cluster_s = np.empty(len(span_s5), np.int64)
    for number, rows in enumerate(clusters):
        cluster_s[rows] = number
    first_c = np.array([rows[0] for rows in clusters], np.int64)
    document_c = span_s5[first_c, 0]
    known_c3 = np.full((len(clusters), 3), -1, np.int64)
    is_known = span_s5[:, 1] < 0
    known_c3[cluster_s[is_known]] = span_s5[is_known, 2:]
    marked = np.flatnonzero(~is_known)
    marked = marked[np.argsort(cluster_s[marked], kind="stable")]
    member_m5 = np.column_stack((cluster_s[marked], span_s5[marked, 1:]))
    side_c2 = span_s5[first_c, 2:4] if border_v is None else border_v[span_s5[first_c, 2:4]]
    sides = zip(document_c.tolist(), side_c2.tolist(), strict=True)
    items = tuple(f"{documents[d]}[{start}:{end}]" for d, (start, end) in sides) or (NOTHING,)
    annotations = _annotations(document_c, member_m5, answer_a2, items, annotators, (NOTHING, *classes))
    truth = np.where(known_d[document_c], 1 + known_c3[:, 2], -1).astype(np.int32) if clusters else None
    return MatchedSpans(classes, document_c, member_m5, known_c3, Evidence(annotations, truth=truth))


def _touching(span_s5: Indices) -> list[Indices]:
    """Group the rows of spans that are linked by overlaps, in order of their places."""
    groups: list[list[int]] = []
    document, reached = -1, 0
    for row, (own, _, start, end, _) in enumerate(span_s5.tolist()):
        if own == document and start < reached:
            groups[-1].append(row)
            reached = max(reached, end)
        else:
            groups.append([row])
            document, reached = own, end
    return [np.array(group, np.int64) for group in groups]


def _clusters(span_g5: Indices, border_v: npt.NDArray[Any] | None) -> list[Indices]:
    """Return the rows of each cluster of linked spans, in order of place."""
    place_p2, at_g = np.unique(span_g5[:, 2:4], axis=0, return_inverse=True)
    at_g = at_g.ravel()
    if len(place_p2) == 1:
        return [np.arange(len(span_g5))]
    # Spans with the same place are joined from the start: none overlaps more, and no annotator has two of them in one
    # layer.
    label_pj = np.zeros((len(place_p2), int(span_g5[:, 4].max()) + 1))
    annotator_pk = np.zeros((len(place_p2), int(span_g5[:, 1].max()) + 2), dtype=bool)
    np.add.at(label_pj, (at_g, span_g5[:, 4]), 1)
    annotator_pk[at_g, span_g5[:, 1] + 1] = True
    pair_e2, overlap_e = _overlaps(place_p2 if border_v is None else border_v[place_p2])
    return [np.flatnonzero(np.isin(at_g, places)) for places in link(pair_e2, overlap_e, label_pj, annotator_pk)]


def _overlaps(place_p2: npt.NDArray[Any]) -> tuple[Indices, Floats]:
    """Return (E, 2) pairs of places that overlap, and (E,) intersection over union; places are sorted by start."""
    start, end = place_p2.T
    first = np.arange(len(start))
    count = np.maximum(np.searchsorted(start, end) - first - 1, 0)
    one = np.repeat(first, count)
    other = one + 1 + within_groups(count)
    shared = np.minimum(end[one], end[other]) - start[other]
    overlap: Floats = shared / (end[one] - start[one] + end[other] - start[other] - shared)
    return np.column_stack((one, other)), overlap


def within_groups(count: Indices) -> Indices:
    """Count from 0 within each of consecutive groups of these sizes."""
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)


def _annotations(
    document_c: Indices, member_m5: Indices, answer_a2: Indices, items: Names, annotators: Names, classes: Names
) -> Annotations:
    """Build the annotations of clusters by each annotator who answered their document."""
    first, last = (np.searchsorted(answer_a2[:, 0], document_c, side) for side in ("left", "right"))
    item = np.repeat(np.arange(len(document_c)), last - first)
    annotator = answer_a2[np.repeat(first, last - first) + within_groups(last - first), 1]
    label, many = np.zeros(len(item), np.int32), max(len(annotators), 1)
    label[np.searchsorted(item * many + annotator, member_m5[:, 0] * many + member_m5[:, 1])] = 1 + member_m5[:, 4]
    columns = (item.astype(np.int32), annotator.astype(np.int32), label)
    return Annotations(*columns, items, annotators, classes, classes)


def least_agreed(matched: MatchedSpans, n_documents: int) -> Indices:
    """Return (D,) cluster with the smallest majority of each document, -1 for none.

    Ties go to the most marked, then to the first.
    """
    votes = matched.evidence.annotations
    count_cl = np.zeros((len(matched), votes.n_options), np.int64)
    np.add.at(count_cl, (votes.item, votes.label), 1)
    majority, marked = count_cl.max(axis=1, initial=0), count_cl[:, 1:].sum(axis=1)
    order = np.lexsort((np.arange(len(matched)), -marked, majority, matched.document_c))
    cluster_d = np.full(n_documents, -1, np.int64)
    documents, first = np.unique(matched.document_c[order], return_index=True)
    cluster_d[documents] = order[first]
    return cluster_d
