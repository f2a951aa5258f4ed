"""Match boxes that several annotators drew in one image: cluster them by object, decide existence, and place the
object.

    cluster     boxes of different annotators, joined from the largest overlap (intersection over union) downwards
                while it exceeds `overlap`; a cluster has at most one box of each annotator
    existence   clusters are items. Each annotator who looked at the image answers a class, or "(nothing)". A combiner
                of items gives the probability of each; it learns who misses objects and who invents them.
    place       each side is the weighted median of the members' sides; an annotator's weight is the expected overlap
                of their boxes with those of the others

Joining compares overlaps, and breaks ties by the boxes, so the order of the annotators does not matter.

Known boxes of an image are matched with its clusters, from the largest overlap downwards: a cluster has the class of
the known box that it matches, else "(nothing)". A known box that no cluster matches is a cluster without a member: an
object that all annotators of the image missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from hitl.annotations import Annotations, Floats, Name, Names
from hitl.consensus import Consensus
from hitl.errors import BadAnnotations, BadEvidence
from hitl.evidence import Evidence
from hitl.kinds.kind import NOTHING
from hitl.kinds.matching import link
from hitl.models.combiner import Combiner
from hitl.models.default import DefaultCombiner
from hitl.models.numerics.checks import require_between
from hitl.tables.encoding import natural_order

OVERLAP = 0.5
"""Minimum intersection over union of two boxes of one object."""


@dataclass(frozen=True, slots=True)
class Box:
    """Box drawn by an annotator, or in the consensus; x, y is the upper left corner.

    `confidence` is the probability that the object exists and is of this class, in [0, 1]; 1 for a drawn box.
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
"""Annotator -> their boxes of one image; an empty list if they looked and drew none."""

Cluster = dict[Name, Box]
"""Annotator -> their box of one object."""


@dataclass(frozen=True, eq=False)
class ClusteredImage:
    """Boxes of one image, joined.

    Attributes:
        annotators: who looked at it.
        clusters: the objects that they may have drawn, by their places; last come known boxes that they all missed,
            which are clusters without a member.
        known: for each cluster the known box, or None if nothing is known to be there; None if the image
            has no known boxes.
    """

    annotators: Names
    clusters: tuple[Cluster, ...]
    known: tuple[Box | None, ...] | None = None

    def said(self, cluster: Cluster) -> list[Name]:
        """Return what each annotator answers about a cluster: a class, or NOTHING."""
        return [cluster[name].label if name in cluster else NOTHING for name in self.annotators]

    def truth(self, classes: Names) -> list[int]:
        """Return the known class code of each cluster, -1 if unknown."""
        if self.known is None:
            return [-1] * len(self.clusters)
        return [classes.index(NOTHING if box is None else box.label) for box in self.known]


@dataclass(frozen=True, slots=True)
class BoxConsensus:
    """Combine the boxes of several annotators.

    Attributes:
        overlap: minimum intersection over union of two boxes of one object, in (0, 1).
        existence: minimum probability of an object that is kept, in (0, 1).
        combiner: the method for items that decides which clusters are objects.
    """

    overlap: float = OVERLAP
    existence: float = 0.5
    combiner: Combiner = field(default_factory=DefaultCombiner)

    def __post_init__(self) -> None:
        require_between("overlap", self.overlap, 0, 1)
        require_between("existence", self.existence, 0, 1)

    def fit(self, images: Sequence[Drawn], known: Mapping[int, Sequence[Box]] | None = None) -> list[list[Box]]:
        """Return the objects of each image, most certain first. Raise BadAnnotations for boxes without area.

        `known`: number of an image -> its known boxes, which are returned as they are.
        """
        known = known or {}
        beyond = [number for number in known if not 0 <= number < len(images)]
        if beyond:
            raise BadEvidence(f"known boxes of image {beyond[0]}; expected a number below {len(images)}")
        for i, drawn in enumerate(images):
            _require_boxes(i, {**drawn, "(known)": known.get(i, ())})
        joined = [joined_boxes(drawn, known.get(i), self.overlap) for i, drawn in enumerate(images)]
        if not any(image.clusters for image in joined):
            return [[] for _ in images]
        placed = self.placed(joined, self.combiner.fit(votes_of(joined)))
        return [sorted((box for box in boxes if box is not None), key=_surest) for boxes in placed]

    def placed(self, images: Sequence[ClusteredImage], found: Consensus) -> list[list[Box | None]]:
        """Return the object of each cluster of each image; None if there is none.

        `found` is over `votes_of(images)`.
        """
        weights = agreement([cluster for image in images for cluster in image.clusters])
        ends = np.cumsum([len(image.clusters) for image in images])
        placed: list[list[Box | None]] = []
        for image, rows in zip(images, np.split(found.probabilities, ends[:-1]), strict=True):
            pairs = zip(image.clusters, rows, strict=True)
            placed.append(
                list(image.known)
                if image.known is not None
                else [self._placed(cluster, row, found.classes, weights) for cluster, row in pairs]
            )
        return placed

    def _placed(
        self, cluster: Cluster, probability_j: Floats, classes: Names, weights: Mapping[Name, float]
    ) -> Box | None:
        if 1 - probability_j[0] < self.existence:
            return None
        best = 1 + int(probability_j[1:].argmax())
        weight_k = np.array([weights[name] for name in cluster])
        sides = np.array([box.corners for box in cluster.values()])
        left, top, right, bottom = (weighted_median(side, weight_k) for side in sides.T)
        return Box(left, top, right - left, bottom - top, classes[best], float(probability_j[best]))


