"""Check the confidence on items of known truth, predicted without it.

The method is fitted without the truth of the known items that check it, at most MOST_CHECKED. That fit's expectations
for all items, and its errors on these, show how many labels are wrong. A fit with the truth would count it twice.

Known items are informative about the others as far as they are like them, in their labels too. So a project with a
target asks about known items as about the others (`as_if_unknown`). If they have more labels than the others
nevertheless, they are predicted from all their labels and from as many as the others have, and the worse counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.errors import HitlError
from hitl.evidence import Evidence
from hitl.models.combiner import Applicable, ApplicableCombiner
from hitl.models.registry import combiner_of

Rows = npt.NDArray[np.int64]

PRIOR_CHECKED = 4.0
"""Errors' worth of the prior that the confidence holds, combined with known items (docs/benchmarks/stops.txt)."""

LEAST_KNOWN = 20
"""Number of items of known truth below which the confidence is not checked: fewer have too many chance errors."""

MOST_CHECKED = 100
"""Maximum number of known items that check the confidence; the fit learns from the others."""

LEAST_ERRORS = 1e-9
"""Expected errors below which no ratio is computed."""

INSTEAD = "the method default can"
"""Advice if a method cannot be checked."""


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """Result of the check on known items.

    Attributes:
        rows: (n,) codes of those that checked it, none if it could not be checked; `why`: the reason, in words.
        wrong, expected_wrong: how many of them are wrong without their truth, and how many were expected to be.
        scale: errors that are expected of the other items without these truths, for each that is expected with them.
        beliefs_nj: (n, J) beliefs about them from all their labels, without their truth.
    """

    rows: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    wrong: float = 0.0
    expected_wrong: float = 0.0
    scale: float = 1.0
    why: str = ""
    beliefs_nj: Floats = field(default_factory=lambda: np.zeros((0, 1)))


def checked(evidence: Evidence, consensus: Consensus) -> Checked:
    """Check the confidence by known items with an answer, those with most labels first."""
    labels_n = evidence.annotations.labels_per_item
    rows = _most_labelled(evidence, labels_n > 0)
    if rows.size < LEAST_KNOWN:
        return Checked(why=too_few(rows.size))
    name = consensus.fit.method
    try:
        method = combiner_of(consensus.fit)
        if not isinstance(method, Applicable):
            return Checked(why=f"the method {name} cannot judge items without their truth; {INSTEAD}")
        return _blind(method, evidence, consensus, rows)
    except HitlError as error:  # an unregistered method, or one that cannot predict without what it was given
        return Checked(why=f"the method {name or 'that was used'} cannot check it: {error}; {INSTEAD}")


def as_if_unknown(evidence: Evidence, consensus: Consensus, check: Checked) -> tuple[Evidence, Consensus]:
    """Hide the truth of the known items that are to check the confidence, so that they are asked about.

    Before there are enough to check it, beliefs about them come from matrices learned with their truth.
    """
    rows = _most_labelled(evidence, evidence.known)
    if rows.size < LEAST_KNOWN:
        return evidence, consensus
    try:
        method = combiner_of(consensus.fit)
        if not isinstance(method, Applicable):
            return evidence, consensus
        judged = method.apply(consensus, replace(evidence, truth=None))
    except HitlError:
        return evidence, consensus
    beliefs_nj = consensus.probabilities.copy()
    beliefs_nj[rows] = judged.probabilities[rows]
    beliefs_nj[check.rows] = check.beliefs_nj
    return _without_truth(evidence, rows), replace(consensus, probabilities=beliefs_nj)


def too_few(known: int) -> str:
    """Explain that so many answered items of known truth are too few to check the confidence."""
    there = f"; there {'is' if known == 1 else 'are'} {known}" if known else ""
    return f"{LEAST_KNOWN} answered items of known truth would check it (`hitl gold`){there}"


def _most_labelled(evidence: Evidence, among: npt.NDArray[np.bool_]) -> Rows:
    """Return codes of at most MOST_CHECKED known items `among` these, those with most labels."""
    rows = np.flatnonzero(evidence.known & among)
    return np.sort(rows[np.argsort(-evidence.annotations.labels_per_item[rows], kind="stable")][:MOST_CHECKED])


def _without_truth(evidence: Evidence, rows: Rows) -> Evidence:
    assert evidence.truth is not None
    truth = evidence.truth.copy()
    truth[rows] = -1
    return replace(evidence, truth=truth)


def _blind(method: ApplicableCombiner, evidence: Evidence, consensus: Consensus, rows: Rows) -> Checked:
    """Check by a fit without the truth of the known `rows`."""
    others = ~evidence.known
    blind = method.fit(_without_truth(evidence, rows))
    scale = (1 - blind.confidence[others]).sum() / max((1 - consensus.confidence[others]).sum(), LEAST_ERRORS)
    thinned = method.apply(blind, _with_labels_of_others(evidence, rows, 1 - blind.confidence[rows]))
    assert evidence.truth is not None
    errors = [
        (float((fit.labels[rows] != evidence.truth[rows]).sum()), float((1 - fit.confidence[rows]).sum()))
        for fit in (blind, thinned)
    ]
    wrong, expected_wrong = max(errors, key=lambda e: (PRIOR_CHECKED + e[0]) / (PRIOR_CHECKED + e[1]))
    return Checked(rows, wrong, expected_wrong, float(scale), "", blind.probabilities[rows])


def _with_labels_of_others(evidence: Evidence, rows: Rows, doubt_n: Floats) -> Evidence:
    """Return the evidence without truth, these known items with no more labels than others of the same rank.

    Known items are ranked by number of labels, then by `doubt_n`, because others were asked about again where
    annotators disagreed. The same labels are left out in every run, so a target is not reached by a lucky draw.
    """
    annotations, labels_n = evidence.annotations, evidence.annotations.labels_per_item
    others = np.sort(labels_n[~evidence.known & (labels_n > 0)])
    most_n = labels_n.copy()
    if others.size:
        rank = np.empty(rows.size)
        rank[np.lexsort((doubt_n, labels_n[rows]))] = (np.arange(rows.size) + 0.5) / rows.size
        most_n[rows] = others[(rank * others.size).astype(np.int64)]
    order = np.lexsort((_lots(annotations.item.astype(np.int64) << 32 | annotations.annotator), annotations.item))
    place = np.empty(len(annotations), dtype=np.int64)
    place[order] = np.arange(len(annotations)) - annotations.item_start[annotations.item[order]]
    return replace(evidence, annotations=annotations.select(place < most_n[annotations.item]), truth=None)


def _lots(code_m: Rows) -> npt.NDArray[np.uint64]:
    """Return pseudo-random numbers, one for each code (SplitMix64)."""
    z = code_m.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
