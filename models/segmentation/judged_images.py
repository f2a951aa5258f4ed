"""Images as items, by the objects that annotators joined in them: what any combiner says of those, and of each image.

An image has the beliefs of the cluster it stands for. One whose annotators all drew nothing has no cluster: it has an
object that all of them missed, or none (`inference.missed_objects`, of images of one size). An image without an answer
has the class shares of clusters, which are even until there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Names
from hitl.consensus import AnnotatorReport, Consensus, Fit
from hitl.crew import EXPECTED_ACCURACY, EXPECTED_LABELS
from hitl.evidence import Evidence
from hitl.models.combiner import Combiner, name_of
from hitl.models.inference.missed_objects import chance_of_none, misses, shares_of_kinds
from hitl.models.segmentation.boxes import ClusteredImage, votes_of


@dataclass(frozen=True, eq=False)
class JudgedImages:
    """What a combiner says of clusters and images.

    Attributes:
        answered: rows of the images with an answer.
        clusters: about their clusters, in order.
        images: about all images.
    """

    answered: tuple[int, ...]
    clusters: Consensus
    images: Consensus

    def probabilities_of(self, images: Sequence[ClusteredImage]) -> list[Floats]:
        """For each answered image the (C, J) beliefs of its clusters."""
        ends = np.cumsum([len(images[i].clusters) for i in self.answered])
        return np.split(self.clusters.probabilities, ends[:-1]) if len(ends) else []


def judged_images(
    evidence: Evidence, images: Sequence[ClusteredImage], cluster_i: npt.NDArray[np.int64], method: Combiner
) -> JudgedImages:
    """By a method for items. `cluster_i` (I,): the cluster each image stands for, -1 where it has none."""
    annotations = evidence.annotations
    classes, names = annotations.classes, annotations.annotators
    answered = tuple(i for i, image in enumerate(images) if image.annotators)
    if any(images[i].clusters for i in answered):
        found = method.fit(votes_of([images[i] for i in answered], classes, names))
    else:
        found = _expected(classes, names, method)
    q_ij: Floats = np.tile(found.class_shares, (len(images), 1))
    told = JudgedImages(answered, found, found)
    rows = told.probabilities_of(images)
    for i, own, empty_j in zip(
        answered, rows, _without_clusters(found, [images[i] for i in answered], rows), strict=True
    ):
        q_ij[i] = own[cluster_i[i]] if len(own) else empty_j
    assert evidence.truth is not None
    q_ij[evidence.known] = np.eye(len(classes))[evidence.truth[evidence.known]]
    report = replace(found.annotators, labels=annotations.labels_per_annotator)
    judged = found.judging(annotations.items, q_ij / q_ij.sum(axis=1, keepdims=True), report)
    return replace(told, images=replace(judged, parameters={}))


def _without_clusters(found: Consensus, images: Sequence[ClusteredImage], rows: Sequence[Floats]) -> Floats:
    """(I, J) beliefs of answered images, were they without a cluster."""
    who = {name: k for k, name in enumerate(found.annotators.names)}
    answers = [(i, who[name]) for i, image in enumerate(images) for name in image.annotators]
    nothing_i = chance_of_none(
        np.array([_objects(*one) for one in zip(images, rows, strict=True)]),
        np.ones(len(images)),
        np.array([image.known is not None for image in images], bool),
        np.array(answers, np.int64).reshape(-1, 2),
        misses(found.annotators),
    )
    return np.column_stack((nothing_i, np.multiply.outer(1 - nothing_i, shares_of_kinds(found.annotators))))


def _objects(image: ClusteredImage, probability_cj: Floats) -> float:
    """Expected number of objects among the clusters of an image; that of the known ones where they are known."""
    if image.known is not None:
        return float(sum(box is not None for box in image.known))
    return float((1 - probability_cj[:, 0]).sum())


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
