"""Boxes that several annotators drew in one image: which are of one object, whether it is there, and where.

    cluster     boxes of different annotators, joined from the largest overlap (intersection over union) downwards
                while it exceeds `overlap`; a cluster has at most one box of each annotator
    existence   clusters are items. Each annotator who looked at the image says a class, or "no object".
                VB-IBCC gives the probability of each; it learns who misses objects and who invents them.
    place       each side is the weighted median of the members' sides; an annotator weighs as the expected overlap
                of their boxes with those of the others

Joining compares overlaps, and ties by the corners of the boxes, so the order of the annotators says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hitl.annotations import Annotations, Floats, Name, Names
from hitl.errors import BadAnnotations
from hitl.evidence import Evidence
from hitl.models.numerics.checks import require_between
from hitl.models.vb_ibcc import VBIBCC
from hitl.tables.encoding import natural_order

NO_OBJECT = "(no object)"
"""The class of a cluster that is no object."""


@dataclass(frozen=True, slots=True)
class Box:
    """What an annotator drew, or what the consensus says; x, y is the upper left corner.

    `confidence` is the probability that the object is there and of this class, in [0, 1]; 1 for what was drawn.
    """

    x: float
    y: float
    width: float
    height: float
    label: Name
    confidence: float = 1.0

    @property
    def corners(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        return self.x, self.y, self.x + self.width, self.y + self.height


Drawn = dict[Name, Sequence[Box]]
"""Annotator -> their boxes of one image; an empty list where they looked and drew none."""

Cluster = dict[Name, Box]
"""Annotator -> their box of one object."""


@dataclass(frozen=True, slots=True)
class BoxConsensus:
    """Combines the boxes of several annotators.

    Attributes:
        overlap: least intersection over union of two boxes of one object, in (0, 1).
        existence: least probability of an object that is kept, in (0, 1).
    """

    overlap: float = 0.5
    existence: float = 0.5

    def __post_init__(self) -> None:
        require_between("overlap", self.overlap, 0, 1)
        require_between("existence", self.existence, 0, 1)

    def fit(self, images: Sequence[Drawn]) -> list[list[Box]]:
        """For each image its objects, the surest first. Raises BadAnnotations for boxes without area."""
        _require_boxes(images)
        clusters = [cluster for drawn in images for cluster in clustered(drawn, self.overlap)]
        if not clusters:
            return [[] for _ in images]
        found = VBIBCC().fit(_votes(images, self.overlap))
        weights = agreement(clusters)
        rows, kept = iter(found.probabilities), []
        for drawn in images:
            boxes = [
                self._placed(cluster, next(rows), found.classes, weights) for cluster in clustered(drawn, self.overlap)
            ]
            kept.append(
                sorted((box for box in boxes if box is not None), key=lambda box: (-box.confidence, box.corners))
            )
        return kept

    def _placed(
        self, cluster: Cluster, probability_j: Floats, classes: Names, weights: dict[Name, float]
    ) -> Box | None:
        """The object of a cluster; None where there is none."""
        if 1 - probability_j[0] < self.existence:
            return None
        best = 1 + int(probability_j[1:].argmax())
        weight_k = np.array([weights[name] for name in cluster])
        sides = np.array([box.corners for box in cluster.values()])
        left, top, right, bottom = (weighted_median(side, weight_k) for side in sides.T)
        return Box(left, top, right - left, bottom - top, classes[best], float(probability_j[best]))


def intersection_over_union(one: Box, other: Box) -> float:
    """In [0, 1]."""
    (a, b, c, d), (e, f, g, h) = one.corners, other.corners
    shared = max(0.0, min(c, g) - max(a, e)) * max(0.0, min(d, h) - max(b, f))
    return shared / (one.width * one.height + other.width * other.height - shared)


def clustered(drawn: Drawn, overlap: float) -> list[Cluster]:
    """Clusters of the boxes of one image. The overlap of two clusters is the mean one of their pairs of boxes."""
    clusters: list[Cluster] = [{name: box} for name, boxes in drawn.items() for box in boxes]
    clusters.sort(key=_place)
    while True:
        joined = [
            (-_mean_overlap(one, other), _place(one), _place(other), a, b)
            for (a, one), (b, other) in combinations(enumerate(clusters), 2)
            if not one.keys() & other.keys()
        ]
        if not joined or -min(joined)[0] <= overlap:
            return clusters
        *_, a, b = min(joined)
        both = clusters[a] | clusters[b]
        clusters = sorted([*(c for i, c in enumerate(clusters) if i not in (a, b)), both], key=_place)


def agreement(clusters: Sequence[Cluster]) -> dict[Name, float]:
    """Mean overlap of each annotator's boxes with the others of their clusters, with one pair of the mean of all."""
    pairs: dict[Name, list[float]] = {name: [] for cluster in clusters for name in cluster}
    for cluster in clusters:
        for one, other in combinations(cluster, 2):
            overlap = intersection_over_union(cluster[one], cluster[other])
            pairs[one].append(overlap)
            pairs[other].append(overlap)
    every = [overlap for found in pairs.values() for overlap in found]
    usual = float(np.mean(every)) if every else 1.0
    return {name: (sum(found) + usual) / (len(found) + 1) for name, found in pairs.items()}


def weighted_median(value_k: Floats, weight_k: Floats) -> float:
    """The value with half of the weight on either side; the middle of two where half ends between them."""
    order = np.argsort(value_k, kind="stable")
    value_k, reached_k = value_k[order], np.cumsum(weight_k[order]) / np.sum(weight_k)
    at = int(np.searchsorted(reached_k, 0.5 - 1e-12))
    if abs(reached_k[at] - 0.5) < 1e-12 and at + 1 < len(value_k):
        return float(value_k[at] + value_k[at + 1]) / 2
    return float(value_k[at])


def _votes(images: Sequence[Drawn], overlap: float) -> Evidence:
    """Clusters of all images, in order, as items; who looked at an image and is not in a cluster says "no object"."""
    names = natural_order(list({name for drawn in images for name in drawn}))
    labels = natural_order(list({box.label for drawn in images for boxes in drawn.values() for box in boxes}))
    classes = (NO_OBJECT, *labels)
    rows = []
    for drawn in images:
        for cluster in clustered(drawn, overlap):
            said = {name: classes.index(cluster[name].label) if name in cluster else 0 for name in drawn}
            rows.append([said.get(name, -1) for name in names])
    label_nk = np.array(rows, dtype=np.int32)
    item, annotator = (column.astype(np.int32) for column in np.nonzero(label_nk >= 0))
    label = label_nk[item, annotator]
    return Evidence(Annotations(item, annotator, label, tuple(range(len(rows))), names, classes, classes))


def _mean_overlap(one: Cluster, other: Cluster) -> float:
    return float(np.mean([intersection_over_union(a, b) for a in one.values() for b in other.values()]))


def _place(cluster: Cluster) -> tuple[tuple[float, ...], ...]:
    """What clusters are ordered by: places, not annotators."""
    return tuple(sorted(box.corners for box in cluster.values()))


def _require_boxes(images: Sequence[Drawn]) -> None:
    for i, drawn in enumerate(images):
        for name, boxes in drawn.items():
            for box in boxes:
                if not (np.isfinite(box.corners).all() and box.width > 0 and box.height > 0):
                    raise BadAnnotations(f"image {i}, annotator {name!r}: expected a box with an area, got {box}")
                if box.label == NO_OBJECT:
                    raise BadAnnotations(f"image {i}, annotator {name!r}: {NO_OBJECT!r} is no label of a box")
