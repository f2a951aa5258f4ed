"""When an item is done, and when the project is.

An item is done when its truth is known, its confidence reaches the target, or it has its share of labels.

A project is done when every item is; when the accuracy of its labels reaches the target; or when no answer is worth
its cost any more. Items of unknown truth are wrong with probability e_n = 1 - confidence, so that of N labels

    X = number of wrong labels:     E X = r E,     Var X = r sum_n e_n (1 - e_n) + E^2 Var r,     E = sum_n e_n

(Poisson-binomial), and the accuracy 1 - X / N has the central 95 % interval of the Beta with these moments. r says what
the confidence is worth. With items of known truth, of which W are wrong where W0 errors were expected (each judged as
if its truth were not known, by as many labels as the other items have),

    r ~ Gamma(a + W, a + W0)        a = PRIOR_ERRORS

and without any W = W0 = 0: then r has mean 1 and standard deviation .7. So wide, the interval covers the accuracy of
95 % of the public crowds of docs/benchmarks/honesty.txt, and a target is reached when the expected errors are about a
third of those it allows.

Below FEW_LABELS labels an item, without known truth and without a model, nothing but the agreement of one pair or two
says how good the labels are, and annotators who err together agree as well: then a target accuracy does not end a
project, and `Expected.unknowable` says what would let it.

The *lower* end of the interval has to reach the target. With the mean, the accuracy would be missed in every second
project; with the lower end it is missed in one of forty, as far as the confidence holds. That the interval is looked at
in every cycle does not spoil it: a posterior means the same whenever one stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from hitl.active.acquisition import value_of_information
from hitl.active.stopping.known_items import LEAST_KNOWN, checked
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence

if TYPE_CHECKING:
    from hitl.active.stopping.pool_state import PoolState

Judged = tuple[Evidence, Consensus]

OPEN, KNOWN, CONFIDENT, LIMIT = 0, 1, 2, 3
REASONS = {KNOWN: "its truth is known", CONFIDENT: "confidence reached the target", LIMIT: "label limit reached"}

PRIOR_ERRORS = 2.0
"""a: how many expected errors the word of the confidence is worth, before any truth is known.

