"""The consensus about images as items: masks that are right, and beliefs of each image.

    masks     a field over the pixels says which of them are of which kind (`mask_consensus`)
    beliefs   objects of different annotators are matched (`drawn_objects`), and any combiner says how probable each
              kind is, or nothing (`judged_images`); an area of a mask is as probable as the object with the largest
              overlap, and a pixel as the area and the field together

So two annotators of three who drew a cat are as sure of it as in any other question, however many pixels it has. The
masks themselves stay those of the field: to drop the areas of unlikely objects, and to add those that the field lost,
was worse on five of seven kinds of noise, because an invented object that touches another is one area with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import ndimage

from hitl.annotations import Floats, Name, Names
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import Combiner
from hitl.models.default import DefaultCombiner
from hitl.models.segmentation.drawn_objects import BESIDE, Indices
from hitl.models.segmentation.judged_images import judged_images
from hitl.models.segmentation.mask_consensus import MaskConsensus, Masks
from hitl.models.segmentation.mask_labels import Codes, ImageParts, codes_of
from hitl.models.segmentation.run_length import encode
from hitl.parts import Part, drawn_in

SHADES = 16
"""Opacities of a mask: the probability of each pixel, as finely as is seen, so that its run lengths stay short."""


def of_images(evidence: Evidence, method: Combiner | None = None, masks: MaskConsensus | None = None) -> Consensus:
    """By a method for items, which judges objects, and one for masks; defaults: `DefaultCombiner`, `MaskConsensus`.

    A known image has its known masks.
    """
    parts, items = evidence.parts, evidence.annotations.items
    assert isinstance(parts, ImageParts)
    judged = judged_images(evidence, parts.images, parts.cluster_i, DefaultCombiner() if method is None else method)
    found: dict[int, list[Part]] = {}
    drawn = [one for i in judged.answered if (one := parts.drawn[i]) is not None]
    if drawn:
        field = (masks or MaskConsensus()).fit(drawn, parts.classes)
        for place, (i, q_cj) in enumerate(zip(judged.answered, judged.probabilities_of(parts.images), strict=True)):
            # A known image has its known masks: its objects are numbered otherwise.
            if i not in parts.known:
                found[i] = _found(field, place, parts.pixels[i], q_cj, items[i])
    found |= {i: _known(parts, i, items[i]) for i in parts.known}
    return replace(
        judged.images, question=parts.question, parts=tuple(mask for i in sorted(found) for mask in found[i])
    )


def _found(field: Masks, place: int, pixels: Sequence[Indices], q_cj: Floats, item: Name) -> list[Part]:
    """The masks of one image."""
    code_hw, p_hwj = field.mask(place).astype(np.int16), field.probabilities(place)
    sure_hw = _sure_of_objects(code_hw, pixels, q_cj, field.classes)
    found = []
    for code, mask in _masks(code_hw, field.classes, item):
        there_hw, p_hw = code_hw == code, p_hwj[..., code] * sure_hw
        rle = encode(there_hw, np.round(p_hw * SHADES) / SHADES * 255)
        found.append(replace(mask, place={**mask.place, "rle": rle}, probability=float(p_hw[there_hw].mean())))
    return found


def _sure_of_objects(code_hw: Codes, pixels_c: Sequence[Indices], q_cj: Floats, classes: Names) -> Floats:
    """(H, W) how probable the object of each pixel is, of the kind it has; 1 where there is none."""
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


def _known(parts: ImageParts, i: int, item: Name) -> list[Part]:
    """The known masks of one image."""
    height, width, masks = drawn_in(parts.known[i])
    if not masks:
        return []
    return [mask for _, mask in _masks(codes_of(masks, parts.classes, height, width), parts.classes, item)]


def _masks(code_hw: Codes, classes: Names, item: Name) -> Iterator[tuple[int, Part]]:
    """Code and mask, certain, of each kind that an image has."""
    for code in range(1, len(classes)):
        mask_hw = code_hw == code
        if mask_hw.any():
            height, width = mask_hw.shape
            yield code, Part(item, classes[code], {"height": height, "width": width, "rle": encode(mask_hw)}, 1.0)
