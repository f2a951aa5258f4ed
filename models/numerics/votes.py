"""Votes: how many labels each class has of an item, and how far they agree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp


def shares(q_nj: Floats) -> Floats:
    """(J,) mean beliefs with one even item more: no class is impossible, also where all truths are known."""
    return smoothed(q_nj.sum(axis=0), len(q_nj))


def smoothed(total_j: Floats, items: int) -> Floats:
    """(J,) the same, of the sum of the beliefs of so many items."""
    share_j: Floats = (total_j + 1 / total_j.size) / (items + 1)
    return share_j


def voted(evidence: Evidence, smoothing: float = 1.0) -> Floats:
    """(N, J) smoothed vote fractions; known truths as they are. Where iterations begin."""
    q_nj = votes(evidence.annotations)
    q_nj += smoothing / evidence.annotations.n_classes
    q_nj /= q_nj.sum(axis=1, keepdims=True)
    return clamp(q_nj, evidence)


def agreement(annotations: Annotations) -> Floats:
    """(N, J) share of an item's agreeing pairs of votes that agree on each class; zero rows where no two agree."""
    return agreeing(votes(annotations))


def agreeing(votes_nj: Floats) -> Floats:
    """(N, J) the same, of these numbers of votes.

    A vote alone has no weight: among many items of a common class stray votes for a rare one outnumber its own items.
    """
    pairs_nj = votes_nj * (votes_nj - 1)
    shares_nj: Floats = pairs_nj / np.maximum(pairs_nj.sum(axis=1, keepdims=True), 1.0)
    return shares_nj


def votes(annotations: Annotations) -> Floats:
    """(N, J) number of labels for each class."""
    return kernels.votes(annotations)


def labels_of_a_class(annotations: Annotations) -> npt.NDArray[np.int64]:
    """(N,) number of labels that are a class."""
    if annotations.n_options == annotations.n_classes:
        return annotations.labels_per_item
    of_a_class = annotations.label < annotations.n_classes
    return np.bincount(annotations.item[of_a_class], minlength=annotations.n_items)
