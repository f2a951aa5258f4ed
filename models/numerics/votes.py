"""Votes per item and class, and how far they agree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp


def shares(q_nj: Floats) -> Floats:
    """Return (J,) mean beliefs after adding one item with a uniform belief.

    No class becomes impossible, even if all truths are known.
    """
    return smoothed(q_nj.sum(axis=0), len(q_nj))


def smoothed(total_j: Floats, items: int) -> Floats:
    """Return `shares` from the sum of the beliefs of `items` items."""
    share_j: Floats = (total_j + 1 / total_j.size) / (items + 1)
    return share_j


def voted(evidence: Evidence, smoothing: float = 1.0) -> Floats:
    """Return (N, J) smoothed vote fractions, the start of iterations. Known truths stay one-hot."""
    q_nj = votes(evidence.annotations)
    q_nj += smoothing / evidence.annotations.n_classes
    q_nj /= q_nj.sum(axis=1, keepdims=True)
    return clamp(q_nj, evidence)


def agreement(annotations: Annotations) -> Floats:
    """Return (N, J) share of an item's agreeing vote pairs that agree on each class; zero rows where no two votes
    agree."""
    return agreeing(votes(annotations))


def agreeing(votes_nj: Floats) -> Floats:
    """Return the shares of `agreement` from numbers of votes (N, J).

    A single vote has no weight. Otherwise, among many items of a common class, stray votes for a rare class would
    outnumber its own items.
    """
    pairs_nj = votes_nj * (votes_nj - 1)
    shares_nj: Floats = pairs_nj / np.maximum(pairs_nj.sum(axis=1, keepdims=True), 1.0)
    return shares_nj


def votes(annotations: Annotations) -> Floats:
    """Return (N, J) number of labels for each class."""
    return kernels.votes(annotations)


def labels_of_a_class(annotations: Annotations) -> npt.NDArray[np.int64]:
    """Return (N,) number of labels that name a class."""
    if annotations.n_options == annotations.n_classes:
        return annotations.labels_per_item
    of_a_class = annotations.label < annotations.n_classes
    return np.bincount(annotations.item[of_a_class], minlength=annotations.n_items)
