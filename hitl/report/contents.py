"""The contents of a report: questions with their results, a plan, curves, and the history of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hitl.annotations import Floats, Ints, Name
from hitl.consensus import Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.plan import Plan


@dataclass(frozen=True, eq=False)
class Curve:
    """Accuracy or agreement, in [0, 1], over labels spent: (P,) each, with an optional band; `name` is at its end."""

    name: str
    labels: Floats
    value: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True, eq=False)
class QuestionPage:
    """The results of one question: its evidence and consensus, over the same items and classes.

    Attributes:
        texts: item -> short text to show.
        truth: (N,) true class codes held out from the fit, -1 if unknown, to measure accuracy; None: `evidence.truth`,
            unless the fit used it.
    """

    name: str
    evidence: Evidence
    consensus: Consensus
    texts: Mapping[Name, str] = field(default_factory=dict)
    truth: Ints | None = None

    def __post_init__(self) -> None:
        for kind in ("items", "classes"):
            if getattr(self.evidence.annotations, kind) != getattr(self.consensus, kind):
                raise BadInput(f"report, question {self.name!r}: evidence and consensus differ in their {kind}")


@dataclass(frozen=True)
class PartsSection:
    """Items with marked parts, least certain first: a template, its input per item, and (label, color) pairs."""

    template: str
    drawn: Sequence[Any]
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Cycle:
    """One run, from 1, and when it ended.

    Its metrics are any of `labels` (so far), `confidence`, `agreement`, `done` (means and shares, in [0, 1]).
    """

    number: int
    when: datetime
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Report:
    """The contents of the page.

    Attributes:
        plan: the next questions and the done items, or None.
        curves: lines of accuracy over labels spent.
        history: runs so far, oldest first.
        subtitle: a line under the title.
        outlook: expected accuracy and remaining work, one sentence each.
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
    outlook: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    generated: datetime | None = None
