"""Match marks of different annotators that are about the same part of an item, by average linkage.

    cluster   marks of different annotators, joined from the largest overlap (intersection over union) downwards; among
              equal overlaps those that agree about the label come first, and then those that begin first
    votes     clusters as items: an annotator who answered the item gives the label of their mark, or "(nothing)"
    item      stands for the cluster about which its annotators agree least: their votes are their labels of the item

An annotator who overlooks or invents a part errs once. The overlap of two clusters is the mean over their pairs of
marks, and no cluster has two marks of one annotator. Joining compares places, so the order of annotators does not
matter.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Name, Names
from hitl.consensus import AnnotatorReport, Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence, Parts
from hitl.formatting import listed
from hitl.kinds.kind import NOTHING, Marked, PartsKind, StoredAnswers
from hitl.models.combiner import Combiner, seen_by
from hitl.models.inference.missed_objects import chance_of_none, misses, shares_of_kinds
from hitl.tables.encode import natural_order

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

EQUAL_DIGITS = 9
"""Decimals to which mean overlaps must agree to count as equal."""


class Marks(NamedTuple):
    """S marks: item, annotator (-1: ground truth), class, and place."""

    item_s: Indices
    annotator_s: Indices
    label_s: Indices
    place_sd: npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Who answered which item, and which items have known parts.

    Attributes:
        items, annotators: N and K names.
        answer_a2: (A, 2) item and annotator of each answer, in order, each pair once.
        known_n: (N,) True for items whose parts are known.
        time_a, duration_a: (A,) seconds since the epoch, and seconds; NaN if unknown.
    """

    items: Names
    annotators: Names
    answer_a2: Indices
    known_n: Flags
    time_a: Floats
    duration_a: Floats

    @cached_property
    def answers_n(self) -> Indices:
        """(N,) number of annotators who answered each item."""
        return np.bincount(self.answer_a2[:, 0], minlength=len(self.items))


@dataclass(frozen=True, eq=False)
class Matched:
    """C clusters of marks, in the order of their items.

    Attributes:
        answers: the answers that made the marks.
        classes: possible classes of a mark.
        item_c: (C,) item of each cluster.
        cluster_m, annotator_m, label_m, place_md: (M,) marks by annotators, clusters in order.
        known_c, known_place_cd: (C,) class and place of the known part that each cluster is; -1: none.
        votes: the clusters as items; classes "(nothing)" and `classes`. One item without a label if there is none.
    """

    answers: Answers
    classes: Names
    item_c: Indices
    cluster_m: Indices
    annotator_m: Indices
    label_m: Indices
    place_md: npt.NDArray[Any]
    known_c: Indices
    known_place_cd: npt.NDArray[Any]
    votes: Evidence

    def __len__(self) -> int:
        return len(self.item_c)

    @cached_property
    def cluster_n(self) -> Indices:
        """(N,) the cluster with the smallest majority of each item, -1 for none.

        Ties go to the most marked, then to the first.
        """
        votes = self.votes.annotations
        count_cl = np.zeros((len(self), votes.n_options), np.int64)
        np.add.at(count_cl, (votes.item, votes.label), 1)
        majority, marked = count_cl.max(axis=1, initial=0), count_cl[:, 1:].sum(axis=1)
        order = np.lexsort((np.arange(len(self)), -marked, majority, self.item_c))
        cluster_n = np.full(len(self.answers.items), -1, np.int64)
        items, first = np.unique(self.item_c[order], return_index=True)
        cluster_n[items] = order[first]
        return cluster_n

    def evidence(self, parts: Parts) -> Evidence:
        """Label each item by what its annotators answered about the cluster that it stands for."""
        votes, cluster_n = self.votes.annotations, self.cluster_n
        item_a, annotator_a = self.answers.answer_a2.T
        label_a = np.zeros(len(item_a), np.int32)
        marked_a = cluster_n[item_a] >= 0
        key = votes.item.astype(np.int64) * votes.n_annotators + votes.annotator  # sorted by cluster and annotator
        own = cluster_n[item_a[marked_a]] * votes.n_annotators + annotator_a[marked_a]
        label_a[marked_a] = votes.label[np.searchsorted(key, own)]
        annotations = Annotations(
            item_a.astype(np.int32),
            annotator_a.astype(np.int32),
            label_a,
            self.answers.items,
            self.answers.annotators,
            votes.classes,
            votes.options,
            time=self.answers.time_a,
            duration=self.answers.duration_a,
        )
        assert self.votes.truth is not None
        truth_n = np.where(self.answers.known_n, 0, -1).astype(np.int32)
        truth_n[cluster_n >= 0] = self.votes.truth[cluster_n[cluster_n >= 0]]
        return Evidence(annotations, truth=truth_n, parts=parts)


