"""Match marks of different annotators that are about the same part of an item, by average linkage.

    cluster   marks of different annotators about one part. The clusters with the largest overlap (intersection over
              union) are joined first. Among equal overlaps, those that agree more about the label come first, and then
              those that begin first.
    votes     clusters as items. Each annotator who answered the item votes for the label of their mark in the cluster,
              or for "(nothing)" without a mark.
    item      represented by the cluster about which its annotators agree least. Their votes on this cluster are their
              labels of the item.

Spans match only if they share more than half of the shorter one. Those that overlap by less are neighbors with
disputed borders.

So an annotator who overlooks or invents a part errs once. The overlap of two clusters is the mean over pairs of their
marks. No cluster has two marks of one annotator. Clusters are joined in an order that depends on places alone, so the
order of annotators does not matter.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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

Size = tuple[int, int]
"""Height and width of an image in pixels."""

EQUAL_DIGITS = 9
"""Decimals to which overlaps and agreements are rounded before comparison, so that rounding errors break no ties."""


class Marks(NamedTuple):
    """S marks: (S,) codes of item, annotator (-1: ground truth) and class, and (S, D) place."""

    item_s: Indices
    annotator_s: Indices
    label_s: Indices
    place_sd: npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Who answered which item, and which items have known parts.

    Attributes:
        items, annotators: names of the N items and K annotators.
        answer_a2: (A, 2) codes of item and annotator of each answer, sorted, without duplicates.
        known_n: (N,) True for items whose parts are known.
        time_a: (A,) time of each answer in seconds since the epoch; NaN if unknown.
        duration_a: (A,) duration of each answer in seconds; NaN if unknown.
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
        answers: who answered which item.
        classes: possible classes of a mark.
        item_c: (C,) item of each cluster.
        cluster_m, annotator_m, label_m: (M,) cluster, annotator and class of each mark by an annotator, sorted by
            cluster.
        place_md: (M, D) place of each of these marks.
        known_c: (C,) class of the known part that is in each cluster, -1 for none.
        known_place_cd: (C, D) place of this part, -1 for none.
        votes: evidence about the clusters as items, with the classes "(nothing)" and `classes`. Without a cluster, it
            has a single item without labels.
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
        """(N,) the cluster that represents each item, -1 for an item without a cluster.

        It is the cluster whose most frequent vote is least frequent. Ties go to the cluster with most marks, then to
        the first.
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
        """Build the evidence about items. Their labels are the votes on the clusters that represent them.

        Items without a cluster are labeled "(nothing)".
        """
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
    """Build `Matched` from marks and (S,) their clusters. A cluster has at most one mark per annotator.

    `titles`: names of the clusters; by default their numbers.
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
    """Return numbers that count from 0 in each of consecutive groups: 0 1 0 1 2 for groups of sizes 2 and 3."""
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)


# -- the consensus -----------------------------------------------------------------------------------------


def fit_clusters(matched: Matched, method: Combiner, size_n: Floats) -> tuple[Consensus, Floats, Floats]:
    """Fit a method for items to the clusters.

    Return the consensus on clusters, their (C, J) class probabilities, and (N,) the probability that the annotators of
    an item overlooked nothing in it. `size_n` (N,): sizes of the items.
    """
    consensus = method.fit(seen_by(method, matched.votes))
    q_cj = consensus.probabilities[: len(matched)]
    return consensus, q_cj, without_missed(matched, q_cj, size_n, misses(consensus.annotators))


def without_missed(matched: Matched, q_cj: Floats, size_n: Floats, miss_k: Floats) -> Floats:
    """Return (N,) probability that the annotators of an item overlooked nothing in it (`missed_objects`).

    `q_cj` (C, J): class probabilities of the clusters. `size_n` (N,): sizes of the items. `miss_k` (K,): chance that an
    annotator overlooks a part.
    """
    answers = matched.answers
    seen_n = np.bincount(matched.item_c, weights=1 - q_cj[:, 0], minlength=len(size_n)).astype(np.float64)
    return chance_of_none(seen_n, size_n, answers.known_n, answers.answer_a2, miss_k)


def without_clusters(nothing_n: Floats, report: AnnotatorReport) -> Floats:
    """Return (N, J) class probabilities of items without a cluster, from (N,) probabilities that they have no part."""
    return np.column_stack((nothing_n, np.multiply.outer(1 - nothing_n, shares_of_kinds(report))))


def judge_items(
    evidence: Evidence, matched: Matched, clusters: Consensus, report: AnnotatorReport, q_cj: Floats, empty_nj: Floats
) -> Consensus:
    """Return the consensus on items, from the probabilities `q_cj` of the clusters that represent them.

    Items without a cluster get the probabilities `empty_nj`. Items with known parts are certain. `report`: the report
    on annotators, as fitted to clusters.
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
    """Answers about N images.

    Attributes:
        answers: who answered which image.
        drawn: for each image, annotator -> their marks.
        known: image number -> its known marks.
    """

    answers: Answers
    drawn: tuple[dict[Name, list[Marked]], ...]
    known: dict[int, list[Marked]]


