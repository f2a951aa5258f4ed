"""Rules that decide when an item and the project are done.

An item is done when its truth is known, when its confidence reaches the target (and it has `min_labels` labels), or
when it has `max_labels` labels.

A project is done when every item is done, when the accuracy of its labels reaches the target, or when no answer is
worth its cost any more. The label of an item of unknown truth is wrong with probability e_n = 1 - confidence. So the
number X of wrong labels among N items has the moments (Poisson-binomial)

    E X = r E,     Var X = r sum_n e_n (1 - e_n) + E^2 Var r,     E = sum_n e_n

The interval of the accuracy 1 - X / N is the central 95 % interval of the Beta distribution with these moments. r is
the number of actual errors per expected error, and measures how reliable the confidence is. It is estimated with a
second fit, without the truth of some known items (`known_items`). On these items the second fit expects W0 errors and
makes W. On the items without ground truth it expects s errors for each that the first fit expects. Then

    r / s ~ Gamma(a + W, a + W0)        a = PRIOR_CHECKED

Without known items, r ~ Gamma(a, a) with a = PRIOR_ERRORS, so r has mean 1 and standard deviation 0.7.

With fewer than FEW_LABELS labels per item, no gold items and no informative model, a target accuracy does not end the
project, and `Expected.unknowable` says what would help. A target is reached when a lower bound of the accuracy
(`Expected.sure`) reaches it. If it were enough that the mean does, every second project would miss its target. With
known items, the accuracy is above the bound in 19 of 20 cases. Without any, the bound is the lower end of the 95 %
interval, because nothing checks the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from hitl.active.acquisition import value_of_information
from hitl.active.stopping.known_items import LEAST_KNOWN, PRIOR_CHECKED, Checked, checked
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.inference.observed_outputs import MODEL_INFORMATIVENESS

if TYPE_CHECKING:
    from hitl.active.stopping.pool_state import PoolState

Judged = tuple[Evidence, Consensus]

OPEN, KNOWN, CONFIDENT, LIMIT = 0, 1, 2, 3
REASONS = {KNOWN: "ground truth is known", CONFIDENT: "confidence reached the target", LIMIT: "label limit reached"}

PRIOR_ERRORS = 2.0
"""a without known items: number of expected errors that the prior on r is worth. With 2, the 95 % interval covers the
accuracy in 95 % of the public crowds, with 4 in 85 %, with 20 in 65 % (docs/benchmarks/honesty.txt)."""

FEW_LABELS = 3.0
"""Labels per item below which, without ground truth or a model, the accuracy is unknown."""

LEVEL, SURE_LEVEL = 0.95, 0.90
"""Level of the displayed interval, and of the interval whose lower end must reach a target if known items are used."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected accuracy of the labels.

    Attributes:
        accuracy: expected share of items whose label is right, in [0, 1].
        low, high: ends of its central 95 % interval.
        checked: number of items with ground truth that check the confidence; 0: the confidence was not checked.
        wrong, expected_wrong: W and W0, the number of these items that the fit without their truth gets wrong, and the
            number of errors that it expects.
        unchecked: why the confidence was not checked, and what would help; empty if it was checked.
        unknowable: why these labels cannot show how good they are, and what would help; empty if they can.
        sure: lower bound that must reach a target: `low`, or the lower end of the 90 % interval if checked.
        scale: s, errors expected on items without ground truth by the fit without the checked truth, per error expected
            with it.
    """

    accuracy: float
    low: float
    high: float
    checked: int = 0
    wrong: float = 0.0
    expected_wrong: float = 0.0
    unchecked: str = ""
    unknowable: str = ""
    sure: float = 0.0
    scale: float = 1.0

    @property
    def level(self) -> float:
        """Level of the interval whose lower end is `sure`."""
        return SURE_LEVEL if self.checked else LEVEL

    @property
    def prior(self) -> float:
        """Prior parameter a, > 0."""
        return PRIOR_CHECKED if self.checked else PRIOR_ERRORS

    @property
    def ratio(self) -> float:
        """Mean of r, the actual errors per expected error, in (0, inf). Above 1, the confidence is too high."""
        return self.scale * (self.prior + self.wrong) / (self.prior + self.expected_wrong)

    @property
    def ratio_variance(self) -> float:
        """Variance of r, > 0."""
        return self.scale * self.ratio / (self.prior + self.expected_wrong)

    @property
    def overconfident(self) -> bool:
        """True if known items are wrong more often than chance explains (two standard deviations above W0)."""
        return self.checked > 0 and bool(self.wrong > self.expected_wrong + 2 * np.sqrt(max(self.expected_wrong, 1.0)))

    def __str__(self) -> str:
        return f"{self.accuracy:.1%} (95 % interval {self.low:.1%} to {self.high:.1%})"


def item_states(evidence: Evidence, consensus: Consensus, budget: Budget) -> npt.NDArray[np.int8]:
    """Return (N,) OPEN, or why the item is done: KNOWN, CONFIDENT (with at least `min_labels` labels), or LIMIT."""
    labels = evidence.annotations.labels_per_item
    state = np.full(len(labels), OPEN, dtype=np.int8)
    state[labels >= budget.max_labels] = LIMIT
    state[(consensus.confidence >= budget.target_confidence) & (labels >= budget.min_labels)] = CONFIDENT
    state[evidence.known] = KNOWN
    return state


def interval_of_errors(
    errors: float, variance: float, size: int, ratio: float = 1.0, ratio_variance: float = 0.0, level: float = LEVEL
) -> tuple[float, float, float]:
    """Return (mean, low, high) of the accuracy of N = `size` labels that are wrong with probabilities e_n.

    `errors` is sum_n e_n and `variance` sum_n e_n (1 - e_n).
    """
    wrong = min(ratio * errors / max(size, 1), 1.0)
    spread = (ratio * variance + errors**2 * ratio_variance) / max(size, 1) ** 2
    right = 1.0 - wrong
    if spread <= 0 or wrong <= 0 or right <= 0:
        return right, right, right
    strength = max(wrong * right / spread - 1, 1e-3)
    ends = betaincinv(right * strength, wrong * strength, [0.5 - level / 2, 0.5 + level / 2])
    # with very few items the distribution is so skewed that its mean can be outside the interval
    return right, min(float(ends[0]), right), max(float(ends[1]), right)


def expected_accuracy(questions: Sequence[Judged], checks: Sequence[Checked] | None = None) -> Expected:
    """Return the expected accuracy of the current labels. Items with ground truth are right, and check the confidence.

    `checks` are the results of `checked` for each question, if already computed. With several questions per item, the
    accuracy is the mean over questions. All labels of an item are assumed to be wrong together, so the interval is
    rather too wide.

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
    checks = [checked(*question) for question in questions] if checks is None else checks
    known = sum(check.rows.size for check in checks)
    unknowable = "" if known else next(filter(None, (_unknowable(*question) for question in questions)), "")
    wrong, expected_wrong = sum(check.wrong for check in checks), sum(check.expected_wrong for check in checks)
    scale = float(np.mean([check.scale for check in checks]))
    why = "" if known else checks[0].why
    bare = Expected(1.0, 1.0, 1.0, known, wrong, expected_wrong, why, unknowable, scale=scale)
    moments = float(error.sum()), float((deviation**2).sum()), error.size, bare.ratio, bare.ratio_variance
    mean, low, high = interval_of_errors(*moments)
    return replace(bare, accuracy=mean, low=low, high=high, sure=interval_of_errors(*moments, bare.level)[1])


