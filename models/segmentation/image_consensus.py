"""The consensus about images as items: masks that are right, and beliefs of the pixel that stands for each image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hitl.annotations import Floats, Name, Names
from hitl.consensus import AnnotatorReport, Consensus, Fit, FoundMask
from hitl.evidence import Evidence
from hitl.exchange import drawn_in
from hitl.models.segmentation.mask_consensus import METHOD, MaskConsensus, Masks
from hitl.models.segmentation.mask_labels import Codes, ImageParts, codes_of
from hitl.models.segmentation.run_length import encode

SHADES = 16
"""Opacities of a mask: the probability of each pixel, as finely as is seen, so that its run lengths stay short."""


def of_images(evidence: Evidence, method: MaskConsensus | None = None) -> Consensus:
    """By a method for masks; default: `MaskConsensus()`.

    An image without an answer has the class shares of pixels, which are even until there is one. A known image has its
    known masks.
    """
    parts, items = evidence.parts, evidence.annotations.items
    assert isinstance(parts, ImageParts)
    answered = [i for i, one in enumerate(parts.drawn) if one is not None]
    drawn = [one for one in parts.drawn if one is not None]
    if not drawn:
        report, fit = _without_answers(parts.classes), Fit(METHOD)
    else:
        found = (method or MaskConsensus()).fit(drawn, parts.classes)
        report, fit = replace(found.annotators, labels=evidence.annotations.labels_per_annotator), found.fit
    q_ij: Floats = np.tile(report.shares, (len(items), 1))
    masks: dict[int, list[FoundMask]] = {}
    for place, i in enumerate(answered):
        y, x = parts.pixel_i2[i]
        q_ij[i] = found.probabilities(place)[y, x]
        masks[i] = _found(found, place, items[i])
    assert evidence.truth is not None
    q_ij[evidence.known] = np.eye(len(parts.classes))[evidence.truth[evidence.known]]
    q_ij /= q_ij.sum(axis=1, keepdims=True)
    masks |= {i: _known(parts, i, items[i]) for i in parts.known}
    ordered = tuple(mask for i in sorted(masks) for mask in masks[i])
    return Consensus(items, parts.classes, q_ij, report, report.shares, fit=fit, masks=ordered)


def _found(found: Masks, place: int, item: Name) -> list[FoundMask]:
    """The masks of one image by the fit."""
    code_hw, p_hwj = found.mask(place), found.probabilities(place)
    masks = []
    for code, mask in _masks(code_hw.astype(np.int8), found.classes, item):
        there_hw, p_hw = code_hw == code, p_hwj[..., code]
        rle = encode(there_hw, np.round(p_hw * SHADES) / SHADES * 255)
        masks.append(replace(mask, rle=tuple(rle), probability=float(p_hw[there_hw].mean())))
    return masks


def _known(parts: ImageParts, i: int, item: Name) -> list[FoundMask]:
    """The known masks of one image."""
    height, width, masks = drawn_in(parts.known[i])
    if not masks:
        return []
    return [mask for _, mask in _masks(codes_of(masks, parts.classes, height, width), parts.classes, item)]


def _masks(code_hw: Codes, classes: Names, item: Name) -> Iterator[tuple[int, FoundMask]]:
    """Code and mask, certain, of each kind that an image has."""
    for code in range(1, len(classes)):
        mask_hw = code_hw == code
        if mask_hw.any():
            height, width = mask_hw.shape
            yield code, FoundMask(item, classes[code], height, width, tuple(encode(mask_hw)), 1.0)


def _without_answers(classes: Names) -> AnnotatorReport:
    """Of no annotators, with even class shares."""
    j = len(classes)
    none_kjl = np.empty((0, j, j))
    return AnnotatorReport((), classes, classes, none_kjl, none_kjl, np.empty(0, np.int64), np.full(j, 1 / j))