def intersection_over_union(one: Box, other: Box) -> float:
    """Return the intersection over union, in [0, 1]."""
    (a, b, c, d), (e, f, g, h) = one.corners, other.corners
    shared = max(0.0, min(c, g) - max(a, e)) * max(0.0, min(d, h) - max(b, f))
    return shared / (one.width * one.height + other.width * other.height - shared)


def clustered(drawn: Drawn, overlap: float) -> list[Cluster]:
    """Cluster the boxes of one image. The overlap of two clusters is the mean over their pairs of boxes."""
    marks = sorted(((name, box) for name, boxes in drawn.items() for box in boxes), key=lambda one: _place(dict([one])))
    boxes, kinds = [box for _, box in marks], natural_order(list({box.label for _, box in marks}))
    overlap_bb = np.triu(_overlaps(boxes), 1)
    pair_e2 = np.argwhere(overlap_bb > 0)
    kind_bk = np.array([[float(box.label == kind) for kind in kinds] for box in boxes]).reshape(len(boxes), len(kinds))
    who_ba = np.array([[name == other for other in drawn] for name, _ in marks], bool).reshape(len(boxes), len(drawn))
    parts = link(pair_e2, overlap_bb[tuple(pair_e2.T)], kind_bk, who_ba, overlap)
    return sorted((dict(marks[b] for b in part) for part in parts), key=_place)


def joined_boxes(drawn: Drawn, known: Sequence[Box] | None, overlap: float = OVERLAP) -> ClusteredImage:
    """Join the boxes of one image, and match them with its known boxes if there are any."""
    clusters = clustered(drawn, overlap)
    if known is None:
        return ClusteredImage(tuple(drawn), tuple(clusters))
    pairs = [
        (-_mean_overlap(cluster, {"": box}), _place(cluster), _place({"": box}), c, b)
        for c, cluster in enumerate(clusters)
        for b, box in enumerate(known)
    ]
    match: dict[int, int] = {}
    for less, _, _, c, b in sorted(pairs):
        if -less > overlap and c not in match and b not in match.values():
            match[c] = b
    missed = [box for b, box in enumerate(known) if b not in match.values()]
    right = [known[match[c]] if c in match else None for c in range(len(clusters))]
    return ClusteredImage(tuple(drawn), (*clusters, *({} for _ in missed)), (*right, *missed))


def votes_of(images: Sequence[ClusteredImage], classes: Names = (), annotators: Names = ()) -> Evidence:
    """Build evidence with the clusters of all images, in order, as items: answers of annotators who looked, and known
    truth.

    Classes and annotators default to those present; the first class is NOTHING. There must be a cluster.
    """
    names = annotators or natural_order(list({name for image in images for name in image.annotators}))
    classes = classes or (NOTHING, *natural_order(list(set(_kinds(images)))))
    code = {name: k for k, name in enumerate(names)}
    place = {name: j for j, name in enumerate(classes)}
    clusters = [(image, cluster) for image in images for cluster in image.clusters]
    rows = [
        (n, code[who], place[label])
        for n, (image, cluster) in enumerate(clusters)
        for who, label in zip(image.annotators, image.said(cluster), strict=True)
    ]
    item, annotator, label = np.array(rows, np.int32).reshape(-1, 3).T
    truth = [code for image in images for code in image.truth(classes)]
    items = tuple(range(len(clusters)))
    annotations = Annotations(item, annotator, label, items, names, classes, classes)
    return Evidence(annotations, truth=np.array(truth, np.int32))


def agreement(clusters: Sequence[Cluster]) -> dict[Name, float]:
    """Return each annotator's mean overlap with the others in a cluster, with one pseudo-pair of the overall mean."""
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
    """Return the value with half of the weight on either side, or the midpoint if half ends between two values."""
    order = np.argsort(value_k, kind="stable")
    value_k, reached_k = value_k[order], np.cumsum(weight_k[order]) / np.sum(weight_k)
    at = int(np.searchsorted(reached_k, 0.5 - 1e-12))
    if abs(reached_k[at] - 0.5) < 1e-12 and at + 1 < len(value_k):
        return float(value_k[at] + value_k[at + 1]) / 2
    return float(value_k[at])


def _kinds(images: Sequence[ClusteredImage]) -> Iterator[Name]:
    for image in images:
        yield from (box.label for box in image.known or () if box is not None)
        yield from (box.label for cluster in image.clusters for box in cluster.values())


def _mean_overlap(one: Cluster, other: Cluster) -> float:
    return float(np.mean([intersection_over_union(a, b) for a in one.values() for b in other.values()]))


def _overlaps(boxes: Sequence[Box]) -> Floats:
    """Return (B, B) intersection over union of each pair of boxes."""
    left, top, right, bottom = np.array([box.corners for box in boxes]).reshape(-1, 4).T
    wide = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
    high = np.minimum(bottom[:, None], bottom) - np.maximum(top[:, None], top)
    shared = np.maximum(wide, 0) * np.maximum(high, 0)
    area = np.array([box.width * box.height for box in boxes])
    overlaps: Floats = shared / (area[:, None] + area - shared)
    return overlaps


def _place(cluster: Cluster) -> tuple[tuple[tuple[float, ...], str], ...]:
    """Return the sort key of a cluster: places and kinds, not annotators."""
    return tuple(sorted((box.corners, str(box.label)) for box in cluster.values()))


def _surest(box: Box) -> tuple[object, ...]:
    return -box.confidence, box.corners


def _require_boxes(image: int, drawn: Drawn) -> None:
    for name, boxes in drawn.items():
        for box in boxes:
            if not (np.isfinite(box.corners).all() and box.width > 0 and box.height > 0):
                raise BadAnnotations(f"image {image}, annotator {name!r}: expected a box with an area, got {box}")
            if box.label == NOTHING:
                raise BadAnnotations(f"image {image}, annotator {name!r}: {NOTHING!r} is no label of a box")