def project_stop(pool: PoolState, crew: Crew, budget: Budget) -> str | None:
    """Explain why the project is done, or return None while it is not."""
    if not pool.open_rows.size:
        return "every item is done"
    if target_reached(pool, budget):
        expected, chance = pool.expected, 50 + 50 * pool.expected.level
        return (
            f"the expected accuracy is {expected}, and with a probability of {chance:g} % it is at least "
            f"{expected.sure:.1%} (target: {budget.target_accuracy:.1%})"
        )
    if budget.value_per_label is not None:
        gain, cost = value_of_information.best_next(pool, pool.open_rows, crew, budget)
        if budget.value_per_label * gain < 1:
            worth, right = budget.value_per_label, gain * cost
            return (
                f"the best next label costs {cost:g} and is expected to be worth {worth * right:.2g}: {right:.2g} more "
                f"right labels at {worth:g} each"
            )
    return None


def target_reached(pool: PoolState, budget: Budget) -> bool:
    """Return True if there is a target accuracy, and the labels have reached it."""
    return budget.target_accuracy is not None and reached(pool.expected, budget.target_accuracy)


def reached(expected: Expected, target: float) -> bool:
    """Return True if the lower bound of the accuracy has reached the target, and the labels can show it."""
    return expected.sure >= target and not expected.unknowable


def _error(evidence: Evidence, consensus: Consensus) -> Floats:
    """Return (N,) probability that the label is wrong."""
    return np.where(evidence.known, 0.0, np.clip(1.0 - consensus.confidence, 0.0, 1.0))


def _unknowable(evidence: Evidence, consensus: Consensus) -> str:
    """Explain why the labels alone cannot show how good they are, and what would help; empty if they can.

    On items that models predict, the models count as FEW_LABELS labels times their informativeness.
    """
    labels_n = evidence.annotations.labels_per_item
    labeled_n = labels_n > 0
    told = float(consensus.parameters.get(MODEL_INFORMATIVENESS, np.array(1.0)))
    beside_n = FEW_LABELS * told * evidence.predicted
    if not labeled_n.any() or float((labels_n + beside_n)[labeled_n].mean()) >= FEW_LABELS:
        return ""
    mean = float(labels_n[labeled_n].mean())
    return (
        f"With {mean:.1f} answers per item, people who share a mistake look as good as people who are right. Add "
        f"{LEAST_KNOWN} gold items (`hitl gold truth.csv`: item, label), collect {FEW_LABELS:g} answers per item, or "
        "add model predictions."
    )
