"""Images as items, represented by the objects that annotators drew in them; shared by boxes and masks.

An image stands for the cluster of drawn objects (`box_matching`) about which its annotators agree least: what an
annotator drew there is their label of the image, a class or NOTHING. Without a cluster all of them say NOTHING; then
either all of them missed an object, or there is none (`inference.missed_objects`, with images of one size). An image
without an answer has the class shares of clusters, which are uniform until there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Name, Names
from hitl.consensus import AnnotatorReport, Consensus, Fit
from hitl.crew import EXPECTED_ACCURACY, EXPECTED_LABELS
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.kinds.box_matching import ClusteredImage, votes_of
from hitl.kinds.kind import NOTHING, Kind, Marked, StoredAnswers
from hitl.models.combiner import Combiner, name_of
from hitl.models.inference.missed_objects import chance_of_none, misses, shares_of_kinds
from hitl.tables.encoding import natural_order

if TYPE_CHECKING:
    from hitl.platform import Question


@dataclass(frozen=True, eq=False)
class ImageParts:
    """Objects of I images, and the object that each image stands for.

    Attributes:
        question: what was asked.
        images: for each image its clusters, known ones among them.
        cluster_i: (I,) number of the cluster that stands for the image; -1 if it has none.
    """

    question: Question
    images: tuple[ClusteredImage, ...]
    cluster_i: npt.NDArray[np.int64]

    @property
    def answered(self) -> list[int]:
        """Rows of the images with an answer."""
        return [i for i, image in enumerate(self.images) if image.annotators]


@dataclass(frozen=True)
class StoredImages:
    """Stored answers about images: item -> annotator -> label, time and duration; item -> ground truth."""

    items: tuple[str, ...]
    answers: Mapping[Name, Mapping[Name, tuple[str, float, float]]]
    gold: Mapping[Name, str]

    @classmethod
    def of(cls, stored: StoredAnswers) -> StoredImages:
        """Read the stored answers."""
        answers: dict[Name, dict[Name, tuple[str, float, float]]] = {}
        for item, annotator, label, time, duration in stored.by_annotator():
            answers.setdefault(item, {})[annotator] = label, time, duration
        gold = stored.gold()
        truth = dict(zip(gold.column("item").to_pylist(), gold.column("label").to_pylist(), strict=True))
        return cls(tuple(stored.items().column("item").to_pylist()), answers, truth)

    def evidence(self, parts: ImageParts, known: Iterable[int]) -> Evidence:
        """Build the evidence about images; `known`: rows of those whose objects are known."""
        images, classes = parts.images, (NOTHING, *parts.question.classes)
        annotators = natural_order(list({name for image in images for name in image.annotators}))
        code = {name: k for k, name in enumerate(annotators)}
        place = {name: j for j, name in enumerate(classes)}
        rows = [
            (i, code[who], place[label], *self.answers[self.items[i]][who][1:])
            for i, (image, c) in enumerate(zip(images, parts.cluster_i.tolist(), strict=True))
            for who, label in zip(image.annotators, image.said(image.clusters[c] if c >= 0 else {}), strict=True)
        ]
        column_5 = np.array(rows, np.float64).reshape(-1, 5).T
        item, annotator, label = column_5[:3].astype(np.int32)
        annotations = Annotations(
            item, annotator, label, self.items, annotators, classes, classes, time=column_5[3], duration=column_5[4]
        )
        truth_i = np.full(len(images), -1, np.int32)
        for i in known:
            c = int(parts.cluster_i[i])
            truth_i[i] = images[i].truth(classes)[c] if c >= 0 else 0
        return Evidence(annotations, truth=truth_i, parts=parts)


def marks_in(kind: Kind, noun: str, item: Name, answer: str, labels: Names) -> list[Marked]:
    """Read the parts of a stored answer. Raise BadInput if they are of another kind, or have other labels."""
    try:
        parts = kind.read(answer)
    except (KeyError, TypeError, ValueError):
        raise BadInput(
            f"item {item}: a stored answer says no {noun}; `hitl pull --full` reads all answers anew"
        ) from None
    for part in parts:
        if part["label"] not in labels:
            raise BadInput(f"item {item}: {noun} of {part['label']!r}; expected one of {listed(labels)}")
    return parts


def least_agreed(images: Sequence[ClusteredImage]) -> npt.NDArray[np.int64]:
    """Return (I,) the cluster with the smallest majority; ties go to the most marked, then the first; -1 for none."""

    def rank(image: ClusteredImage, c: int) -> tuple[int, int, int]:
        cluster = image.clusters[c]
        return max(Counter(image.said(cluster)).values(), default=0), -len(cluster), c

    clusters = (min((rank(image, c) for c in range(len(image.clusters))), default=(0, 0, -1)) for image in images)
    return np.array([c for *_, c in clusters], np.int64)


@dataclass(frozen=True, eq=False)
class JudgedImages:
    """Consensus on the clusters of answered images, and on all images."""

    parts: ImageParts
    clusters: Consensus
    images: Consensus

    def probabilities(self) -> list[Floats]:
        """Return for each answered image the (C, J) beliefs of its clusters."""
        return _by_image(self.parts, self.clusters)


def _by_image(parts: ImageParts, clusters: Consensus) -> list[Floats]:
    ends = np.cumsum([len(parts.images[i].clusters) for i in parts.answered])
    return np.split(clusters.probabilities, ends[:-1]) if len(ends) else []


def judge_images(evidence: Evidence, method: Combiner) -> JudgedImages:
    """Fit a method for items to the clusters, and give each image the beliefs of the cluster it stands for."""
    parts, annotations = evidence.parts, evidence.annotations
    assert isinstance(parts, ImageParts)
    assert evidence.truth is not None
    classes, names = annotations.classes, annotations.annotators
    answered = [parts.images[i] for i in parts.answered]
    if any(image.clusters for image in answered):
        clusters = method.fit(votes_of(answered, classes, names))
    else:
        clusters = _expected(classes, names, method)
    q_ij: Floats = np.tile(clusters.class_shares, (len(parts.images), 1))
    rows = _by_image(parts, clusters)
    for i, own, empty_j in zip(parts.answered, rows, _without_clusters(clusters, answered, rows), strict=True):
        q_ij[i] = own[parts.cluster_i[i]] if len(own) else empty_j
    q_ij[evidence.known] = np.eye(len(classes))[evidence.truth[evidence.known]]
    report = replace(clusters.annotators, labels=annotations.labels_per_annotator)
    images = clusters.judging(annotations.items, q_ij / q_ij.sum(axis=1, keepdims=True), report)
    return JudgedImages(parts, clusters, replace(images, parameters={}, question=parts.question))


def _without_clusters(clusters: Consensus, images: Sequence[ClusteredImage], rows: Sequence[Floats]) -> Floats:
    """Return (I, J) beliefs of answered images if they had no cluster."""
    code = {name: k for k, name in enumerate(clusters.annotators.names)}
    answers = [(i, code[name]) for i, image in enumerate(images) for name in image.annotators]
    objects = [
        float((1 - q_cj[:, 0]).sum() if image.known is None else sum(box is not None for box in image.known))
        for image, q_cj in zip(images, rows, strict=True)
    ]
    nothing_i = chance_of_none(
        np.array(objects),
        np.ones(len(images)),
        np.array([image.known is not None for image in images], bool),
        np.array(answers, np.int64).reshape(-1, 2),
        misses(clusters.annotators),
    )
    return np.column_stack((nothing_i, np.multiply.outer(1 - nothing_i, shares_of_kinds(clusters.annotators))))


def _expected(classes: Names, annotators: Names, method: Combiner) -> Consensus:
    """Return expectations before there is a cluster: uniform class shares, and new annotators."""
    j, k = len(classes), len(annotators)
    share_j = np.full(j, 1 / j)
    pi_jl = np.full((j, j), (1 - EXPECTED_ACCURACY) / (j - 1))
    np.fill_diagonal(pi_jl, EXPECTED_ACCURACY)
    pi_kjl = np.tile(pi_jl, (k, 1, 1))
    counts = np.zeros(k, np.int64)
    report = AnnotatorReport(annotators, classes, classes, EXPECTED_LABELS * pi_kjl, pi_kjl, counts, share_j)
    return Consensus((), classes, np.empty((0, j)), report, share_j, fit=Fit(name_of(method)))
