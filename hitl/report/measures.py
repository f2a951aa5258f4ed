"""The numbers on the page, computed from evidence and consensus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.report.contents import QuestionPage

Z95 = 1.959963984540054
"""Half-width of a central 95 % interval, in standard deviations."""

SURE = 0.9
"""Below this confidence an item counts as contested."""

AGREED = 2 / 3
"""Where a smaller share of the labels says the same, the item counts as contested however confident its label."""


@dataclass(frozen=True)
class Share:
    """`right` of `total`, with its 95 % Wilson interval (NaN where the total is 0)."""

    right: int
    total: int

    @property
    def value(self) -> float:
        """right / total."""
        return self.right / self.total if self.total else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """Low and high, in [0, 1]."""
        if not self.total:
            return float("nan"), float("nan")
        square = Z95**2 / self.total
        centre = (self.value + square / 2) / (1 + square)
        half = Z95 * ((self.value * (1 - self.value) + square / 4) / self.total) ** 0.5 / (1 + square)
        return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class Bin:
    """Items of similar confidence: their mean confidence and how many of them are right."""

    confidence: float
    share: Share


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


def reliability(confidence: Floats, right: npt.NDArray[np.bool_], most: int = 10) -> list[Bin]:
    """At most `most` bins of about equally many items (ties stay together), by rising confidence."""
    wanted = int(np.clip(len(confidence) // 20, 1, most))
    inner = np.unique(np.quantile(confidence, np.linspace(0, 1, wanted + 1)[1:-1])) if len(confidence) else []
    group = np.searchsorted(inner, confidence, side="left")
    return [
        Bin(float(confidence[group == g].mean()), Share(int(right[group == g].sum()), int((group == g).sum())))
        for g in np.unique(group)
    ]


def calibration_error(bins: list[Bin]) -> float:
    """Mean gap between confidence and accuracy over the items, in [0, 1]."""
    total = sum(b.share.total for b in bins)
    return sum(abs(b.confidence - b.share.value) * b.share.total for b in bins) / total if total else float("nan")


def pooled_confusion(annotations: Annotations, probabilities: Floats) -> Floats:
    """(J, L) how all annotators together answer for each true class; a row without any label is NaN."""
    counts_jl: Floats = np.stack(
        [
            np.bincount(annotations.label, weights=probabilities[annotations.item, j], minlength=annotations.n_options)
            for j in range(annotations.n_classes)
        ]
    ).astype(np.float64)
    total_j = counts_jl.sum(axis=1, keepdims=True)
    shares_jl: Floats = np.divide(counts_jl, total_j, out=np.full_like(counts_jl, np.nan), where=total_j > 0)
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
