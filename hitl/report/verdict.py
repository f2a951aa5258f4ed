"""The first lines of the page: current accuracy, benefit of the model, annotators to train, remaining work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hitl.annotations import Ints
from hitl.metrics import expected_accuracy
from hitl.report import measures
from hitl.report.annotators import AnnotatorsSection
from hitl.report.contents import QuestionPage, Report
from hitl.report.models import ModelsSection

NAMED = 5
"""Largest number of annotators named."""

LEVEL = 0.005
"""Smallest difference in accuracy that is mentioned."""

LEFT = ("to come", "the project is done", "nothing is asked", "waiting", "left aside")
"""Prefixes of the sentences about remaining work (`hitl.metrics.outlook`)."""


@dataclass(frozen=True)
class Accuracy:
    """Share of right labels, in [0, 1], with its 95 % interval and its basis in words."""

    value: float
    low: float
    high: float
    basis: str


@dataclass(frozen=True)
class Answer:
    """A question of a lead, and the answer in a sentence or two."""

    question: str
    lines: tuple[str, ...]


def accuracy_of(page: QuestionPage, truth: Ints) -> Accuracy:
    """Return the accuracy measured on truth unseen by the fit, or else the accuracy expected over all items."""
    share = measures.measured(page.consensus, truth)
    if share.total:
        low, high = (float(end) for end in share.interval)
        return Accuracy(share.value, low, high, f"measured: {share.right:,} of {share.total:,} known items right")
    if not page.evidence.annotations.n_items:
        return Accuracy(float("nan"), float("nan"), float("nan"), "there is no item yet")
    expected = expected_accuracy((page.evidence, page.consensus))
    checked = f"checked on {expected.checked:,} known items" if expected.checked else "not checked: too few known items"
    if expected.unknowable:
        checked = f"not known: {expected.unknowable}"
    return Accuracy(expected.accuracy, expected.low, expected.high, f"expected of all items, {checked}")


def verdict(report: Report, questions: Sequence[dict[str, Any]]) -> tuple[Answer, ...]:
    """Return the answers. `questions` holds the template values (id, page, accuracy, crowd, together, ...)."""
    if not questions:
        return ()
    several = len(questions) > 1
    stands: list[str] = []
    if report.plan is not None:
        done, total = len(report.plan.done), len(report.plan.done) + report.plan.open_items
        stands.append(f"{done:,} of {total:,} items are done.")
    helps, training = [], []
    for question in questions:
        name = f"{question['page'].name}: " if several else ""
        stands.append(name + _stands(question["accuracy"]))
        helps.append(name + _helps(question["together"]))
        training.append(name + _training(question["crowd"]))
    return (
        Answer("Where does it stand?", tuple(stands)),
        Answer("Does the model help?", tuple(helps)),
        Answer("Who needs training?", tuple(training)),
        Answer("What is left?", _left(report, questions)),
    )


def _stands(accuracy: Accuracy) -> str:
    if accuracy.value != accuracy.value:
        return f"The accuracy is not known: {accuracy.basis}."
    interval = f"95 % interval {accuracy.low * 100:.1f} to {accuracy.high * 100:.1f} %"
    return f"Accuracy {accuracy.value * 100:.1f} % ({interval}; {accuracy.basis})."


def _helps(together: ModelsSection | None) -> str:
    if together is None:
        return "No model was given, or the method does not use it."
    row = together.profile.best.overall.iloc[0]
    people, both = float(row["people"]), float(row["both"])
    figures = f"{both * 100:.1f} % of labels are right with it, {people * 100:.1f} % without"
    basis = "measured on known truth" if together.profile.measured else "expected; known truth would measure it"
    if abs(both - people) < LEVEL:
        return f"It makes hardly a difference: {figures} ({basis})."
    return f"{'Yes' if both > people else 'No'}: {figures} ({basis})."


def _training(crowd: AnnotatorsSection | None) -> str:
    if crowd is None:
        return "There are too few labels to say."
    if not crowd.flagged:
        return "None: no annotator is likely to answer at random or to mislead, or is seen to get worse."
    profiles = crowd.profiles
    names = [f"{profiles.names[k]} ({', '.join(profiles.flags(k))})" for k in crowd.flagged[:NAMED]]
    more = f", and {len(crowd.flagged) - NAMED} more" if len(crowd.flagged) > NAMED else ""
    return f"{', '.join(names)}{more}."


def _left(report: Report, questions: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    ahead = [f"{line[0].upper()}{line[1:]}." for line in report.outlook if line.startswith(LEFT)]
    counts = [
        f"{question['page'].name + ': ' if len(questions) > 1 else ''}{question['unlabeled']:,} items without a label, "
        f"{question['n_contested']:,} contested items."
        for question in questions
    ]
    return tuple(ahead or counts)
