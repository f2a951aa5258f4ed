"""Masks over an image: an answer is all that one annotator drew over one image, in run lengths, one mask per label.

Pixels without a mask are background. If one annotator draws two labels over one another, the later one counts.

    masks     a field over the pixels determines the label of each (`mask_consensus`)
    beliefs   objects of different annotators are matched (`drawn_objects`), and any combiner gives the probability of
              each label, or nothing (`images`); an area of a mask is as probable as the object with the largest
              overlap,
              and a pixel as the area and the field together

So if two annotators of three drew a cat, the confidence is the same as in any other question, however many pixels it
has, and annotators who differ by a few pixels along a boundary agree. The masks themselves stay those of the field.
Dropping the areas of unlikely objects, and adding those that the field lost, was worse on five of seven kinds of noise,
because an invented object that touches another is one area with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from scipy import ndimage

from hitl.annotations import Floats, Names
from hitl.consensus import Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.kinds.drawn_objects import BESIDE, Codes, Indices, drawn_objects
from hitl.kinds.images import ImageParts, StoredImages, judge_images, least_agreed, marks_in
from hitl.kinds.kind import Marked, PartsKind, StoredAnswers
from hitl.kinds.label_patterns import DrawnMasks
from hitl.kinds.mask_consensus import ImageMasks, MaskConsensus
from hitl.kinds.run_length import decode, encode
from hitl.models.combiner import Combiner
from hitl.parts import Part, drawn_as_label, drawn_in

if TYPE_CHECKING:
    from hitl.annotations import Name

BACKGROUND = "background"

EMPTY = (64, 64)
"""Size assumed for an image over which no annotator drew, because Label Studio does not report it: large enough to be
broad.
"""

SHADES = 16
"""Number of opacities of a mask: enough for a visible difference of probabilities, few enough for short run lengths."""


@dataclass(frozen=True, eq=False)
class MaskParts(ImageParts):
    """Masks of I images.

    Attributes:
        classes: the background, and the labels.
        drawn: for each image what its annotators drew; None without an answer.
        known: row of an image -> its known masks.
        pixels: for each image the pixels of each object (`drawn_objects`).
    """

    classes: Names
    drawn: tuple[DrawnMasks | None, ...]
    known: Mapping[int, Sequence[Marked]]
    pixels: tuple[tuple[Indices, ...], ...]


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

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        question, images = stored.question, StoredImages.of(stored)
        classes: Names = (BACKGROUND, *question.classes)

        def masks_of(item: Name, answer: str) -> list[Marked]:
            return marks_in(self, self.noun, item, answer, question.classes)

        drawn = tuple(
            _drawn(item, {who: masks_of(item, answer) for who, (answer, *_) in images.answers[item].items()}, classes)
            if item in images.answers
            else None
            for item in images.items
        )
        known = {i: masks_of(item, images.gold[item]) for i, item in enumerate(images.items) if item in images.gold}
        codes = {i: _known_codes(masks, classes, drawn[i]) for i, masks in known.items()}
        objects = [drawn_objects(own, classes, codes.get(i)) for i, own in enumerate(drawn)]
        joined = tuple(own.joined for own in objects)
        pixels = tuple(own.pixels for own in objects)
        parts = MaskParts(question, joined, least_agreed(joined), classes, drawn, known, pixels)
        return {question.name: images.evidence(parts, [i for i in known if codes[i] is not None])}

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        """Fit objects by the method, and masks by `MaskConsensus`; a known image has its known masks."""
        parts, items = evidence.parts, evidence.annotations.items
        assert isinstance(parts, MaskParts)
        judged = judge_images(evidence, method)
        found: dict[int, list[Part]] = {}
        drawn = [own for i in parts.answered if (own := parts.drawn[i]) is not None]
        if drawn:
            field = MaskConsensus().fit(drawn, parts.classes)
            for place, (i, q_cj) in enumerate(zip(parts.answered, judged.probabilities(), strict=True)):
                if i not in parts.known:  # known objects are numbered differently
                    found[i] = _found(field, place, parts.pixels[i], q_cj, items[i])
        for i, masks in parts.known.items():
            size = (masks[0]["height"], masks[0]["width"]) if masks else EMPTY
            found[i] = [mask for _, mask in _masks(codes_of(masks, parts.classes, size), parts.classes, items[i])]
        return replace(judged.images, parts=tuple(mask for i in sorted(found) for mask in found[i]))


def _drawn(item: Name, masks: Mapping[Name, Sequence[Marked]], classes: Names) -> DrawnMasks:
    """Return what the annotators of one image drew; background where none of them drew anything."""
    sizes = {(mask["height"], mask["width"]) for own in masks.values() for mask in own}
    if len(sizes) > 1:
        first, other, *_ = sorted(sizes)
        raise BadInput(
            f"item {item}: one annotator drew on an image of {first[1]} x {first[0]} pixels, another on one of "
            f"{other[1]} x {other[0]}; was the image replaced? Delete the older annotations, then `hitl pull`"
        )
    size = next(iter(sizes), EMPTY)
    return DrawnMasks(np.stack([codes_of(own, classes, size) for own in masks.values()]), tuple(masks))


def _known_codes(masks: Sequence[Marked], classes: Names, drawn: DrawnMasks | None) -> Codes | None:
    """Return (H, W) known classes of the pixels; None if the image has another size than the drawn masks."""
    seen = EMPTY if drawn is None else drawn.labels.shape[1:]
    size = (masks[0]["height"], masks[0]["width"]) if masks else (seen[0], seen[1])
    return codes_of(masks, classes, size) if drawn is None or size == seen else None


def codes_of(masks: Sequence[Marked], classes: Names, size: tuple[int, int]) -> Codes:
    """Return (H, W) class codes of masks."""
    codes: Codes = np.zeros(size, np.int16)
    place = {name: code for code, name in enumerate(classes)}
    for mask in sorted(masks, key=lambda mask: place[mask["label"]]):
        codes[decode(mask["rle"], *size)] = place[mask["label"]]
    return codes


def _found(field: ImageMasks, place: int, pixels: Sequence[Indices], q_cj: Floats, item: Name) -> list[Part]:
    """Return the masks of one image."""
    code_hw, p_hwj = field.mask(place).astype(np.int16), field.probabilities(place)
    sure_hw = _sure_of_objects(code_hw, pixels, q_cj, field.classes)
    found = []
    for code, mask in _masks(code_hw, field.classes, item):
        there_hw, p_hw = code_hw == code, p_hwj[..., code] * sure_hw
        rle = encode(there_hw, np.round(p_hw * SHADES) / SHADES * 255)
        found.append(replace(mask, place={**mask.place, "rle": rle}, probability=float(p_hw[there_hw].mean())))
    return found


def _sure_of_objects(code_hw: Codes, pixels_c: Sequence[Indices], q_cj: Floats, classes: Names) -> Floats:
    """Return (H, W) probability of the object at each pixel, of the pixel's class; 1 where there is none."""
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
    """Yield code and mask, certain, of each class that an image has."""
    for code in range(1, len(classes)):
        mask_hw = code_hw == code
        if mask_hw.any():
            height, width = mask_hw.shape
            yield code, Part(item, classes[code], {"height": height, "width": width, "rle": encode(mask_hw)}, 1.0)
