"""Masks over an image: an answer is all that one annotator drew over one image, one run-length encoded mask per label.

Pixels without a mask are background. Where two masks of an answer overlap, the label that is later in the order of the
classes counts.

    masks     a field over the pixels determines the label of each pixel (`mask_consensus`)
    object    area of one label by one annotator, connected by sides or corners
    cluster   objects of different annotators, joined while they overlap at all (`matching`)
    beliefs   any combiner gives the probability that a cluster is of each label, or nothing. An area of a mask has the
              probability of the cluster that overlaps it most. A pixel has the product of this probability and its own
              in the field.

Each annotator makes one decision about the existence of an object, so confidence is measured on clusters. As labels of
pixels one decision would count thousands of times, and two of three annotators would seem certain to be right.

The shapes of the masks come from the field alone. Dropping areas of unlikely objects, and adding objects that the field
lost, was worse for five of seven kinds of noise, because an invented object that touches a real one shares its area.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import eq
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import ndimage

from hitl.annotations import Floats, Name, Names
from hitl.consensus import Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.kinds.kind import Marked, PartsKind, StoredAnswers
from hitl.kinds.label_patterns import DrawnMasks
from hitl.kinds.mask_consensus import ImageMasks, MaskConsensus
from hitl.kinds.matching import Indices, Marks, Matched, judge_images, link, match, of_other_images, read_images
from hitl.kinds.run_length import decode, encode, require_mask
from hitl.models.combiner import Combiner
from hitl.parts import Part, drawn_as_label, drawn_in
from hitl.platform import Question

Codes = npt.NDArray[np.int16]
Numbers = npt.NDArray[np.int32]

BACKGROUND = "background"

EMPTY = (64, 64)
"""Height and width assumed for an image over which no annotator drew, because Label Studio does not report them.

The image is large enough for its pixels to be broad.
"""

LARGEST = 100_000_000
"""Maximum number of pixels of an image. Each annotator's answer takes two bytes per pixel in memory."""

SHADES = 16
"""Number of opacities of a mask: enough to show differences in probability, few enough for short run lengths."""

THIN = 2
"""Largest distance in pixels from the middle of a thin area to its edge. Areas at misplaced boundaries are thin."""

MOST = 200
"""Maximum number of objects of one label and annotator, the largest areas. Images with more show a texture."""

BESIDE = np.ones((3, 3), dtype=bool)
"""Structure in which a pixel is connected with all eight neighbors."""


@dataclass(frozen=True, eq=False)
class MaskParts:
    """Masks of N images.

    Attributes:
        question: the question.
        matched: clusters of objects; a place is left, top, width and height in pixels.
        classes: the background, then the labels.
        drawn: masks of all annotators of each image; None for an image without an answer.
        known: image number -> its known masks (ground truth).
        pixels: for each cluster the pixels that at least half of its annotators drew, as indices into the flat image.
    """

    question: Question
    matched: Matched
    classes: Names
    drawn: tuple[DrawnMasks | None, ...]
    known: Mapping[int, Sequence[Marked]]
    pixels: tuple[Indices, ...]


