"""Objects that annotators drew over an image: connected areas of one kind, matched across annotators.

    object    an area of one kind, connected by sides or corners, of one annotator
    cluster   objects of different annotators, joined from the largest overlap (intersection over union of their pixels)
              downwards while they overlap at all (`matched_spans.joined`)

The existence of an object is one decision of each annotator. As labels of pixels it would be thousands, and two of
three annotators would seem certain to be right. If an annotator drew a broad area of a kind, a thin one is a slip
of the brush and no object. If all of their areas are thin, such as cracks and vessels, they are objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from hitl.annotations import Floats, Name, Names
from hitl.kinds.box_matching import Box, ClusteredImage
from hitl.kinds.label_patterns import DrawnMasks
from hitl.kinds.matching import link

Codes = npt.NDArray[np.int16]
Numbers = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]

THIN = 2
"""Largest distance from the middle of a thin area to its edge, in pixels: the breadth of a boundary."""

MOST = 200
"""Maximum number of areas of one kind, the largest ones, that count as objects of one annotator: more are a texture."""

BESIDE = np.ones((3, 3), dtype=bool)
"""A pixel is connected with its eight neighbors."""


@dataclass(frozen=True, eq=False)
class DrawnObjects:
    """Objects of one image.

    Attributes:
        joined: the clusters, each object as the smallest box around it, in pixels.
        pixels: for each cluster the pixels, counted through the image, drawn by at least half of the annotators who
            drew it.
    """

    joined: ClusteredImage
    pixels: tuple[Indices, ...]


def drawn_objects(drawn: DrawnMasks | None, classes: Names, known: Codes | None = None) -> DrawnObjects:
    """Find the objects that annotators drew (None: no answer).

    `known` (H, W): classes of the pixels, matched with them.
    """
    names: Names = () if drawn is None else drawn.annotators
    layers = [] if drawn is None else list(drawn.labels)
    layers += [] if known is None else [known]
    if not layers:
        return DrawnObjects(ClusteredImage((), ()), ())
    number_lhw, kind_p, owner_p = _areas(layers, len(classes))
    boxes = [box for numbers in number_lhw for box in _boxes(numbers)]
    cluster_p = _clusters(number_lhw, kind_p, owner_p, len(layers))
    cluster_p = _in_order(cluster_p, boxes)
    members: list[dict[Name, Box]] = [{} for _ in range(int(cluster_p.max(initial=-1)) + 1)]
    right: list[Box | None] = [None] * len(members)
    for p, (c, owner, place) in enumerate(zip(cluster_p.tolist(), owner_p.tolist(), boxes, strict=True)):
        box = Box(*place, classes[kind_p[p]])
        if owner == len(names):
            right[c] = box
        else:
            members[c][names[owner]] = box
    of_area = np.append(cluster_p, -1).astype(np.int32)
    image = ClusteredImage(names, tuple(members), None if known is None else tuple(right))
    own = np.array(number_lhw[: len(names)], np.int32).reshape(len(names), *layers[0].shape)
    return DrawnObjects(image, tuple(_pixels_of_most(of_area[own], len(members))))


def _areas(layers: Sequence[Codes], n_classes: int) -> tuple[list[Numbers], Numbers, Numbers]:
    """Return per layer (H, W) the number of the area at each pixel, -1 for none.

    And (P,) kind and layer of each area.
    """
    found, kinds, owners = [], list[int](), list[int]()
    for owner, codes in enumerate(layers):
        numbers = np.full(codes.shape, -1, np.int32)
        for kind in range(1, n_classes):
            areas, count = ndimage.label(codes == kind, BESIDE)
            objects = _objects(areas, count)
            number_of = np.full(count + 1, -1, np.int32)
            number_of[objects] = len(kinds) + np.arange(len(objects))
            numbers = np.maximum(numbers, number_of[areas])
            kinds += [kind] * len(objects)
            owners += [owner] * len(objects)
        found.append(numbers)
    return found, np.array(kinds, np.int32), np.array(owners, np.int32)


def _objects(areas: Numbers, count: int) -> list[int]:
    """Return areas that are objects: the broad ones, or all if none is broad; the largest, if there are many."""
    if not count:
        return []
    depth = ndimage.distance_transform_cdt(np.pad(areas > 0, 1), metric="chessboard")[1:-1, 1:-1]
    broad = np.unique(areas[depth > THIN])
    names = broad if len(broad) else np.arange(1, count + 1)
    size = np.bincount(areas.ravel())[names]
    return sorted(names[np.argsort(-size, kind="stable")[:MOST]].tolist())


def _boxes(numbers: Numbers) -> list[tuple[int, int, int, int]]:
    """Return left, top, width and height of each area of a layer, in order of their numbers."""
    present = np.unique(numbers[numbers >= 0])
    if not len(present):
        return []
    first = int(present[0])
    slices = ndimage.find_objects(np.where(numbers >= 0, numbers - first + 1, 0))
    return [(x.start, y.start, x.stop - x.start, y.stop - y.start) for y, x in slices]


def _clusters(number_lhw: Sequence[Numbers], kind_p: Numbers, owner_p: Numbers, n_layers: int) -> Numbers:
    """Return (P,) the cluster of each area."""
    kind, who = np.eye(int(kind_p.max(initial=0)) + 1)[kind_p], np.eye(n_layers, dtype=bool)[owner_p]
    cluster_p = np.empty(len(kind_p), np.int32)
    for c, areas in enumerate(link(*_overlaps(number_lhw, len(kind_p)), kind, who)):
        cluster_p[areas] = c
    return cluster_p


def _in_order(cluster_p: Numbers, boxes: Sequence[tuple[int, int, int, int]]) -> Numbers:
    """Renumber the clusters by place, so that the order of annotators does not matter."""
    places = [
        sorted(boxes[p] for p in np.flatnonzero(cluster_p == c)) for c in range(int(cluster_p.max(initial=-1)) + 1)
    ]
    rank_c = np.empty(len(places), np.int32)
    rank_c[sorted(range(len(places)), key=lambda c: places[c])] = np.arange(len(places))
    return rank_c[cluster_p] if len(places) else cluster_p


def _overlaps(number_lhw: Sequence[Numbers], n: int) -> tuple[Indices, Floats]:
    """Return (E, 2) pairs of areas of different layers that overlap, and (E,) intersection over union."""
    area_p, pairs, shared = np.zeros(n), [np.empty(0, np.int64)], [np.empty(0)]
    for a, one in enumerate(number_lhw):
        area_p += np.bincount(one[one >= 0], minlength=n)
        for other in number_lhw[:a]:
            both = (one >= 0) & (other >= 0)
            key, count = np.unique(other[both].astype(np.int64) * n + one[both], return_counts=True)
            pairs.append(key)
            shared.append(count.astype(np.float64))
    key_e, shared_e = np.concatenate(pairs), np.concatenate(shared)
    pair_e2 = np.column_stack((key_e // max(n, 1), key_e % max(n, 1)))
    whole_e = area_p[pair_e2].sum(axis=1) - shared_e
    return pair_e2, shared_e / whole_e


def _pixels_of_most(cluster_ahw: npt.NDArray[np.int32], clusters: int) -> list[Indices]:
    """Return per object the pixels, counted through the image, drawn by at least half of the annotators who drew it."""
    flat = cluster_ahw.reshape(len(cluster_ahw), cluster_ahw[:1].size).astype(np.int64)
    annotator, pixel = np.nonzero(flat >= 0)
    cluster = flat[annotator, pixel]
    members_c = np.bincount(np.unique(cluster * len(flat) + annotator) // len(flat), minlength=clusters)
    key, count = np.unique(cluster * flat.shape[1] + pixel, return_counts=True)
    of_key = key // flat.shape[1]
    kept = 2 * count >= members_c[of_key]
    borders = np.searchsorted(of_key[kept], np.arange(clusters + 1))
    return np.split(key[kept] % flat.shape[1], borders[1:-1]) if clusters else []
