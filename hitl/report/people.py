"""What the page says of people beyond the annotator table: who to look into, who decides alike, who changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from hitl.annotations import Name
from hitl.models.analysis.agreement import Agreement
from hitl.models.analysis.annotator_profile import AnnotatorProfiler, AnnotatorProfiles
from hitl.models.analysis.drift import Change
from hitl.report import people_plots
from hitl.report.contents import QuestionPage
from hitl.report.plots import Figure

LOOKED_INTO = 25
"""Rows of the table of people to look into."""

GROUPS = 8
"""Communities shown."""


@dataclass(frozen=True)
class LookRow:
    """Somebody to look into, and why."""

    name: Name
    labels: int
    accuracy: float
    bits: float
    why: str


@dataclass(frozen=True)
class GroupRow:
    """A community: its number, how many belong to it most, what its labels are worth, how they answer, some names."""

    number: int
    size: int
    accuracy: float
    bits: float
    words: str
    names: tuple[Name, ...]


@dataclass(frozen=True)
class ChangeRow:
    """Somebody whose accuracy changed: from when, from what to what, and how sure that is."""

    name: Name
    when: str
    before: float
    after: float
    p_value: float


@dataclass(frozen=True)
class PeopleSection:
    """Everything the template needs of one question's people.

    Attributes:
        agreement: of all annotators.
        entropy: bits missing before any label.
        looks, n_looks: people to look into, most labels first, and how many there are.
        groups: communities; with a single one there is nothing to tell apart.
        unplaced: people with too few labels for a community.
        changes: those whose change is to be believed; `tested` is how many were tested.
        figures: by the last part of their id.
    """

    agreement: Agreement
    entropy: float
    looks: tuple[LookRow, ...]
    n_looks: int
    groups: tuple[GroupRow, ...]
    unplaced: int
    changes: tuple[ChangeRow, ...]
    tested: int
    figures: dict[str, Figure]


def people_section(page: QuestionPage) -> PeopleSection | None:
    """What is known of the people of a question; None without labels, or where the consensus is over other people."""
    annotations, people = page.evidence.annotations, page.consensus.annotators
    same = annotations.annotators == people.names and annotations.options == people.options
    if not len(annotations) or not same:
        return None
    found = AnnotatorProfiler().fit(page.evidence, page.consensus)
    order = np.argsort(-people.labels, kind="stable")
    looks = [int(k) for k in order if found.flags(int(k))]
    changed = [(int(k), change) for k in order if found.drifts[k] and (change := found.changes[k]) is not None]
    groups = _groups(found)
    return PeopleSection(
        agreement=found.agreement,
        entropy=found.entropy,
        looks=tuple(_look(found, k) for k in looks[:LOOKED_INTO]),
        n_looks=len(looks),
        groups=groups,
        unplaced=int((found.communities.main < 0).sum()),
        changes=tuple(_change(found.names[k], change) for k, change in changed[:LOOKED_INTO]),
        tested=sum(change is not None for change in found.changes),
        figures=_figures(found, groups, changed),
    )


def _figures(
    found: AnnotatorProfiles, groups: tuple[GroupRow, ...], changed: list[tuple[int, Change]]
) -> dict[str, Figure]:
    figures = {"forest": people_plots.forest_figure(found)}
    if len(groups) > 1:
        figures["similarity"] = people_plots.similarity_figure(found)
        for group in groups:
            prototype = found.communities.prototype[group.number - 1]
            figures[f"group-{group.number}"] = people_plots.prototype_figure(
                prototype, found.people.classes, found.people.options
            )
    if changed:
        figures["drift"] = people_plots.drift_figure([(found.names[k], change.windows) for k, change in changed])
    return figures


def _look(found: AnnotatorProfiles, k: int) -> LookRow:
    people = found.people
    why = "; ".join(found.flags(k))
    return LookRow(people.names[k], int(people.labels[k]), float(people.accuracy[k]), float(found.bits[k]), why)


def _groups(found: AnnotatorProfiles) -> tuple[GroupRow, ...]:
    """The largest communities, each with its members of most labels."""
    main, rows = found.communities.main, []
    for g, kind in enumerate(found.kinds()[:GROUPS]):
        members = np.flatnonzero(main == g)
        first = members[np.argsort(-found.people.labels[members], kind="stable")][:12]
        names = tuple(found.names[k] for k in first)
        rows.append(GroupRow(g + 1, kind.size, kind.accuracy, kind.bits, kind.words, names))
    return tuple(rows)


def _change(name: Name, change: Change) -> ChangeRow:
    return ChangeRow(name, day(change.when), change.before, change.after, change.p_value)


def day(seconds: float) -> str:
    """A time as its day, where it is a time since the epoch at all; else the number."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
    except (OverflowError, OSError, ValueError):
        return f"{seconds:g}"