class Masks(PartsKind):
    """One mask per label."""

    noun: ClassVar[str] = "masks"
    columns: ClassVar[Mapping[str, pa.DataType | None]] = {
        "label": None,
        "confidence": None,
        "height": pa.int64(),
        "width": pa.int64(),
        "rle": pa.string(),
    }

    def read(self, answer: str) -> list[Marked]:
        height, width, masks = drawn_in(answer)
        return [{"label": label, "height": height, "width": width, "rle": rle} for label, rle in masks]

    def write(self, parts: Iterable[Marked]) -> str:
        parts = list(parts)
        height, width = (parts[0]["height"], parts[0]["width"]) if parts else (0, 0)
        return drawn_as_label(height, width, [(str(part["label"]), part["rle"]) for part in parts])

    def unusable(self, answers: Sequence[str | None], data: object) -> list[str | None]:
        alone = super().unusable(answers, data)
        read = [None if answer is None or why else drawn_in(answer) for answer, why in zip(answers, alone, strict=True)]
        sizes = [None if drawn is None or not drawn[2] else (drawn[0], drawn[1]) for drawn in read]
        others = of_other_images(sizes, eq)
        return [why or other for why, other in zip(alone, others, strict=True)]

    def why_unusable(self, answer: str, data: object) -> str | None:
        height, width, masks = drawn_in(answer)
        if height * width > LARGEST:
            return f"a mask of {width:,} x {height:,} pixels is too large; expected at most {LARGEST:,} pixels"
        try:
            for _, rle in masks:
                require_mask(rle, height, width)
        except BadInput as error:
            return str(error)
        return None

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        question, images = stored.question, read_images(self, stored)
        items, annotators = images.answers.items, images.answers.annotators
        classes: Names = (BACKGROUND, *question.classes)
        drawn = [_drawn(items[n], own, classes) if own else None for n, own in enumerate(images.drawn)]
        known_n = images.answers.known_n.copy()
        marks: list[Indices] = [np.empty((0, 7), np.int64)]
        clusters: list[Indices] = [np.empty(0, np.int64)]
        pixels: list[Indices] = []
        for n, own in enumerate(drawn):
            owners = [] if own is None else [annotators.index(name) for name in own.annotators]
            layers = [] if own is None else list(own.labels)
            if n in images.known:
                seen = EMPTY if own is None else (own.labels.shape[1], own.labels.shape[2])
                known = images.known[n]
                size = (known[0]["height"], known[0]["width"]) if known else seen
                known_n[n] = own is None or size == seen  # else the image was replaced
                if known_n[n]:
                    owners, layers = [*owners, -1], [*layers, codes_of(known, classes, size)]
            mark_p7, cluster_p, own_pixels = draw_objects(layers, owners, len(classes))
            mark_p7[:, 0] = n
            marks.append(mark_p7)
            clusters.append(cluster_p + len(pixels))
            pixels += own_pixels
        mark_s7 = np.concatenate(marks)
        answers = replace(images.answers, known_n=known_n)
        matched = match(
            Marks(mark_s7[:, 0], mark_s7[:, 1], mark_s7[:, 2], mark_s7[:, 3:]),
            np.concatenate(clusters),
            answers,
            question.classes,
        )
        parts = MaskParts(question, matched, classes, tuple(drawn), images.known, tuple(pixels))
        return {question.name: matched.evidence(parts)}

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        parts, items = evidence.parts, evidence.annotations.items
        assert isinstance(parts, MaskParts)
        judged, q_cj = judge_images(evidence, parts.matched, method)
        parts_n: dict[int, list[Part]] = {}
        answered = [(n, own) for n, own in enumerate(parts.drawn) if own is not None]
        if answered:
            field = MaskConsensus().fit([own for _, own in answered], parts.classes)
            for image, (n, _) in enumerate(answered):
                own = np.flatnonzero(parts.matched.item_c == n)
                if n not in parts.known:
                    parts_n[n] = _image_masks(field, image, [parts.pixels[c] for c in own], q_cj[own], items[n])
        for n, masks in parts.known.items():
            size = (masks[0]["height"], masks[0]["width"]) if masks else EMPTY
            parts_n[n] = [mask for _, mask in _masks(codes_of(masks, parts.classes, size), parts.classes, items[n])]
        return replace(judged, parts=tuple(mask for n in sorted(parts_n) for mask in parts_n[n]))


def _drawn(item: Name, masks: Mapping[Name, Sequence[Marked]], classes: Names) -> DrawnMasks:
    """Return the masks of one image. An image without drawings has size EMPTY and is background.

    Raise BadInput if the annotators drew on images of different sizes.
    """
    sizes = {(mask["height"], mask["width"]) for own in masks.values() for mask in own}
    if len(sizes) > 1:
        first, other, *_ = sorted(sizes)
        raise BadInput(
            f"item {item}: one annotator drew on an image of {first[1]} x {first[0]} pixels, another on one of "
            f"{other[1]} x {other[0]}; was the image replaced? Delete the older annotations, then `hitl pull`"
        )
    size = next(iter(sizes), EMPTY)
    return DrawnMasks(np.stack([codes_of(own, classes, size) for own in masks.values()]), tuple(masks))


