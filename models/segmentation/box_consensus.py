"""The consensus about images on which boxes are drawn: the objects that are there, and beliefs of each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hitl.annotations import Name
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import Combiner
from hitl.models.default import DefaultCombiner
from hitl.models.segmentation.box_labels import BoxParts
from hitl.models.segmentation.boxes import Box, BoxConsensus
from hitl.models.segmentation.judged_images import judged_images
from hitl.parts import Part


def of_images(evidence: Evidence, method: Combiner | None = None) -> Consensus:
    """By a method for items, which judges clusters (`judged_images`); default: `DefaultCombiner()`.

    A known image has its known boxes.
    """
    parts, items = evidence.parts, evidence.annotations.items
    assert isinstance(parts, BoxParts)
    method = DefaultCombiner() if method is None else method
    judged = judged_images(evidence, parts.images, parts.cluster_i, method)
    drawn = [parts.images[i] for i in judged.answered]
    there = any(image.clusters for image in drawn)
    placed = BoxConsensus(combiner=method).placed(drawn, judged.clusters) if there else [[] for _ in drawn]
    objects = dict(zip(judged.answered, placed, strict=True)) | {i: parts.images[i].known or () for i in parts.known}
    boxes = (box for i in sorted(objects) for box in _found(parts, i, items[i], objects[i]))
    return replace(judged.images, question=parts.question, parts=tuple(boxes))


def _found(parts: BoxParts, i: int, item: Name, boxes: Sequence[Box | None]) -> list[Part]:
    """The objects of an image, the surest first. `boxes`: those of its clusters, or all known ones."""
    image, (height, width) = parts.images[i], parts.sizes[i]
    found = []
    for box, cluster in zip(boxes, image.clusters, strict=True):
        if box is not None:
            place = {side: float(getattr(box, side)) for side in ("x", "y", "width", "height")}
            size = {"image_width": width, "image_height": height}
            counts = len(cluster), len(image.annotators)
            found.append(Part(item, box.label, place | size, float(box.confidence), *counts))
    return sorted(found, key=lambda box: (-box.probability, *box.place.values()))
