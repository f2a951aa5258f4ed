"""Compute the numbers and table rows of the page from evidence and consensus. The template only lays them out."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints, Name
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.formatting import percent
from hitl.metrics import expected_accuracy
from hitl.models.analysis.proportions import wilson
from hitl.models.combiner import has_basis
from hitl.report.contents import QuestionPage

if TYPE_CHECKING:
    import pandas as pd

SURE = 0.9
"""Confidence below which items are contested."""

AGREED = 2 / 3
"""Share of labels that agree below which items are contested, however confident the consensus."""

NAMES_SHOWN = 12
"""Maximum number of annotators listed per answer to a contested item."""


@dataclass(frozen=True)
class Accuracy:
    """Share of right labels, in [0, 1], with its 95 % interval (NaN if nothing checks it) and its basis in words."""

    value: float
    low: float
    high: float
    basis: str

    @property
    def account(self) -> str:
        """Interval, if there is one, and basis, in words."""
        return (
            self.basis
            if self.low != self.low
            else f"95 % interval {percent(self.low)} to {percent(self.high)}; {self.basis}"
        )


def accuracy_of(page: QuestionPage, truth: Ints) -> Accuracy:
    """Return the accuracy measured on `truth` (-1 if unknown), or else the believed accuracy over all items."""
    known = truth >= 0
    right, total = int((page.consensus.codes == truth)[known].sum()), int(known.sum())
    if total:
        low, high = (float(end) for end in wilson(right, total))
        return Accuracy(right / total, low, high, f"measured: {right:,} of {total:,} gold items right")
    if not page.evidence.annotations.n_items:
        return Accuracy(float("nan"), float("nan"), float("nan"), "there is no item yet")
    expected = expected_accuracy((page.evidence, page.consensus))
    if not expected.checked:
        return Accuracy(expected.accuracy, float("nan"), float("nan"), "believed, not checked: too few gold items")
    basis = f"believed; the interval is that of {expected.checked:,} gold items, if they were drawn at random"
    return Accuracy(expected.accuracy, expected.low, expected.high, basis)


def held_out_truth(page: QuestionPage) -> Ints:
    """Return (N,) true class codes on which accuracy can be measured, -1 elsewhere.

    If the fit used the truth in the evidence, every known item is certain, and measuring would be circular. Then no
    truth is returned.
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
    """Return each annotator's most frequent error: (K,) true class, (K,) answer, (K,) probability given the class."""
    k, j, options = confusion.shape
    wrong_kjl = confusion * shares[:, None]
    wrong_kjl[:, np.arange(j), np.arange(j)] = -1
    worst = wrong_kjl.reshape(k, -1).argmax(axis=1) if k else np.zeros(0, int)
    true, option = np.divmod(worst, options)
    return true.astype(np.int32), option.astype(np.int32), confusion[np.arange(k), true, option]


def contested(evidence: Evidence, consensus: Consensus) -> npt.NDArray[np.intp]:
    """Return items without ground truth, with two labels or more, whose confidence or agreement is low (SURE, AGREED).

    They are sorted by confidence, lowest first; ties by number of labels, most first.
    """
    annotations, count_n = evidence.annotations, evidence.annotations.labels_per_item
    cell, times = np.unique(
        annotations.item.astype(np.int64) * annotations.n_options + annotations.label, return_counts=True
    )
    most_n = np.zeros(annotations.n_items, np.int64)  # count of the most frequent label of each item
    np.maximum.at(most_n, cell // annotations.n_options, times)
    doubtful_n = (consensus.confidence < SURE) | (most_n < AGREED * count_n)
    rows = np.flatnonzero((count_n >= 2) & doubtful_n & ~evidence.known)
    return np.asarray(rows[np.lexsort((-count_n[rows], consensus.confidence[rows]))])


# -- rows of tables ----------------------------------------------------------------------------------------


def annotator_rows(page: QuestionPage, most: int) -> list[dict[Hashable, Any]]:
    """Return the `most` annotators with most labels, in that order.

    The columns are those of `AnnotatorReport.frame`, plus `code`, the typical wrong answer in words (`confusion`), and
    how `often` it occurs.
    """
    report = page.consensus.annotators
    true, option, often = typical_confusions(report.confusion, report.shares)
    order = np.argsort(-report.labels, kind="stable")[:most]
    table = report.frame().assign(
        code=np.arange(len(report.names)),
        often=np.where(report.labels > 0, often, 0.0),
    )
    rows = table.iloc[order].to_dict("records")
    for row in rows:
        answer, truth = report.options[option[row["code"]]], report.classes[true[row["code"]]]
        often_enough = row["often"] >= 0.005
        typical = f"says {answer} for {truth}: {row['often'] * 100:.0f}\u00a0%" if often_enough else "hardly any"
        row["confusion"] = typical if row["labels"] else "no answers yet"
    return rows


def contested_rows(page: QuestionPage, contested: npt.NDArray[np.intp], truth: Ints) -> list[dict[str, Any]]:
    """Return the `votes`, `label`, `confidence` and `truth` (None if unknown) of each contested item.

    A vote has the code (`option`) and `name` of an answer, its `share` of the labels, and the `annotators` who gave it,
    most accurate first.
    """
    consensus, annotations, report = page.consensus, page.evidence.annotations, page.consensus.annotators
    skill = dict(zip(report.names, report.accuracy.tolist(), strict=True))
    table = []
    for n in contested.tolist():
        rows = slice(annotations.item_start[n], annotations.item_start[n + 1])
        labels, votes = annotations.label[rows], []
        for option in np.unique(labels).tolist():
            names = [annotations.annotators[k] for k in annotations.annotator[rows][labels == option]]
            names.sort(key=lambda name: -skill.get(name, 0.0))
            vote = {"option": option, "name": annotations.options[option], "share": len(names) / len(labels)}
            votes.append(vote | {"annotators": names})
        label, known = consensus.classes[consensus.codes[n]], consensus.classes[truth[n]] if truth[n] >= 0 else None
        row = {"item": consensus.items[n], "votes": votes, "label": label, "truth": known}
        table.append(row | {"confidence": float(consensus.confidence[n])})
    return table


def model_rows(page: QuestionPage) -> list[dict[str, Any]]:
    """Return one row per model in the evidence or the consensus.

    It has the number of items that the model predicts, its agreement with the consensus, and its temperature, also in
    words.
    """
    rows = []
    for name in dict.fromkeys((*page.evidence.probabilities, *page.consensus.temperatures)):
        values = page.evidence.probabilities.get(name, np.full((len(page.consensus.items), 1), np.nan))
        predicted = ~np.isnan(values[:, 0])
        same = values[predicted].argmax(axis=1) == page.consensus.codes[predicted]
        temperature = page.consensus.temperatures.get(name, float("nan"))
        verdict = "not fitted" if np.isnan(temperature) else "about as sure as it should be"
        if temperature > 1.1:
            verdict = "over-confident: counts for less than it claims"
        if temperature < 0.9:
            verdict = "under-confident: counts for more than it claims"
        row = {"name": name, "items": len(same), "agreement": same.mean() if len(same) else float("nan")}
        rows.append(row | {"temperature": temperature, "verdict": verdict})
    return rows


def class_rows(page: QuestionPage, most: int) -> list[tuple[Name, int]]:
    """Return (label, number of items) of the `most` most frequent labels, most frequent first."""
    based = has_basis(page.evidence, page.consensus)
    count = np.bincount(page.consensus.codes[based], minlength=len(page.consensus.classes))
    order = np.argsort(-count, kind="stable")[:most]
    return [(page.consensus.classes[j], int(count[j])) for j in order]