def codes_of(masks: Sequence[Marked], classes: Names, size: tuple[int, int]) -> Codes:
    """Return (H, W) class codes of masks; where masks overlap, the highest code counts."""
    codes: Codes = np.zeros(size, np.int16)
    place = {name: code for code, name in enumerate(classes)}
    for mask in sorted(masks, key=lambda mask: place[mask["label"]]):
        codes[decode(mask["rle"], *size)] = place[mask["label"]]
    return codes


def _image_masks(field: ImageMasks, image: int, pixels_c: Sequence[Indices], q_cj: Floats, item: Name) -> list[Part]:
    """Return the consensus masks of one image, one per label."""
    code_hw, p_hwj = field.mask(image).astype(np.int16), field.probabilities(image)
    sure_hw = _sure_of_objects(code_hw, pixels_c, q_cj, field.classes)
    parts = []
    for code, mask in _masks(code_hw, field.classes, item):
        there_hw, p_hw = code_hw == code, p_hwj[..., code] * sure_hw
        rle = encode(there_hw, np.round(p_hw * SHADES) / SHADES * 255)
        parts.append(replace(mask, place={**mask.place, "rle": rle}, probability=float(p_hw[there_hw].mean())))
    return parts


def _sure_of_objects(code_hw: Codes, pixels_c: Sequence[Indices], q_cj: Floats, classes: Names) -> Floats:
    """Return (H, W) probability that there is an object of the pixel's class at each pixel.

    It is 1 for the background, and in areas that no cluster overlaps.
    """
    sure_hw = np.ones(code_hw.shape)
    for code in range(1, len(classes)):
        areas, count = ndimage.label(code_hw == code, BESIDE)
        size, overlap, sure = np.bincount(areas.ravel(), minlength=count + 1), np.zeros(count + 1), np.ones(count + 1)
        for c, pixels in enumerate(pixels_c):
            shared = np.bincount(areas.ravel()[pixels], minlength=count + 1)
            own = shared / (size + len(pixels) - shared)
            sure[own > overlap] = q_cj[c, code]
            overlap = np.maximum(overlap, own)
        sure[0] = 1.0
        sure_hw = np.where(areas > 0, sure[areas], sure_hw)
    return sure_hw


def _masks(code_hw: Codes, classes: Names, item: Name) -> Iterator[tuple[int, Part]]:
    """Yield the code and the mask, with probability 1, of each class in an image."""
    for code in range(1, len(classes)):
        mask_hw = code_hw == code
        if mask_hw.any():
            height, width = mask_hw.shape
            yield code, Part(item, classes[code], {"height": height, "width": width, "rle": encode(mask_hw)}, 1.0)


# -- objects of one image ----------------------------------------------------------------------------------


