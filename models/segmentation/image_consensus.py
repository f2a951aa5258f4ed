"""The consensus about images as items: masks that are right, and beliefs of the pixel that stands for each image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import Consensus, FoundMask
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.segmentation.mask_consensus import MaskConsensus, Masks
from hitl.models.segmentation.mask_labels import ImageParts
from hitl.models.segmentation.run_length import encode


def of_images(evidence: Evidence, method: MaskConsensus | None = None) -> Consensus:
    """By a method for masks; default: `MaskConsensus()`. Raises BadEvidence where nobody has answered.

    Images that nobody has answered have the class shares of pixels. A known pixel has its class.
    """
    parts = evidence.parts
    assert isinstance(parts, ImageParts)
    answered = [i for i, one in enumerate(parts.drawn) if one is not None]
    drawn = [one for one in parts.drawn if one is not None]
    if not drawn:
        raise BadEvidence(f"{parts.question}: no annotator has drawn anything yet; expected at least one answer")
    found = (method or MaskConsensus()).fit(drawn, parts.classes)
    report = replace(found.annotators, labels=evidence.annotations.labels_per_annotator)
    q_ij: Floats = np.tile(report.shares, (len(parts.drawn), 1))
    for place, i in enumerate(answered):
        y, x = parts.pixel_i2[i]
        q_ij[i] = found.probabilities(place)[y, x]
    assert evidence.truth is not None
    q_ij[evidence.known] = np.eye(len(parts.classes))[evidence.truth[evidence.known]]
    q_ij /= q_ij.sum(axis=1, keepdims=True)
    masks = [mask for place, i in enumerate(answered) for mask in _of_one(found, place, evidence.annotations.items[i])]
    return Consensus(
        evidence.annotations.items, parts.classes, q_ij, report, report.shares, fit=found.fit, masks=tuple(masks)
    )


def _of_one(found: Masks, place: int, item: int | str) -> list[FoundMask]:
    """The masks of one image, without the background."""
    code_hw, p_hwj = found.mask(place), found.probabilities(place)
    masks = []
    for code in range(1, len(found.classes)):
        mask_hw = code_hw == code
        if mask_hw.any():
            sure = float(p_hwj[..., code][mask_hw].mean())
            height, width = mask_hw.shape
            masks.append(FoundMask(item, found.classes[code], height, width, tuple(encode(mask_hw)), sure))
    return masks
