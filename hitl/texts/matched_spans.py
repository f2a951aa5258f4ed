"""Which spans of different annotators are about the same part of a text, or the same stretch of a recording.

    cluster   spans of different annotators, joined from the largest overlap (intersection over union) downwards while
              they overlap at all; of equal overlaps those that agree about the kind come first
    item      each cluster: an annotator who answered its text says the kind of their span, or "(nothing)"

An annotator who overlooks a name of three words, or invents one, errs once. As labels of tokens it would be three
errors, each of which seems to confirm the others.

The overlap of two clusters is the mean of that of their pairs. Joining compares places, so the order of the annotators
says nothing. Known spans take part as if one more annotator had marked them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Name, Names
from hitl.evidence import Evidence
from hitl.texts.average_linkage import joined

Indices = npt.NDArray[np.int64]

Places = npt.NDArray[Any]
"""Characters of texts, or times of recordings."""

NOTHING = "(nothing)"
"""The class of a cluster that is no span."""


@dataclass(frozen=True, eq=False)
class MatchedSpans:
    """C clusters of the spans of one layer, in the order of their texts and places.

    Attributes:
        kinds: what a span can be.
        document_c: (C,) the text of each cluster.
        member_m5: (M, 5) cluster, annotator, start, end and kind of each marked span, clusters in order.
        known_c3: (C, 3) start, end and kind of the known span of each cluster; -1 where there is none.
        evidence: the clusters as items; classes "(nothing)" and the kinds. Where there is no cluster, one item without
            a label, for there has to be one.
    """

    kinds: Names
    document_c: Indices
    member_m5: Indices
    known_c3: Indices
    evidence: Evidence

    def __len__(self) -> int:
        return len(self.document_c)


def matched(
    span_s5: Indices,
    answer_a2: Indices,
    known_d: npt.NDArray[np.bool_],
    names: tuple[Names, Names, Names],
    place_v: Places | None = None,
) -> MatchedSpans:
    """Clusters of (S, 5) document, annotator, start, end and kind of spans; annotator -1 are known spans.

    `answer_a2` (A, 2): document and annotator of each answer, in order; `known_d` (D,): documents whose spans are
    known; `names`: of documents, annotators and kinds. `place_v` (V,): where starts and ends are ranks, the places
    that they stand for.
    """
    documents, annotators, kinds = names
    order = np.lexsort((span_s5[:, 1], span_s5[:, 4], span_s5[:, 3], span_s5[:, 2], span_s5[:, 0]))
    span_s5 = span_s5[order]
    clusters = [group[part] for group in _touching(span_s5) for part in _clusters(span_s5[group], place_v)]
    clusters.sort(key=lambda rows: int(rows[0]))
    cluster_s = np.empty(len(span_s5), np.int64)
    for number, rows in enumerate(clusters):
        cluster_s[rows] = number
    first_c = np.array([rows[0] for rows in clusters], np.int64)
    document_c = span_s5[first_c, 0]
    known_c3 = np.full((len(clusters), 3), -1, np.int64)
    is_known = span_s5[:, 1] < 0
    known_c3[cluster_s[is_known]] = span_s5[is_known, 2:]
    own = np.flatnonzero(~is_known)
    own = own[np.argsort(cluster_s[own], kind="stable")]
    member_m5 = np.column_stack((cluster_s[own], span_s5[own, 1:]))
    items = tuple(_names(documents, span_s5[first_c], place_v)) or (NOTHING,)
    annotations = _annotations(document_c, member_m5[:, [0, 1, 4]], answer_a2, items, annotators, (NOTHING, *kinds))
    truth = np.where(known_d[document_c], 1 + known_c3[:, 2], -1).astype(np.int32) if clusters else None
    return MatchedSpans(kinds, document_c, member_m5, known_c3, Evidence(annotations, truth=truth))


def _names(documents: Names, span_c5: Indices, place_v: Places | None) -> Iterator[Name]:
    start_c, end_c = (span_c5[:, side] if place_v is None else place_v[span_c5[:, side]] for side in (2, 3))
    rows = zip(span_c5[:, 0].tolist(), start_c.tolist(), end_c.tolist(), strict=True)
    return (f"{documents[document]}[{start}:{end}]" for document, start, end in rows)


def _touching(span_s5: Indices) -> list[Indices]:
    """Rows of spans that are linked by overlaps, in order of their places."""
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


def _clusters(span_g5: Indices, place_v: Places | None) -> list[Indices]:
    """Rows of each cluster of linked spans, each in order of place."""
    place_p2, at_g = np.unique(span_g5[:, 2:4], axis=0, return_inverse=True)
    at_g = at_g.ravel()
    if len(place_p2) == 1:
        return [np.arange(len(span_g5))]
    # Spans of one place are joined from the start: none overlaps more, and no annotator has two of them in one layer.
    kind_pk = np.zeros((len(place_p2), int(span_g5[:, 4].max()) + 1))
    who_pa = np.zeros((len(place_p2), int(span_g5[:, 1].max()) + 2), dtype=bool)
    np.add.at(kind_pk, (at_g, span_g5[:, 4]), 1)
    who_pa[at_g, span_g5[:, 1] + 1] = True
    joined_of = joined(*_overlaps(place_p2 if place_v is None else place_v[place_p2]), kind_pk, who_pa)
    return [np.flatnonzero(np.isin(at_g, places)) for places in joined_of]


def _overlaps(place_p2: Places) -> tuple[Indices, Floats]:
    """(E, 2) pairs of places that overlap, and (E,) intersection over union; places in the order of their starts."""
    start, end = place_p2.T
    beyond = np.searchsorted(start, end)  # the first place that begins where this one has ended
    first = np.arange(len(start))
    count = np.maximum(beyond - first - 1, 0)
    one = np.repeat(first, count)
    other = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
    shared = np.minimum(end[one], end[other]) - start[other]
    overlap: Floats = shared / (end[one] - start[one] + end[other] - start[other] - shared)
    return np.column_stack((one, other)), overlap


def _annotations(
    document_c: Indices, said_m3: Indices, answer_a2: Indices, items: Names, annotators: Names, classes: Names
) -> Annotations:
    """What each annotator who answered a text says of each of its clusters; `said_m3`: cluster, annotator, kind."""
    first, last = (np.searchsorted(answer_a2[:, 0], document_c, side) for side in ("left", "right"))
    length_c = last - first
    item = np.repeat(np.arange(len(document_c)), length_c)
    answer = np.arange(len(item)) - np.repeat(np.cumsum(length_c) - length_c - first, length_c)
    annotator, label = answer_a2[answer, 1], np.zeros(len(item), np.int32)
    key = item * max(len(annotators), 1) + annotator
    label[np.searchsorted(key, said_m3[:, 0] * max(len(annotators), 1) + said_m3[:, 1])] = 1 + said_m3[:, 2]
    columns = (item.astype(np.int32), annotator.astype(np.int32), label)
    return Annotations(*columns, items, annotators, classes, classes)