def draw_objects(
    layers: Sequence[Codes], owners: Sequence[int], n_classes: int
) -> tuple[Indices, Indices, list[Indices]]:
    """Find the objects in layers, the (H, W) class codes of one annotator each, and match them.

    `owners`: annotator of each layer, -1 for ground truth. Return three results: (P, 7) for each object 0, annotator,
    class code minus 1, left, top, width and height; (P,) the cluster of each object; and for each cluster the pixels
    that at least half of its annotators drew, as indices into the flat image. Clusters are in the order of their
    places, so that the order of annotators does not matter.
    """
    areas, rows = [], list[tuple[int, ...]]()
    for owner, codes in zip(owners, layers, strict=True):
        numbers: Numbers = np.full(codes.shape, -1, np.int32)
        for kind in range(1, n_classes):
            labels, count = ndimage.label(codes == kind, BESIDE)
            objects = _objects(labels, count)
            number_of = np.full(count + 1, -1, np.int32)
            number_of[objects] = len(rows) + np.arange(len(objects))
            numbers = np.maximum(numbers, number_of[labels])
            boxes = ndimage.find_objects(labels)
            for y, x in (boxes[name - 1] for name in objects):
                rows.append((0, owner, kind - 1, x.start, y.start, x.stop - x.start, y.stop - y.start))
        areas.append(numbers)
    mark_p7 = np.array(rows, np.int64).reshape(-1, 7)
    pair_e2, overlap_e = _overlaps(areas, len(rows))
    cluster_p = link(pair_e2, overlap_e, np.arange(len(rows)), mark_p7[:, 2], mark_p7[:, 1])
    count = int(cluster_p.max(initial=-1)) + 1
    places: list[list[list[int]]] = [[] for _ in range(count)]
    for c, place in zip(cluster_p.tolist(), mark_p7[:, 3:].tolist(), strict=True):
        places[c].append(place)
    cluster_p = np.argsort(sorted(range(count), key=lambda c: sorted(places[c])))[cluster_p] if count else cluster_p
    drawn = [np.append(cluster_p, -1)[own].ravel() for own, who in zip(areas, owners, strict=True) if who >= 0]
    return mark_p7, cluster_p, _pixels_of_most(drawn, count)


def _objects(areas: Numbers, count: int) -> list[int]:
    """Return the numbers of the areas that are objects: broad ones, or all if none is broad; at most the MOST largest.

    `areas` (H, W): numbers of the areas of one label by one annotator, 0 elsewhere. If some of them are broad, thin
    ones are slips of the brush. If all are thin, such as cracks and vessels, they are objects.
    """
    if not count:
        return []
    depth = ndimage.distance_transform_cdt(np.pad(areas > 0, 1), metric="chessboard")[1:-1, 1:-1]
    broad = np.unique(areas[depth > THIN])
    names = broad if len(broad) else np.arange(1, count + 1)
    size = np.bincount(areas.ravel())[names]
    return sorted(names[np.argsort(-size, kind="stable")[:MOST]].tolist())


def _overlaps(areas: Sequence[Numbers], n: int) -> tuple[Indices, Floats]:
    """Return (E, 2) pairs of objects of different layers that overlap, and (E,) their intersection over union."""
    area_p, pairs, shared = np.zeros(n), [np.empty(0, np.int64)], [np.empty(0)]
    for a, one in enumerate(areas):
        area_p += np.bincount(one[one >= 0], minlength=n)
        for other in areas[:a]:
            both = (one >= 0) & (other >= 0)
            key, count = np.unique(other[both].astype(np.int64) * n + one[both], return_counts=True)
            pairs.append(key)
            shared.append(count.astype(np.float64))
    key_e, shared_e = np.concatenate(pairs), np.concatenate(shared)
    pair_e2 = np.column_stack((key_e // max(n, 1), key_e % max(n, 1)))
    return pair_e2, shared_e / (area_p[pair_e2].sum(axis=1) - shared_e)


def _pixels_of_most(cluster_ap: Sequence[Indices], clusters: int) -> list[Indices]:
    """Return, for each cluster, the pixels of at least half of its annotators.

    `cluster_ap`: for each annotator, (H W,) cluster at each pixel, -1 for none.
    """
    if not cluster_ap:
        return [np.empty(0, np.int64)] * clusters
    annotator, pixel = np.nonzero(np.stack(cluster_ap) >= 0)
    cluster, many = np.stack(cluster_ap)[annotator, pixel], len(cluster_ap[0])
    members_c = np.bincount(np.unique(cluster * len(cluster_ap) + annotator) // len(cluster_ap), minlength=clusters)
    key, count = np.unique(cluster * many + pixel, return_counts=True)
    key = key[2 * count >= members_c[key // many]]
    return np.split(key % many, np.searchsorted(key // many, np.arange(1, clusters))) if clusters else []
