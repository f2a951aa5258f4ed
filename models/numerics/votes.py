"""Votes per item and class, agreement between votes, and agreement between beliefs and annotators."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.compiled import compiled


def shares(q_nj: Floats) -> Floats:
    """Return (J,) mean beliefs after adding one item with a uniform belief.

    No class becomes impossible, even if all truths are known.
    """
    return smoothed(q_nj.sum(axis=0), len(q_nj))


def smoothed(total_j: Floats, items: int) -> Floats:
    """Return the same as `shares`, from the sum (J,) of the beliefs of `items` items."""
    return np.asarray((total_j + 1 / total_j.size) / (items + 1))


def voted(evidence: Evidence, smoothing: float = 1.0) -> Floats:
    """Return (N, J) smoothed vote fractions, from which iterations start. Ground truth is one-hot."""
    q_nj = kernels.votes(evidence.annotations)
    q_nj += smoothing / evidence.annotations.n_classes
    q_nj /= q_nj.sum(axis=1, keepdims=True)
    return clamp(q_nj, evidence)


def agreement(annotations: Annotations) -> Floats:
    """Return (N, J) fractions of an item's agreeing pairs of votes that are for each class; 0 if no two votes agree.

    So a single vote for a class has no weight. Otherwise stray votes for a rare class, on many items of a common class,
    would outnumber the votes on its own items.
    """
    votes_nj = kernels.votes(annotations)
    pairs_nj = votes_nj * (votes_nj - 1)
    return np.asarray(pairs_nj / np.maximum(pairs_nj.sum(axis=1, keepdims=True), 1.0))


def labels_of_a_class(annotations: Annotations) -> npt.NDArray[np.int64]:
    """Return (N,) number of labels that name a class."""
    if annotations.n_options == annotations.n_classes:
        return annotations.labels_per_item
    of_a_class = annotations.label < annotations.n_classes
    return np.bincount(annotations.item[of_a_class], minlength=annotations.n_items)


def answered(annotations: Annotations, q_nj: Floats) -> tuple[Floats, Floats]:
    """Return (K, 3) expected numbers of right and of wrong answers and their variance, and (K,) the sum of doubts.

    Beliefs (N, J) give the expectations. An answer that is no class ("unsure") is neither right nor wrong. The doubt of
    a label is 1 - max_j q_nj of its item.
    """
    answers_k3, doubt_k = np.zeros((annotations.n_annotators, 3)), np.zeros(annotations.n_annotators)
    _answered(
        annotations.item, annotations.annotator, annotations.label, np.ascontiguousarray(q_nj), answers_k3, doubt_k
    )
    return answers_k3, doubt_k


@compiled
def _answered(item: Any, annotator: Any, label: Any, q: Any, answers: Any, doubt: Any) -> None:
    classes, last, unsure = q.shape[1], -1, 0.0
    for m in range(item.shape[0]):
        n, k = item[m], annotator[m]
        if n != last:
            last, unsure = n, 1.0 - q[n].max()
        doubt[k] += unsure
        if label[m] < classes:
            chance = q[n, label[m]]
            answers[k, 0] += chance
            answers[k, 1] += 1.0  # the number of all answers; right ones are subtracted at the end
            answers[k, 2] += chance * (1.0 - chance)
    for k in range(answers.shape[0]):
        answers[k, 1] -= answers[k, 0]
