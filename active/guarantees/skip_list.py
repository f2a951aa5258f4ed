"""Items that need no annotator: those whose label a model may give, by the promise of `acceptance`.

Items with ground truth are the audit. So that the promise holds, their truth has no part in the model's confidence:
models are calibrated and pooled without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hitl.active.guarantees.acceptance import Acceptance
from hitl.annotations import Ints
from hitl.consensus import Consensus
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.formatting import counted
from hitl.models.analysis.complementarity import by_models_alone, most_probable

if TYPE_CHECKING:
    import pandas as pd

ERROR, CONFIDENCE = 0.02, 0.95
"""Default promise: share of the items that may be skipped with a wrong label, and how sure that is."""

RUNS = 100
"""Number of lists that are replayed."""


@dataclass(frozen=True, slots=True)
class SkipList:
    """Items that need no annotator.

    Attributes:
        error: greatest share of the predicted items that may be on the list with a wrong label, in (0, 1).
        confidence: chance, in (0, 1), with which that holds.
        predicted: number of items with a model's prediction.
        gold: number of those with ground truth.
        items: number of items that need no annotator; `share` of the predicted ones, in [0, 1].
        gold_needed: number of gold items, drawn at random, that it takes about for any item to be on the list. If there
            are as many, the list may still be empty.
        wrong: number of gold items on the list that the models have wrong.
        bound: number of other items on it that they have wrong at most, with that confidence.
        labels: item, label of the model and its confidence, surest first; the labels of gold items are their truth.
    """

    error: float
    confidence: float
    predicted: int
    gold: int
    items: int
    share: float
    gold_needed: int
    wrong: int
    bound: int
    labels: pd.DataFrame = field(repr=False)

    def figures(self) -> dict[str, Any]:
        """Return all but the labels, by name."""
        figures = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "labels"}
        return figures | {"statement": self.statement}

    @property
    def statement(self) -> str:
        """Answer to "Which items need no annotator?": what is promised, or why there are none."""
        right = f"{100 * (1 - self.error):g} % of all {counted(self.predicted, 'label')}"
        sure = f"({100 * self.confidence:g} % confidence)"
        if not self.predicted:
            return "None: no item has a prediction."
        if self.gold < self.gold_needed:
            return (
                f"Can't tell yet: to be sure that at least {right} are right {sure}, it takes about "
                f"{counted(self.gold_needed, 'gold item')} drawn at random from all items. There are {self.gold:,}."
            )
        if not self.items:
            return f"None: where the models are surest, they are too often wrong for {right} to be right {sure}."
        share, gold = f"{100 * self.share:.1f} %", counted(self.gold, "gold item")
        return (
            f"{self.items:,} of {counted(self.predicted, 'item')} ({share}). At most {self.bound:,} of the models' "
            f"labels on them are wrong {sure}. At least {right} are right if annotators label the other items "
            f"correctly. This holds if the {gold} were drawn at random from all items, if their number was decided "
            "before you looked, and if no model has learned from them."
        )


def make_skip_list(
    evidence: Evidence,
    consensus: Consensus,
    *,
    truth: Ints | None = None,
    error: float = ERROR,
    confidence: float = CONFIDENCE,
) -> SkipList:
    """List as many items as a model may label by the promise, those first of which the models are surest.

    Args:
        evidence: annotations and models' probabilities of N items, and their ground truth.
        consensus: the evidence combined. Only used if the evidence has no ground truth.
        truth: (N,) held-out class codes, -1 where unknown, besides the truth in the evidence.
        error, confidence: the promise, both in (0, 1).
    """
    import pandas as pd

    q_nj = by_models_alone(evidence, consensus)
    assert evidence.truth is not None
    known_n = evidence.truth if truth is None else np.where(evidence.known, evidence.truth, truth)
    code_n = most_probable(q_nj)
    rows = np.flatnonzero(evidence.predicted)
    certain, known = q_nj[rows].max(axis=1), known_n[rows]
    acceptance = Acceptance(certain, error, confidence)
    gold = np.flatnonzero(known >= 0)
    accepted = acceptance.accept(gold, known[gold] != code_n[rows][gold])
    label = np.where(known >= 0, known, code_n[rows])[accepted.items]
    classes, items = (np.array(names, dtype=object) for names in (consensus.classes, consensus.items))
    missing = (accepted.required - accepted.audited) * len(rows) / max(len(acceptance.region), 1)
    return SkipList(
        error=error,
        confidence=confidence,
        predicted=len(rows),
        gold=len(gold),
        items=len(accepted.items),
        share=len(accepted.items) / max(len(rows), 1),
        gold_needed=len(gold) + math.ceil(missing),
        wrong=accepted.found,
        bound=accepted.bound,
        labels=pd.DataFrame(
            {
                "item": items[rows[accepted.items]],
                "label": classes[label],
                "confidence": certain[accepted.items],
            }
        ),
    )


@dataclass(frozen=True, slots=True)
class ReplayedSkips:
    """Lists made again from other gold items, on items whose truth is known.

    Attributes:
        labels: number of items with a prediction and known truth; only these are listed.
        gold: number of them that were drawn as gold items for each list.
        error, confidence: the promise.
        items: smallest, median and largest number of items on a list.
        runs, false: number of lists, and of those with more wrong labels left than promised.
    """

    labels: int
    gold: int
    error: float
    confidence: float
    items: tuple[int, int, int]
    runs: int
    false: int

    def __str__(self) -> str:
        least, middle, most = self.items
        return (
            f"Replayed with {counted(self.gold, 'gold item')} of {self.labels:,}, drawn {self.runs} times: {middle:,} "
            f"items need no annotator (median; {least:,} to {most:,}). {self.false} of {self.runs} lists had more "
            f"wrong labels left than {100 * self.error:g} % of all; {100 * (1 - self.confidence):.3g} % may"
        )


def replayed(
    evidence: Evidence, consensus: Consensus, gold: int, *, error: float = ERROR, confidence: float = CONFIDENCE
) -> ReplayedSkips:
    """Make `RUNS` lists from `gold` items each, drawn from those with ground truth, and count false promises.

    Raises BadSettings unless more than `gold` items have a prediction and ground truth.
    """
    q_nj = by_models_alone(evidence, consensus)
    rows = np.flatnonzero(evidence.predicted & evidence.known)
    if gold >= len(rows):
        raise BadSettings(
            f"{counted(gold, 'gold item')}: expected fewer than the {len(rows):,} predicted items of known truth"
        )
    assert evidence.truth is not None
    wrong = most_probable(q_nj)[rows] != evidence.truth[rows]
    sizes, false = [], 0
    for run in range(RUNS):
        acceptance = Acceptance(q_nj[rows].max(axis=1), error, confidence, f"replay {run}")
        drawn = np.random.default_rng(run).choice(len(rows), gold, replace=False)
        accepted = acceptance.accept(drawn, wrong[drawn])
        left = int(wrong[accepted.items].sum()) - accepted.found
        sizes.append(len(accepted.items))
        false += left > acceptance.allowed
    least, middle, most = min(sizes), int(np.median(sizes)), max(sizes)
    return ReplayedSkips(len(rows), gold, error, confidence, (least, middle, most), RUNS, false)
