"""What the confidence is worth: items of known truth, judged as if nobody knew it.

Known items are split into two halves by chance. The method is fitted without the truth of one half, and judges it with
as many labels as the other items have; then the same with the other. A fit that knew their truth would flatter itself:
its matrices are learned from those very labels. On public crowds with more than two labels an item, of 1.19 errors for
each that is expected it would find .72 (docs/decisions.md, 2026-11-23).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hitl.consensus import Consensus
from hitl.errors import HitlError
from hitl.evidence import Evidence
from hitl.models.combiner import Applicable, ApplicableCombiner
from hitl.models.registry import combiner_of

Rows = npt.NDArray[np.int64]

LEAST_KNOWN = 20
"""Items of known truth below which the confidence is not checked: of fewer the chance errors are too many."""

HALVES = 2

INSTEAD = "the method default can"
"""What to use where a method cannot be checked."""


def checked(evidence: Evidence, consensus: Consensus) -> tuple[int, float, float, str]:
    """Known items with an answer, how many are wrong without their truth, how many were expected to be; or why not."""
    rows = np.flatnonzero(evidence.known & (evidence.annotations.labels_per_item > 0))
    if rows.size < LEAST_KNOWN:
        return 0, 0.0, 0.0, too_few(rows.size)
    name = consensus.fit.method
    try:
        method = combiner_of(consensus.fit)
        if not isinstance(method, Applicable):
            return 0, 0.0, 0.0, f"the method {name} cannot judge items without their truth; {INSTEAD}"
        wrong, foreseen = _blind(method, evidence, consensus, rows)
    except HitlError as error:  # a method without a name here, or one that judges nothing without what it was given
        return 0, 0.0, 0.0, f"the method {name or 'that was used'} cannot check it: {error}; {INSTEAD}"
    return rows.size, wrong, foreseen, ""


def too_few(known: int) -> str:
    """In words: that so many answered items of known truth are too few to check the confidence."""
    there = f"; there {'is' if known == 1 else 'are'} {known}" if known else ""
    return f"{LEAST_KNOWN} answered items of known truth would check it (`hitl gold`){there}"


def _blind(method: ApplicableCombiner, evidence: Evidence, consensus: Consensus, rows: Rows) -> tuple[float, float]:
    """How many of the known `rows` are wrong, and how many were expected to be, by fits without their truth."""
    assert evidence.truth is not None
    rng = np.random.default_rng(0)
    judged = _with_labels_of_others(evidence, rng)
    wrong = foreseen = 0.0
    for half in np.array_split(rng.permutation(rows), HALVES):
        truth = evidence.truth.copy()
        truth[half] = -1
        blind = method.apply(method.fit(replace(evidence, truth=truth), start=consensus), judged)
        wrong += float((blind.labels[half] != evidence.truth[half]).sum())
        foreseen += float((1 - blind.confidence[half]).sum())
    return wrong, foreseen


def _with_labels_of_others(evidence: Evidence, rng: np.random.Generator) -> Evidence:
    """The evidence without truth, its known items with as many labels as the others have in the mean, drawn at random.

    Items of known truth are often asked about again and again, and are then right more often than others. A part of a
    label is had by chance, item by item: with 1.05 labels an item, one known item in twenty has two.
    """
    annotations, labels_n = evidence.annotations, evidence.annotations.labels_per_item
    others = labels_n[~evidence.known & (labels_n > 0)]
    mean = float(others.mean()) if others.size else float(labels_n.max(initial=0))
    turn = rng.permutation(len(annotations))
    most_n = int(mean) + (rng.random(annotations.n_items) < mean % 1)
    order = np.lexsort((turn, annotations.item))
    place = np.empty(len(annotations), dtype=np.int64)
    place[order] = np.arange(len(annotations)) - annotations.item_start[annotations.item[order]]
    kept = ~evidence.known[annotations.item] | (place < most_n[annotations.item])
    return replace(evidence, annotations=annotations.select(kept), truth=None)