r ~ Gamma(a, a) has the standard deviation 1 / sqrt(a) = .7. With a = 2 the interval covers the accuracy in 95 % of the
thinned and whole public crowds, with 4 in 85, with 20 in 65 (docs/benchmarks/honesty.txt)."""

FEW_LABELS = 3.0
"""Labels an item below which, without known truth or a model, the accuracy is not known."""

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Expected:
    """The accuracy that the labels are expected to have.

    Attributes:
        accuracy: share of items whose label is expected to be right, in [0, 1].
        low, high: ends of its central 95 % interval.
        checked: items of known truth that say whether the confidence holds; 0: it was not checked.
        wrong, foreseen: how many of these are wrong without their truth, and how many were expected to be.
        unchecked: why it was not checked, in words, and what would help; empty where it was.
        unknowable: why labels as these cannot say how good they are, and what would; empty where they can.
    """

    accuracy: float
    low: float
    high: float
    checked: int = 0
    wrong: float = 0.0
    foreseen: float = 0.0
    unchecked: str = ""
    unknowable: str = ""

    @property
    def ratio(self) -> float:
        """r: errors for each that is expected, in (0, inf); above 1 the confidence is too high."""
        return (PRIOR_ERRORS + self.wrong) / (PRIOR_ERRORS + self.foreseen)

    @property
    def ratio_variance(self) -> float:
        """Var r, > 0."""
        return self.ratio / (PRIOR_ERRORS + self.foreseen)

    @property
    def overconfident(self) -> bool:
        """Whether known items are wrong more often than chance explains (by two standard deviations)."""
        return self.checked > 0 and bool(self.wrong > self.foreseen + 2 * np.sqrt(max(self.foreseen, 1.0)))

    def __str__(self) -> str:
        return f"{self.accuracy:.1%} (95 % interval {self.low:.1%} to {self.high:.1%})"


def item_states(evidence: Evidence, consensus: Consensus, budget: Budget) -> npt.NDArray[np.int8]:
    """(N,) OPEN, or why the item is done: KNOWN, CONFIDENT (with `min_labels` labels at least), or LIMIT."""
    labels = evidence.annotations.labels_per_item
    state = np.full(len(labels), OPEN, dtype=np.int8)
    state[labels >= budget.max_labels] = LIMIT
    state[(consensus.confidence >= budget.target_confidence) & (labels >= budget.min_labels)] = CONFIDENT
    state[evidence.known] = KNOWN
    return state


def accuracy_interval(error_n: Floats, ratio: float = 1.0, ratio_variance: float = 0.0) -> tuple[float, float, float]:
    """(mean, low, high) of the accuracy of labels that are wrong with probabilities `error_n`, in [0, 1]."""
    return interval_of_errors(
        float(error_n.sum()), float((error_n * (1 - error_n)).sum()), error_n.size, ratio, ratio_variance
    )


def interval_of_errors(
    errors: float, variance: float, size: int, ratio: float = 1.0, ratio_variance: float = 0.0
) -> tuple[float, float, float]:
    """The same from E, sum_n e_n (1 - e_n) and N."""
    wrong = min(ratio * errors / max(size, 1), 1.0)
    spread = (ratio * variance + errors**2 * ratio_variance) / max(size, 1) ** 2
    right = 1.0 - wrong
    if spread <= 0 or wrong <= 0 or right <= 0:
        return right, right, right
    strength = max(wrong * right / spread - 1, 1e-3)
    ends = betaincinv(right * strength, wrong * strength, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return right, float(ends[0]), float(ends[1])


def expected_accuracy(questions: Sequence[Judged]) -> Expected:
    """The accuracy of all labels as they are now; known truths are right, and say what the confidence is worth.

    With several questions an item, accuracy is the mean over them, and an item's questions are taken to err together:
    the interval is then rather too wide.

    Example:
        >>> from hitl import Evidence
        >>> from hitl.active import expected_accuracy
        >>> from hitl.models import MajorityVote
        >>> said = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> print(expected_accuracy([(said, MajorityVote().fit(said))]))
        62.5% (95 % interval 0.0% to 100.0%)
    """
    errors = [_error(*question) for question in questions]
    error, deviation = np.mean(errors, axis=0), np.mean([np.sqrt(e * (1 - e)) for e in errors], axis=0)
    known, wrong, foreseen, why = zip(*(checked(*question) for question in questions), strict=True)
    unknowable = "" if any(known) else next(filter(None, (_unknowable(evidence) for evidence, _ in questions)), "")
    bare = Expected(1.0, 1.0, 1.0, sum(known), sum(wrong), sum(foreseen), "" if any(known) else why[0], unknowable)
    mean, low, high = interval_of_errors(
        float(error.sum()), float((deviation**2).sum()), error.size, bare.ratio, bare.ratio_variance
    )
    return replace(bare, accuracy=mean, low=low, high=high)


def project_stop(pool: PoolState, crew: Crew, budget: Budget) -> str | None:
    """Why the project is done, in words, or None while it is not."""
    if not pool.open_rows.size:
        return "every item is done"
    if budget.target_accuracy is not None and reached(pool.expected, budget.target_accuracy):
        return f"the accuracy expected is {pool.expected}, the target {budget.target_accuracy:.1%}"
    if budget.worth is not None:
        gain, cost = value_of_information.best_next(pool, pool.open_rows, crew, budget)
        if budget.worth * gain < 1:
            return (
                f"the best next label costs {cost:g} and is expected to bring {budget.worth * gain * cost:.2g}: "
                f"{gain * cost:.2g} right labels, worth {budget.worth:g} each"
            )
    return None


def reached(expected: Expected, target: float) -> bool:
    """Whether the accuracy has reached the target: the lower end of its interval, where labels can tell."""
    return expected.low >= target and not expected.unknowable


def _error(evidence: Evidence, consensus: Consensus) -> Floats:
    """(N,) probability that the label is wrong."""
    return np.where(evidence.known, 0.0, np.clip(1.0 - consensus.confidence, 0.0, 1.0))


def _unknowable(evidence: Evidence) -> str:
    """Why the labels alone cannot say how good they are, and what would; empty where they can."""
    labels_n = evidence.annotations.labels_per_item
    if evidence.probabilities or not labels_n.any():
        return ""
    mean = float(labels_n[labels_n > 0].mean())
    if mean >= FEW_LABELS:
        return ""
    return (
        f"{mean:.1f} labels an item cannot say how good they are, for annotators who err together agree as well; "
        f"{LEAST_KNOWN} items checked by an expert (`hitl gold`), {FEW_LABELS:g} labels an item or the probabilities "
        "of a model would"
    )