def match(marks: Marks, cluster_s: Indices, answers: Answers, classes: Names, titles: Names = ()) -> Matched:
    """Build clusters from marks and the cluster of each; a cluster has one mark per annotator at most.

    `titles`: names of the clusters; default: their numbers.
    """
    item_s, annotator_s, label_s, place_sd = marks
    count = int(cluster_s.max(initial=-1)) + 1
    item_c, known_c = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    known_place_cd = np.full((count, place_sd.shape[1]), -1, place_sd.dtype)
    item_c[cluster_s] = item_s
    is_known = annotator_s < 0
    known_c[cluster_s[is_known]] = label_s[is_known]
    known_place_cd[cluster_s[is_known]] = place_sd[is_known]
    rows = np.flatnonzero(~is_known)
    rows = rows[np.argsort(cluster_s[rows], kind="stable")]
    cluster_m, annotator_m, label_m = cluster_s[rows], annotator_s[rows], label_s[rows]

    answer_a2 = answers.answer_a2
    first, last = (np.searchsorted(answer_a2[:, 0], item_c, side) for side in ("left", "right"))
    item = np.repeat(np.arange(count), last - first)
    annotator = answer_a2[np.repeat(first, last - first) + within_groups(last - first), 1]
    label, many = np.zeros(len(item), np.int32), max(len(answers.annotators), 1)
    label[np.searchsorted(item * many + annotator, cluster_m * many + annotator_m)] = 1 + label_m
    columns = (item.astype(np.int32), annotator.astype(np.int32), label)
    names = (titles or tuple(range(count))) if count else (NOTHING,)
    votes = Annotations(*columns, names, answers.annotators, (NOTHING, *classes), (NOTHING, *classes))
    truth = np.where(answers.known_n[item_c], 1 + known_c, -1).astype(np.int32) if count else None
    return Matched(
        answers,
        classes,
        item_c,
        cluster_m,
        annotator_m,
        label_m,
        place_sd[rows],
        known_c,
        known_place_cd,
        Evidence(votes, truth=truth),
    )


def within_groups(count: Indices) -> Indices:
    """Count from 0 within each of consecutive groups of these sizes."""
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)


# -- the consensus -----------------------------------------------------------------------------------------


def fit_clusters(matched: Matched, method: Combiner, size_n: Floats) -> tuple[Consensus, Floats, Floats]:
    """Fit a method for items to the clusters.

    Return its consensus, the (C, J) beliefs in each cluster, and the (N,) probability that nothing was overlooked in an
    item of this size.
    """
    answers = matched.answers
    consensus = method.fit(seen_by(method, matched.votes))
    q_cj = consensus.probabilities[: len(matched)]
    seen_n = np.bincount(matched.item_c, weights=1 - q_cj[:, 0], minlength=len(size_n)).astype(np.float64)
    miss_k = misses(consensus.annotators)
    return consensus, q_cj, chance_of_none(seen_n, size_n, answers.known_n, answers.answer_a2, miss_k)


def without_clusters(nothing_n: Floats, report: AnnotatorReport) -> Floats:
    """Return (N, J) beliefs in items without a cluster from the probability that they have no part."""
    return np.column_stack((nothing_n, np.multiply.outer(1 - nothing_n, shares_of_kinds(report))))


def judge_items(
    evidence: Evidence, matched: Matched, clusters: Consensus, report: AnnotatorReport, q_cj: Floats, empty_nj: Floats
) -> Consensus:
    """Give each item the beliefs of the cluster that it stands for, or `empty_nj` without one; known items are certain.

    `report`: the annotators on clusters.
    """
    assert evidence.truth is not None
    assert evidence.parts is not None
    q_nj, stands = empty_nj.copy(), matched.cluster_n >= 0
    q_nj[stands] = q_cj[matched.cluster_n[stands]]
    q_nj[evidence.known] = np.eye(q_nj.shape[1])[evidence.truth[evidence.known]]
    report = replace(report, labels=evidence.annotations.labels_per_annotator)
    judged = clusters.judging(evidence.annotations.items, q_nj, report)
    return replace(judged, parameters={}, question=evidence.parts.question)


