"""Numbers on the page, computed from evidence and consensus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.analysis.proportions import wilson
from hitl.report.contents import QuestionPage

if TYPE_CHECKING:
    import pandas as pd

SURE = 0.9
"""Items below this confidence are contested."""

AGREED = 2 / 3
"""Items on which a smaller share of labels agree are contested, however confident the consensus."""


@dataclass(frozen=True)
class Share:
    """`right` out of `total`, with the 95 % interval (NaN if the total is 0)."""

    right: int
    total: int

    @property
    def value(self) -> float:
        """Share, right / total."""
        return self.right / self.total if self.total else float("nan")

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """Low and high end, in [0, 1]."""
        return wilson(self.right, self.total)


def held_out_truth(page: QuestionPage) -> Ints:
    """Return (N,) true class codes for measuring labels, -1 elsewhere.

    Truth in the evidence may have been used in the fit. Then every known item is certain and measuring would be
    circular, so no truth is returned.
    """
    truth = page.evidence.truth
    assert truth is not None
    if page.truth is not None:
        return np.where(page.evidence.known, -1, page.truth).astype(np.int32)
    return np.full_like(truth, -1) if truth_was_given(page) else truth


def truth_was_given(page: QuestionPage) -> bool:
    """Return True if the evidence has ground truth and the consensus is certain of all of it."""
    rows, truth = np.flatnonzero(page.evidence.known), page.evidence.truth
    assert truth is not None
    return rows.size > 0 and bool((page.consensus.probabilities[rows, truth[rows]] > 1 - 1e-9).all())


def measured(consensus: Consensus, truth: Ints) -> Share:
    """Return the share of items with ground truth whose label is right."""
    known = truth >= 0
    return Share(int((consensus.labels == truth)[known].sum()), int(known.sum()))


def calibration_error(reliable: pd.DataFrame) -> float:
    """Return the mean gap between confidence and accuracy in a reliability table, in [0, 1]; NaN if it is empty."""
    if reliable.empty:
        return float("nan")
    return float(np.average((reliable["confidence"] - reliable["accuracy"]).abs(), weights=reliable["items"]))


def pooled_confusion(annotations: Annotations, probabilities: Floats) -> Floats:
    """Return the (J, L) confusion matrix of all annotators together; a row without labels is NaN."""
    counts_jl = np.stack(
        [np.bincount(annotations.label, q_n[annotations.item], annotations.n_options) for q_n in probabilities.T]
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(counts_jl / counts_jl.sum(axis=1, keepdims=True))


def typical_confusions(confusion: Floats, shares: Floats) -> tuple[Ints, Ints, Floats]:
    """Return each annotator's most frequent wrong answer: (K,) true class, (K,) option, (K,) frequency, in [0, 1]."""
    k, j, options = confusion.shape
    wrong_kjl = confusion * shares[:, None]
    wrong_kjl[:, np.arange(j), np.arange(j)] = -1
    worst = wrong_kjl.reshape(k, -1).argmax(axis=1) if k else np.zeros(0, int)
    true, option = np.divmod(worst, options)
    return true.astype(np.int32), option.astype(np.int32), confusion[np.arange(k), true, option]


def contested(evidence: Evidence, consensus: Consensus) -> npt.NDArray[np.intp]:
    """Return items with two or more labels that are below SURE or on which less than AGREED of the labels agree.

    Sorted by confidence, least first; ties by number of labels, most first.
    """
    annotations, count_n = evidence.annotations, evidence.annotations.labels_per_item
    cell, times = np.unique(
        annotations.item.astype(np.int64) * annotations.n_options + annotations.label, return_counts=True
    )
    most_n = np.zeros(annotations.n_items, np.int64)  # count of the most frequent label of each item
    np.maximum.at(most_n, cell // annotations.n_options, times)
    doubtful_n = (consensus.confidence < SURE) | (most_n < AGREED * count_n)
    rows = np.flatnonzero((count_n >= 2) & doubtful_n)
    return np.asarray(rows[np.lexsort((-count_n[rows], consensus.confidence[rows]))])
