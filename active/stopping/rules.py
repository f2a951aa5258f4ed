"""Rules that decide when an item and the project are done.

An item is done when its truth is known, when its confidence reaches the target (and it has `min_labels` labels), when
it has `max_labels` labels, when its label is accepted without annotators (`active.guarantees.skip_list`), or when most
annotators did not see the question (`Evidence.hidden`).

A project is done when every item is done, when the labels are believed to reach the target accuracy a, when it has as
many answers as it may have, or when no answer is worth its cost any more. An item of unknown truth is wrong with
probability 1 - confidence, so the mean of these probabilities is the believed error e. The target counts as reached if

    e <= MARGIN (1 - a)    and of the known items that check the belief (`known_items`), at most 1 - a are wrong

Such a stop is a belief and no promise: annotators who err together are believed too. docs/benchmarks/stops.txt has how
often it is wrong. A certificate (`active.guarantees`) is what proves the accuracy, by answers of an auditor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.active.stopping.known_items import Checked, checked
from hitl.consensus import Consensus
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.formatting import percent

Judged = tuple[Evidence, Consensus]

OPEN, HIDDEN, KNOWN, CONFIDENT, LIMIT, ACCEPTED = range(6)
"""States of a question about an item. If an item is done in several questions, the last of their reasons is given."""

REASONS = {
    HIDDEN: "most annotators did not see the question",
    KNOWN: "ground truth is known",
    CONFIDENT: "confidence reached the target",
    LIMIT: "label limit reached",
    ACCEPTED: "accepted without annotators",
}

TINY = 1e-12
"""Rounding that a comparison with a target allows for."""

MARGIN = 0.5
"""Share of the permitted errors that may be believed at a stop; the others are for what the belief does not see.

A certificate of 95 % takes some 220 audits where half of the permitted errors are there, and many more where all are.
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """Believed accuracy of labels, and its check by known items.

    Attributes:
        accuracy: believed share of items whose label is right, in [0, 1].
        checked: number of items with ground truth that check the belief; 0: nothing checks it.
        wrong, expected_wrong: number of these items that a fit without their truth gets wrong, and expects to.
        low, high: ends of the 95 % interval of the accuracy that follows if these items were drawn at random.
        unchecked: why nothing checks the belief, and what would; empty if it was checked.
    """

    accuracy: float
    checked: int = 0
    wrong: float = 0.0
    expected_wrong: float = 0.0
    low: float = 0.0
    high: float = 1.0
    unchecked: str = ""

    @property
    def overconfident(self) -> bool:
        """True if known items are wrong more often than chance explains (two standard deviations above)."""
        return self.checked > 0 and bool(self.wrong > self.expected_wrong + 2 * np.sqrt(max(self.expected_wrong, 1.0)))

    def permitted(self, target: float) -> float:
        """Return the believed error, in [0, 1], at which a project with this target accuracy stops.

        Where more known items are wrong than the target permits, the belief has to fall as far as they do.
        """
        error = 1.0 - target
        excess = self.wrong / max(self.checked * error, TINY)
        return MARGIN * error if excess <= 1 + TINY else min(MARGIN * error, (1.0 - self.accuracy) / excess)

    def __str__(self) -> str:
        return percent(self.accuracy)


def item_states(evidence: Evidence, consensus: Consensus, budget: Budget) -> npt.NDArray[np.int8]:
    """Return (N,) OPEN, or why the item is done: CONFIDENT (with at least `min_labels` labels), a key of `REASONS`."""
    labels = evidence.annotations.labels_per_item
    state = np.full(len(labels), OPEN, dtype=np.int8)
    state[labels >= budget.max_labels] = LIMIT
    state[(consensus.confidence >= budget.target_confidence) & (labels >= budget.min_labels)] = CONFIDENT
    if budget.accepted:
        pairs = zip(consensus.items, map(consensus.classes.__getitem__, consensus.codes.tolist()), strict=True)
        state[[budget.accepted.get(str(item)) == str(label) for item, label in pairs]] = ACCEPTED
    if evidence.hidden is not None:
        state[evidence.hidden] = HIDDEN
    state[evidence.known] = KNOWN
    return state


def expected_accuracy(questions: Sequence[Judged], checks: Sequence[Checked] | None = None) -> Expected:
    """Return the believed accuracy of the current labels, and what known items say about it. Known items are right.

    `checks` are the results of `checked` for each question, if already computed. With several questions per item, the
    accuracy and its interval are the means over questions.

    Example:
        >>> from hitl import Evidence
        >>> from hitl.active import expected_accuracy
        >>> from hitl.models import MajorityVote
        >>> said = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> print(expected_accuracy([(said, MajorityVote().fit(said))]))
        62.5 %
    """
    checks = [checked(*question) for question in questions] if checks is None else checks
    known = sum(check.rows.size for check in checks)
    return Expected(
        1.0 - float(np.mean([_error(*question) for question in questions])),
        known,
        sum(check.wrong for check in checks),
        sum(check.expected_wrong for check in checks),
        float(np.mean([check.low for check in checks])),
        float(np.mean([check.high for check in checks])),
        "" if known else checks[0].why,
    )


def reached(expected: Expected, target: float) -> bool:
    """Return True if the labels are believed to reach the target accuracy, and known items do not contradict."""
    return 1.0 - expected.accuracy <= expected.permitted(target) + TINY


def _error(evidence: Evidence, consensus: Consensus) -> float:
    """Return the believed share of wrong labels, in [0, 1], of the items about which the question is asked."""
    error_n = np.where(evidence.known, 0.0, np.clip(1.0 - consensus.confidence, 0.0, 1.0))
    asked_n = error_n if evidence.hidden is None else error_n[~evidence.hidden]
    return float(asked_n.mean()) if asked_n.size else 0.0
