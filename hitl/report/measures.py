"""The numbers on the page, computed from evidence and consensus."""

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
"""Below this confidence an item counts as contested."""

AGREED = 2 / 3
"""Where a smaller share of the labels says the same, the item counts as contested however confident its label."""


@dataclass(frozen=True)
class Share:
    """`right` of `total`, with its 95 % interval (NaN where the total is 0)."""

    right: int
    total: int

    @property
    def value(self) -> float:
        """right / total."""
        return self.right / self.total if self.total else float("nan")

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """Low and high, in [0, 1]."""
        return wilson(self.right, self.total)


def held_out_truth(page: QuestionPage) -> Ints:
    """(N,) true class codes the labels can be measured against, -1 elsewhere.

    A truth given in the evidence may have been used in the fit. Then every known item is certain of it, and
    measuring would be circular: nothing is left.
    """
    known = page.evidence.truth
    assert known is not None
    if page.truth is not None:
        return np.where(page.evidence.known, -1, page.truth).astype(np.int32)
    return np.full_like(known, -1) if truth_was_given(page) else known


def truth_was_given(page: QuestionPage) -> bool:
    """Whether the evidence knows some labels and the consensus is certain of every one of them."""
    rows, truth = np.flatnonzero(page.evidence.known), page.evidence.truth
    assert truth is not None
    return rows.size > 0 and bool((page.consensus.probabilities[rows, truth[rows]] > 1 - 1e-9).all())


def measured(consensus: Consensus, truth: Ints) -> Share:
    """Share of the items of known truth whose label is right."""
    known = truth >= 0
    return Share(int((consensus.labels == truth)[known].sum()), int(known.sum()))


def calibration_error(reliable: pd.DataFrame) -> float:
    """Mean gap between confidence and accuracy over the items of a reliability table, in [0, 1]; NaN without any."""
    if reliable.empty:
        return float("nan")
    gap = (reliable["confidence"] - reliable["accuracy"]).abs()
    return float(np.average(gap, weights=reliable["items"]))


def pooled_confusion(annotations: Annotations, probabilities: Floats) -> Floats:
    """(J, L) how all annotators together answer for each true class; a row without any label is NaN."""
    counts_jl = np.stack(
        [np.bincount(annotations.label, q_n[annotations.item], annotations.n_options) for q_n in probabilities.T]
    )
    with np.errstate(invalid="ignore"):
        shares_jl: Floats = counts_jl / counts_jl.sum(axis=1, keepdims=True)
    return shares_jl


def typical_confusions(confusion: Floats, shares: Floats) -> tuple[Ints, Ints, Floats]:
    """Each annotator's most frequent wrong answer: (K,) true class, (K,) option said, (K,) how often, in [0, 1]."""
    k, j, options = confusion.shape
    wrong_kjl = confusion * shares[:, None]
    wrong_kjl[:, np.arange(j), np.arange(j)] = -1
    worst = wrong_kjl.reshape(k, -1).argmax(axis=1) if k else np.zeros(0, int)
    true, said = np.divmod(worst, options)
    return true.astype(np.int32), said.astype(np.int32), confusion[np.arange(k), true, said]


def contested(evidence: Evidence, consensus: Consensus) -> npt.NDArray[np.intp]:
    """Items with two labels or more that are below SURE, or where less than AGREED of the labels say the same.

    Least confident first; among equals most labels first.
    """
    many = evidence.annotations.labels_per_item
    doubtful = (consensus.confidence < SURE) | (_most_frequent(evidence.annotations) < AGREED * many)
    rows = np.flatnonzero((many >= 2) & doubtful)
    order = np.lexsort((-many[rows], consensus.confidence[rows]))
    return np.asarray(rows[order])


def _most_frequent(annotations: Annotations) -> npt.NDArray[np.int64]:
    """(N,) how many labels of each item are its most frequent one."""
    cell, times = np.unique(
        annotations.item.astype(np.int64) * annotations.n_options + annotations.label, return_counts=True
    )
    most = np.zeros(annotations.n_items, np.int64)
    np.maximum.at(most, cell // annotations.n_options, times)
    return most
