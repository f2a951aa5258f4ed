"""Contents of a report: questions with their results, a plan, curves, and the history of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hitl.annotations import Floats, Ints, Name
from hitl.consensus import Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.metrics import Summary
from hitl.plan import Plan

if TYPE_CHECKING:
    from hitl.models.analysis.anchoring import Pulls


@dataclass(frozen=True, eq=False)
class Curve:
    """Accuracy or agreement over labels or cost spent.

    Attributes:
        name: name to show at the end of the line.
        labels: (P,) labels, or cost, spent.
        value: (P,) accuracy or agreement, in [0, 1].
        low, high: (P,) ends of a band around `value`, or None.
    """

    name: str
    labels: Floats
    value: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True, eq=False)
class QuestionPage:
    """The results of one question. Its evidence and consensus must have the same items and classes.

    Attributes:
        texts: item -> short text to show.
        truth: (N,) true class codes to measure accuracy, held out from the fit, -1 if unknown. None: use
            `evidence.truth`, unless the fit used it.
        least_accuracy: accuracy required of annotators, in [0, 1]; 0 if none is required.
    """

    name: str
    evidence: Evidence
    consensus: Consensus
    texts: Mapping[Name, str] = field(default_factory=dict)
    truth: Ints | None = None
    least_accuracy: float = 0.0

    def __post_init__(self) -> None:
        for kind in ("items", "classes"):
            if getattr(self.evidence.annotations, kind) != getattr(self.consensus, kind):
                raise BadInput(f"report, question {self.name!r}: evidence and consensus differ in their {kind}")


@dataclass(frozen=True)
class PartsSection:
    """Section on items with marked parts, least certain first.

    Attributes:
        template: path of the template.
        drawn: input of the template, one per item.
        legend: (label, color) pairs.
    """

    template: str
    drawn: Sequence[Any]
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Cycle:
    """A run of the project: its number, from 1, its time, and metrics.

    The metrics may be `labels` (number so far) and, in [0, 1], `confidence` and `agreement` (means) and `done` (share
    of items).
    """

    number: int
    when: datetime
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Report:
    """The contents of the page.

    Attributes:
        plan: next questions to ask and items that are done, or None.
        curves: lines of accuracy over labels spent.
        history: runs so far, oldest first.
        subtitle: a line under the title.
        summary: the state in sentences, and what to do next (`hitl.metrics.Summary`), or None.
        outlook: believed accuracy and remaining work, a line each.
        remaining: lines of `outlook` about the remaining work.
        suggestions: how far suggestions pull answers, or None if nobody has seen one.
        links: annotator -> URL of the page where they answer.
        command: the command line that wrote the report, if any.
        generated: time of the report (None: now).
    """

    title: str
    questions: tuple[QuestionPage, ...]
    plan: Plan | None = None
    curves: tuple[Curve, ...] = ()
    history: tuple[Cycle, ...] = ()
    subtitle: str = ""
    summary: Summary | None = None
    outlook: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    suggestions: Pulls | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    generated: datetime | None = None
