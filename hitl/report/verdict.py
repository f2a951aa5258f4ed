"""The first lines of the page: where it stands, whether the model helps, who needs training, what is left."""

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
"""Annotators who are named."""

LEVEL = 0.005
"""A difference of accuracies below this is none."""

LEFT = ("to come", "the project is done", "nothing is asked", "waiting", "left aside")
"""Beginnings of the sentences about what is left (`hitl.metrics.outlook`)."""


@dataclass(frozen=True)
class Accuracy:
    """The share of labels that are right, in [0, 1], with its 95 % interval, and in words what it rests on."""

    value: float
    low: float
    high: float
    basis: str


@dataclass(frozen=True)
class Answer:
    """One question of a lead, and the answer in a sentence or two."""

    question: str
    lines: tuple[str, ...]


def accuracy_of(page: QuestionPage, truth: Ints) -> Accuracy:
    """The one accuracy of the page: measured on known truth that the fit did not see, or else expected of all items."""
    found = measures.measured(page.consensus, truth)
    if found.total:
        low, high = (float(end) for end in found.interval)
        return Accuracy(found.value, low, high, f"measured: {found.right:,} of {found.total:,} known items right")
    if not page.evidence.annotations.n_items:
        return Accuracy(float("nan"), float("nan"), float("nan"), "there is no item yet")
    expected = expected_accuracy((page.evidence, page.consensus))
    checked = f"checked on {expected.checked:,} known items" if expected.checked else "not checked: too few known items"
    if expected.unknowable:
        checked = f"not known: {expected.unknowable}"
    return Accuracy(expected.accuracy, expected.low, expected.high, f"expected of all items, {checked}")


def verdict(report: Report, questions: Sequence[dict[str, Any]]) -> tuple[Answer, ...]:
    """The answers; `questions` are what the template gets of each (id, page, accuracy, crowd, together, ...)."""
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
    between = f"95 % interval {accuracy.low * 100:.1f} to {accuracy.high * 100:.1f} %"
    return f"Accuracy {accuracy.value * 100:.1f} % ({between}; {accuracy.basis})."


def _helps(together: ModelsSection | None) -> str:
    if together is None:
        return "No model was given, or the method does not use it."
    row = together.profile.best.overall.iloc[0]
    people, both = float(row["people"]), float(row["both"])
    figures = f"{both * 100:.1f} % of labels are right with it, {people * 100:.1f} % without"
    by = "measured on known truth" if together.profile.measured else "expected; known truth would measure it"
    if abs(both - people) < LEVEL:
        return f"It makes hardly a difference: {figures} ({by})."
    return f"{'Yes' if both > people else 'No'}: {figures} ({by})."


def _training(crowd: AnnotatorsSection | None) -> str:
    if crowd is None:
        return "There are too few labels to say."
    if not crowd.flagged:
        return "None: no annotator is likely to answer at random or to mislead, or is seen to get worse."
    profiles = crowd.profiles
    named = [f"{profiles.names[k]} ({', '.join(profiles.flags(k))})" for k in crowd.flagged[:NAMED]]
    more = f", and {len(crowd.flagged) - NAMED} more" if len(crowd.flagged) > NAMED else ""
    return f"{', '.join(named)}{more}."


def _left(report: Report, questions: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    said = [line for line in report.outlook if line.startswith(LEFT)]
    if said:
        return tuple(f"{line[0].upper()}{line[1:]}." for line in said)
    lines = []
    for question in questions:
        name = f"{question['page'].name}: " if len(questions) > 1 else ""
        lines.append(
            f"{name}{question['unlabeled']:,} items without a label, {question['n_contested']:,} contested items."
        )
    return tuple(lines)
