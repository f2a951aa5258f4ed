"""Sources of labels for moment matching, and their moments: triples of annotators, and groups of annotators.

A source is one annotator, or a group of annotators whose labels are averaged per item. Given the class, sources are
independent, so the third-order moment of three sources identifies their confusion matrices (see `moment_matching`).

The choice depends on the seed but not on the order of the annotators: they are first sorted by their answers, and by
name only if these tie.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.models.numerics import kernels

Codes = npt.NDArray[np.intp]

ACTIVE = 200
"""Maximum number of annotators, those with the most labels, among whom triples are sought."""

PARTNERS = 8
"""Maximum number of partners per annotator, those with the most items in common."""


def triples(annotations: Annotations, least_shared: int, most: int, seed: int) -> list[tuple[int, int, int]]:
    """Return at most `most` triples of annotators who all labeled at least `least_shared` common items.

    Triples with many common items are preferred, and those whose annotators are in few chosen triples. The pool of
    anonymous annotators is left out.
    """
    annotators = _active(annotations)
    lot = np.random.default_rng(seed).random((len(annotators),) * 2)
    lot = lot + lot.T
    labeled = _labeled(annotations, annotators)
    shared = (labeled.T @ labeled).toarray()
    np.fill_diagonal(shared, 0)
    found = _candidates(shared, lot, least_shared)
    if not found.size or most < 1:
        return []
    bits = np.packbits(labeled.T.astype(bool).toarray(), axis=1)
    a, b, c = found.T
    support = np.array([int(np.bitwise_count(bits[i] & bits[j] & bits[k]).sum()) for i, j, k in found])
    order = np.lexsort((lot[a, b] + lot[b, c] + lot[a, c], -support))
    order = order[support[order] >= least_shared]
    chosen = _spread(found[order], support[order], most, len(annotators))
    return [(int(i), int(j), int(k)) for i, j, k in annotators[chosen]]


def groups(annotations: Annotations, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Split all annotators at random into three groups with about the same number of labels."""
    order = canonical_order(annotations)[rng.permutation(annotations.n_annotators)]
    labels = annotations.labels_per_annotator
    given = np.zeros(3, dtype=np.int64)
    group = np.zeros(annotations.n_annotators, dtype=np.intp)
    for k in order:
        group[k] = np.argmin(given)
        given[group[k]] += labels[k]
    return group


def canonical_order(annotations: Annotations) -> Codes:
    """Return (K,) annotators sorted by number of labels, then by agreement with the votes, then by name."""
    vote_nl = np.zeros((annotations.n_items, annotations.n_options))
    vote_nl[:, : annotations.n_classes] = kernels.votes(annotations)
    vote_nl /= np.maximum(annotations.labels_per_item, 1)[:, None]
    agreement = np.bincount(
        annotations.annotator, vote_nl[annotations.item, annotations.label], annotations.n_annotators
    )
    names = np.argsort(np.argsort([str(name) for name in annotations.annotators], kind="stable"))
    return np.asarray(np.lexsort((names, np.round(agreement, 9), annotations.labels_per_annotator)))


def triple_moment(annotations: Annotations, annotators: tuple[int, int, int]) -> tuple[Floats, int]:
    """Return (L, L, L) frequencies of three annotators' answers to common items, and the number of these items."""
    start, rows = annotations.by_annotator
    said = [rows[start[k] : start[k + 1]] for k in annotators]
    items = [annotations.item[row] for row in said]
    common = np.intersect1d(np.intersect1d(items[0], items[1]), items[2])
    size = annotations.n_options
    label = [annotations.label[row[np.searchsorted(item, common)]] for row, item in zip(said, items, strict=True)]
    cell = np.ravel_multi_index(label, (size,) * 3)
    moment = np.bincount(cell, minlength=size**3).reshape((size,) * 3) / max(1, common.size)
    return moment, int(common.size)


def group_moment(annotations: Annotations, group_k: Codes) -> tuple[Floats, int]:
    """Return (L, L, L) mean products of three groups' average labels of common items, and the number of these items."""
    n, size = annotations.n_items, annotations.n_options
    cell = annotations.item.astype(np.int64) * size + annotations.label
    label_vnl = np.empty((3, n, size))
    for group in range(3):
        mine = group_k[annotations.annotator] == group
        label_vnl[group] = np.bincount(cell[mine], minlength=n * size).reshape(n, size)
    labels_vn = label_vnl.sum(axis=2)
    common_n = (labels_vn > 0).all(axis=0)
    a, b, c = label_vnl[:, common_n] / labels_vn[:, common_n, None]
    moment = np.stack([(a[:, option, None] * b).T @ c for option in range(size)]) / max(1, int(common_n.sum()))
    return moment, int(common_n.sum())


def _active(annotations: Annotations) -> Codes:
    labels = annotations.labels_per_annotator.copy()
    if annotations.anonymous is not None:
        labels[annotations.anonymous] = 0
    order = canonical_order(annotations)[::-1]
    order = order[np.argsort(-labels[order], kind="stable")]
    return order[labels[order] > 0][:ACTIVE]


def _labeled(annotations: Annotations, annotators: Codes) -> sparse.csc_array:
    """Return (N, annotators) matrix, 1 where the annotator has labeled the item."""
    place = np.full(annotations.n_annotators, -1)
    place[annotators] = np.arange(len(annotators))
    column = place[annotations.annotator]
    mine = column >= 0
    ones = np.ones(int(mine.sum()), dtype=np.int64)
    return sparse.csc_array(
        (ones, (annotations.item[mine], column[mine])), shape=(annotations.n_items, len(annotators))
    )


def _candidates(shared: npt.NDArray[np.int64], lot: Floats, least_shared: int) -> Codes:
    """Return (T, 3) triples of an annotator and two of their partners."""
    found = set()
    for k in range(len(shared)):
        partners = np.lexsort((lot[k], -shared[k]))[:PARTNERS]
        for a, b in combinations(partners[shared[k, partners] >= least_shared], 2):
            if shared[a, b] >= least_shared:
                found.add(tuple(sorted((k, int(a), int(b)))))
    return np.array(sorted(found), dtype=np.intp).reshape(-1, 3)


def _spread(found: Codes, support: npt.NDArray[np.int64], most: int, n_annotators: int) -> Codes:
    """Choose triples greedily, preferring many common items and annotators who are in few chosen triples."""
    times = np.zeros(n_annotators)
    left = np.ones(len(found), dtype=bool)
    chosen: list[int] = []
    while len(chosen) < most and left.any():
        gain = np.where(left, (support[:, None] / (1 + times[found])).sum(axis=1), -1.0)
        # Rounding preserves ties: sums in another order differ in the last bits.
        best = int(np.argmax(np.round(gain, 6)))
        chosen.append(best)
        left[best] = False
        times[found[best]] += 1
    return found[chosen]
