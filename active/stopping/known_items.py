"""Check the confidence on items with ground truth, with labels that are predicted without this truth.

The method is fitted again without the truth of the known items that check it, at most MOST_CHECKED. The errors that
this fit makes on them show how many labels are wrong. A fit with their truth would use it twice.

Known items represent the other items only as far as they are like them, also in their number of labels. So a project
with a target accuracy asks about known items as about the others (`as_if_unknown`). If they still have more labels than
the others, they are judged by as many as the others have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hitl.active.guarantees.intervals import share_of
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.errors import HitlError
from hitl.evidence import Evidence
from hitl.models.analysis.copied_accounts import count_copies_once
from hitl.models.combiner import Applicable, ApplicableCombiner
from hitl.models.registry import combiner_of

Rows = npt.NDArray[np.int64]

LEAST_KNOWN = 20
"""Minimum number of known items to check the confidence. With fewer, the number of errors is mostly chance."""

MOST_CHECKED = 100
"""Maximum number of known items that check the confidence. The fit learns from the truth of the others."""

INSTEAD = "Use the method `default`."
"""Advice if a method cannot be checked."""


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """Result of the check on known items.

    Attributes:
        rows: (n,) codes of the items that were used; empty if the confidence could not be checked.
        wrong, expected_wrong, low, high: as in `Expected`.
        why: why the confidence could not be checked; empty if it was checked.
        beliefs_nj: (n, J) beliefs about these items from all their labels, without their truth.
    """

    rows: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    wrong: float = 0.0
    expected_wrong: float = 0.0
    low: float = 0.0
    high: float = 1.0
    why: str = ""
    beliefs_nj: Floats = field(default_factory=lambda: np.zeros((0, 1)))


def checked(evidence: Evidence, consensus: Consensus) -> Checked:
    """Check the confidence on known items that have labels, those with the most labels first."""
    labels_n = evidence.annotations.labels_per_item
    rows = _most_labelled(evidence, labels_n > 0)
    if rows.size < LEAST_KNOWN:
        return Checked(why=too_few(rows.size))
    name = consensus.fit.method
    try:
        method = combiner_of(consensus.fit)
        if not isinstance(method, Applicable):
            return Checked(why=f"The method {name} cannot predict items without their ground truth. {INSTEAD}")
        return _blind(method, count_copies_once(evidence), consensus, rows)
    except HitlError as error:  # an unregistered method, or one that cannot predict without what it was given
        return Checked(why=f"The method {name or 'that was used'} cannot check it: {error}. {INSTEAD}")


def as_if_unknown(evidence: Evidence, consensus: Consensus, check: Checked) -> tuple[Evidence, Consensus]:
    """Hide the truth of the known items that check the confidence or could check it, so that they are asked about.

    Beliefs about those that are not in `check` come from matrices learned with their truth. Return the arguments
    unchanged if there are fewer than LEAST_KNOWN known items, or the method cannot predict without their truth.
    """
    rows = _most_labelled(evidence, evidence.known)
    if rows.size < LEAST_KNOWN:
        return evidence, consensus
    try:
        method = combiner_of(consensus.fit)
        if not isinstance(method, Applicable):
            return evidence, consensus
        judged = method.apply(consensus, replace(count_copies_once(evidence), truth=None))
    except HitlError:
        return evidence, consensus
    beliefs_nj = consensus.probabilities.copy()
    beliefs_nj[rows] = judged.probabilities[rows]
    beliefs_nj[check.rows] = check.beliefs_nj
    return _without_truth(evidence, rows), replace(consensus, probabilities=beliefs_nj)


def too_few(known: int) -> str:
    """Explain that `known` answered items with ground truth are too few to check the confidence."""
    have = f", and {known} of yours are answered" if known else ""
    return f"Checking it takes {LEAST_KNOWN} answered gold items (`hitl gold truth.csv`: item, label){have}."


def _most_labelled(evidence: Evidence, among: npt.NDArray[np.bool_]) -> Rows:
    """Return codes of at most MOST_CHECKED known items `among` these, those with the most labels."""
    rows = np.flatnonzero(evidence.known & among)
    return np.sort(rows[np.argsort(-evidence.annotations.labels_per_item[rows], kind="stable")][:MOST_CHECKED])


def _without_truth(evidence: Evidence, rows: Rows) -> Evidence:
    assert evidence.truth is not None
    truth = evidence.truth.copy()
    truth[rows] = -1
    return replace(evidence, truth=truth)


def _blind(method: ApplicableCombiner, evidence: Evidence, consensus: Consensus, rows: Rows) -> Checked:
    """Check the confidence by a fit without the truth of the known `rows`."""
    others, truth = ~evidence.known, evidence.truth
    assert truth is not None
    blind = method.fit(_without_truth(evidence, rows))
    thinned = method.apply(blind, _with_labels_of_others(evidence, rows, 1 - blind.confidence[rows]))
    right_n, sure_n = thinned.codes[rows] == truth[rows], thinned.confidence
    rest = float(sure_n[others].mean()) if others.any() else 1.0
    share = share_of(right_n.astype(float), sure_n[rows], rest, math.inf)
    known = 1.0 - float(others.mean())  # their labels are right
    low, high = (known + (1.0 - known) * end for end in (share.low, share.high))
    wrong, expected_wrong = float((~right_n).sum()), float((1 - sure_n[rows]).sum())
    return Checked(rows, wrong, expected_wrong, low, high, "", blind.probabilities[rows])


def _with_labels_of_others(evidence: Evidence, rows: Rows, doubt_n: Floats) -> Evidence:
    """Return the evidence without truth, and without labels that known items have more than others of the same rank.

    Known items are ranked by number of labels, then by `doubt_n` (1 - confidence), because other items have more labels
    where annotators disagreed. The same labels are left out in every run, so a target is not reached by a lucky draw.
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
