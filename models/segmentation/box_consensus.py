"""The consensus about images on which boxes are drawn: the objects that are there, and beliefs of each image.

An image has the beliefs of the cluster it stands for. One whose annotators all drew nothing has no cluster: it has an
object that all of them overlooked, or none (`inference.overlooked`, of images of one size).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hitl.annotations import Floats, Name, Names
from hitl.consensus import AnnotatorReport, Consensus, Fit, FoundBox
from hitl.crew import EXPECTED_ACCURACY, EXPECTED_LABELS
from hitl.evidence import Evidence
from hitl.models.combiner import Combiner, name_of
from hitl.models.default import DefaultCombiner
from hitl.models.inference.overlooked import chance_of_none, misses, shares_of_kinds
from hitl.models.segmentation.box_labels import BoxParts
from hitl.models.segmentation.boxes import Box, BoxConsensus, ClusteredImage, votes_of


def of_images(evidence: Evidence, method: Combiner | None = None) -> Consensus:
    """By a method for items, which judges clusters; default: `DefaultCombiner()`.

    An image without an answer has the class shares of clusters, which are even until there is one. A known image has
    its known boxes.
    """
    parts, annotations = evidence.parts, evidence.annotations
    assert isinstance(parts, BoxParts)
    method = DefaultCombiner() if method is None else method
    images = [parts.images[i] for i in parts.answered]
    if any(image.clusters for image in images):
        found = method.fit(votes_of(images, parts.classes, annotations.annotators))
        placed = BoxConsensus(combiner=method).placed(images, found)
    else:
        found, placed = _expected(parts.classes, annotations.annotators, method), [[] for _ in images]
    q_ij: Floats = np.tile(found.class_shares, (len(annotations.items), 1))
    for i, rows in zip(parts.answered, _beliefs(found, images, parts), strict=True):
        q_ij[i] = rows
    assert evidence.truth is not None
    q_ij[evidence.known] = np.eye(len(parts.classes))[evidence.truth[evidence.known]]
    objects = dict(zip(parts.answered, placed, strict=True)) | {i: parts.images[i].known or () for i in parts.known}
    return replace(
        found.judging(annotations.items, q_ij / q_ij.sum(axis=1, keepdims=True)),
        annotators=replace(found.annotators, labels=annotations.labels_per_annotator),
        parameters={},
        boxes=tuple(box for i in sorted(objects) for box in _found(parts, i, annotations.items[i], objects[i])),
    )


def _beliefs(found: Consensus, images: Sequence[ClusteredImage], parts: BoxParts) -> list[Floats]:
    """(J,) beliefs of each answered image."""
    if not images:
        return []
    ends = np.cumsum([len(image.clusters) for image in images])
    clusters = np.split(found.probabilities, ends[:-1])
    who = {name: k for k, name in enumerate(found.annotators.names)}
    answers = [(i, who[name]) for i, image in enumerate(images) for name in image.annotators]
    nothing_i = chance_of_none(
        np.array([_objects(*one) for one in zip(images, clusters, strict=True)]),
        np.ones(len(images)),
        np.array([image.known is not None for image in images]),
        np.array(answers, np.int64).reshape(-1, 2),
        misses(found.annotators),
    )
    kinds = shares_of_kinds(found.annotators)
    return [
        rows[parts.cluster_i[i]] if len(rows) else np.array([nothing, *((1 - nothing) * kinds)])
        for i, rows, nothing in zip(parts.answered, clusters, nothing_i, strict=True)
    ]


def _objects(image: ClusteredImage, probability_cj: Floats) -> float:
    """Expected number of objects among the clusters of an image; that of the known ones where they are known."""
    if image.known is not None:
        return float(sum(box is not None for box in image.known))
    return float((1 - probability_cj[:, 0]).sum())


def _found(parts: BoxParts, i: int, item: Name, boxes: Sequence[Box | None]) -> list[FoundBox]:
    """The objects of an image, the surest first. `boxes`: those of its clusters, or all known ones."""
    image, (height, width) = parts.images[i], parts.sizes[i]
    found = []
    for box, cluster in zip(boxes, image.clusters, strict=True):
        if box is not None:
            x, y, wide, high, sure = map(float, (box.x, box.y, box.width, box.height, box.confidence))
            counts = len(cluster), len(image.annotators)
            found.append(FoundBox(item, box.label, x, y, wide, high, sure, *counts, width, height))
    return sorted(found, key=lambda box: (-box.probability, box.x, box.y, box.width, box.height))


def _expected(classes: Names, annotators: Names, method: Combiner) -> Consensus:
    """What is expected before there is a cluster: even class shares, and annotators as those not met."""
    j, k = len(classes), len(annotators)
    share_j = np.full(j, 1 / j)
    pi_jl = np.full((j, j), (1 - EXPECTED_ACCURACY) / (j - 1))
    np.fill_diagonal(pi_jl, EXPECTED_ACCURACY)
    pi_kjl = np.tile(pi_jl, (k, 1, 1))
    report = AnnotatorReport(
        annotators, classes, classes, EXPECTED_LABELS * pi_kjl, pi_kjl, np.zeros(k, np.int64), share_j
    )
    return Consensus((), classes, np.empty((0, j)), report, share_j, fit=Fit(name_of(method)))