def read_images(kind: PartsKind, stored: StoredAnswers) -> StoredImages:
    """Read the stored answers. Raise BadInput for an answer of another kind, or with an unknown label."""
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


def of_other_images(sizes: Sequence[Size | None], is_same: Callable[[Size, Size], bool]) -> list[str | None]:
    """Return for each size (height, width) of an answer's image why it is another image's, or None.

    The size of more than half of the answers that have one is the image's. Without such a size, none is known to be.
    """
    known = [size for size in sizes if size is not None]
    most = max(known, key=lambda size: sum(is_same(size, other) for other in known), default=None)
    if most is None or all(is_same(most, size) for size in known):
        return [None] * len(sizes)
    decided = 2 * sum(is_same(most, size) for size in known) > len(known)
    others = listed(list(dict.fromkeys(f"{width} x {height}" for height, width in known)))
    why = f"it is drawn on an image of {{}} x {{}} pixels, and the answers to this task are on images of {others}"
    return [
        None if size is None or (decided and is_same(size, most)) else why.format(*reversed(size)) for size in sizes
    ]


def judge_images(evidence: Evidence, matched: Matched, method: Combiner) -> tuple[Consensus, Floats]:
    """Fit a method for items. Return the consensus on images, and (C, J) the class probabilities of the clusters.

    If an image has no cluster, all of its annotators answered NOTHING. Then either there is no object, or all of them
    missed it (`inference.missed_objects`, with images of equal size). An image without an answer gets the class shares
    of the clusters.
    """
    answers_n = matched.answers.answers_n
    clusters, q_cj, nothing_n = fit_clusters(matched, method, np.ones(len(answers_n)))
    empty_nj = without_clusters(nothing_n, clusters.annotators)
    empty_nj[answers_n == 0] = clusters.class_shares
    return judge_items(evidence, matched, clusters, clusters.annotators, q_cj, empty_nj), q_cj


# -- average linkage ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Cluster:
    """Cluster of places: its number of marks, marks per label, annotators, and neighbor -> sum of overlaps with it."""

    places: list[int]
    marks: int
    labels: Counter[int]
    annotators: set[int]
    overlaps: dict[int, float]


def link(
    pair_e2: Indices, overlap_e: Floats, place_s: Indices, label_s: Indices, annotator_s: Indices, least: float = 0.0
) -> Indices:
    """Join places whose mean overlap exceeds `least`. Return (P,) the cluster of each place, ordered by first place.

    `pair_e2` (E, 2): pairs of places that overlap, the smaller number first. `overlap_e` (E,): their overlaps.
    `place_s`, `label_s`, `annotator_s` (S,): place, label and annotator of each mark. Takes O(E log E).
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
        # Skip the pair if one of its clusters has grown or was joined to another in the meantime.
        if a in clusters and b in clusters and clusters[a].marks + clusters[b].marks == marks:
            _join(clusters, a, b)
            for pair in _joinable(clusters, a, least):
                heapq.heappush(queue, pair)
    for cluster in clusters.values():
        cluster_p[cluster.places] = min(cluster.places)
    numbers: Indices = np.unique(cluster_p, return_inverse=True)[1].ravel()
    return numbers


def _joinable(clusters: dict[int, _Cluster], number: int, least: float) -> Iterator[tuple[float, float, int, int, int]]:
    """Yield (rank by overlap, rank by agreement, both clusters, their number of marks) for neighbors that may join."""
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