# -- images as items, represented by the objects that annotators drew in them ------------------------------


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Answers about N images: for each image annotator -> marks; and number of an image -> known marks."""

    answers: Answers
    drawn: tuple[dict[Name, list[Marked]], ...]
    known: dict[int, list[Marked]]


def read_images(kind: PartsKind, stored: StoredAnswers) -> StoredImages:
    """Read the stored answers. Raise BadInput for those of another kind, or with other labels."""
    labels = stored.question.classes

    def marks(item: Name, answer: str) -> list[Marked]:
        parts = kind.read_stored(item, answer)
        for part in parts:
            if part["label"] not in labels:
                raise BadInput(f"item {item}: {kind.noun} of {part['label']!r}; expected one of {listed(labels)}")
        return parts

    items = tuple(stored.items().column("item").to_pylist())
    number = {item: n for n, item in enumerate(items)}
    answers = {(item, who): (answer, time, seconds) for item, who, answer, time, seconds in stored.by_annotator()}
    annotators = natural_order(list({who for _, who in answers}))
    code = {who: k for k, who in enumerate(annotators)}
    drawn: tuple[dict[Name, list[Marked]], ...] = tuple({} for _ in items)
    for (item, who), (answer, *_) in answers.items():
        drawn[number[item]][who] = marks(item, answer)
    known = {number[item]: marks(item, answer) for item, answer in stored.known().items() if item in number}
    rows = sorted((number[item], code[who], *times) for (item, who), (_, *times) in answers.items())
    column_4 = np.array(rows, np.float64).reshape(-1, 4).T
    pair_a2 = column_4[:2].T.astype(np.int64)
    known_n = np.isin(np.arange(len(items)), [*known])
    return StoredImages(Answers(items, annotators, pair_a2, known_n, *column_4[2:]), drawn, known)


def judge_images(evidence: Evidence, matched: Matched, method: Combiner) -> tuple[Consensus, Floats]:
    """Fit a method for items to the clusters. Return the consensus on images, and the (C, J) beliefs in clusters.

    Without a cluster all annotators of an image say NOTHING; then either all of them missed an object, or there is none
    (`inference.missed_objects`, with images of one size). An image without an answer has the class shares of clusters.
    """
    answers_n = matched.answers.answers_n
    clusters, q_cj, nothing_n = fit_clusters(matched, method, np.ones(len(answers_n)))
    empty_nj = without_clusters(nothing_n, clusters.annotators)
    empty_nj[answers_n == 0] = clusters.class_shares
    return judge_items(evidence, matched, clusters, clusters.annotators, q_cj, empty_nj), q_cj


# -- average linkage ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Cluster:
    """Places, marks in all, marks by label, annotators, and sums of overlaps with neighbors."""

    places: list[int]
    marks: int
    labels: Counter[int]
    annotators: set[int]
    overlaps: dict[int, float]


def link(
    pair_e2: Indices, overlap_e: Floats, place_s: Indices, label_s: Indices, annotator_s: Indices, least: float = 0.0
) -> Indices:
    """Join places that overlap by more than `least`. Return (P,) the cluster of each, in the order of first places.

    `pair_e2` (E, 2): pairs of places that overlap, the smaller number first; `overlap_e` (E,): their overlaps. All
    marks are at one of the places. O(E log E).
    """
    cluster_p = np.arange(int(place_s.max(initial=-1)) + 1)
    clusters = {place: _Cluster([place], 0, Counter(), set(), {}) for place in np.unique(pair_e2).tolist()}
    for place, label, annotator in zip(place_s.tolist(), label_s.tolist(), annotator_s.tolist(), strict=True):
        if place in clusters:
            clusters[place].marks += 1
            clusters[place].labels[label] += 1
            clusters[place].annotators.add(annotator)
    for (a, b), overlap in zip(pair_e2.tolist(), overlap_e.tolist(), strict=True):
        total = overlap * clusters[a].marks * clusters[b].marks
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
    for cluster in clusters.values():
        cluster_p[cluster.places] = min(cluster.places)
    numbers: Indices = np.unique(cluster_p, return_inverse=True)[1].ravel()
    return numbers


def _joinable(clusters: dict[int, _Cluster], number: int, least: float) -> Iterator[tuple[float, float, int, int, int]]:
    """Yield the neighbors of a cluster that may join it: rank, both numbers, and how many marks they have."""
    own = clusters[number]
    for other, total in own.overlaps.items():
        neighbor = clusters[other]
        pairs = own.marks * neighbor.marks
        if own.annotators.isdisjoint(neighbor.annotators) and total > least * pairs:
            agreement = sum(count * neighbor.labels[label] for label, count in own.labels.items()) / pairs
            rank = -round(total / pairs, EQUAL_DIGITS), -round(agreement, EQUAL_DIGITS)
            yield *rank, min(number, other), max(number, other), own.marks + neighbor.marks


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
