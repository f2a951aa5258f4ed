"""What the page says of annotators beyond their table: who to look into, who decides alike, who changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Names
from hitl.models.analysis.annotator_profile import AnnotatorProfiler, AnnotatorProfiles, CommunityProfile
from hitl.report.annotators_plots import drift_figure, forest_figure, moment, prototype_figure, similarity_figure
from hitl.report.contents import QuestionPage
from hitl.report.plots import Figure

GROUPS = 8
"""Communities shown."""

MEMBERS = 12
"""Annotators named of a community."""


@dataclass(frozen=True, eq=False)
class AnnotatorsSection:
    """What the template needs of one question's annotators.

    Attributes:
        profiles: everything known of them.
        flagged: codes of those to look into, most labels first.
        changed: codes of those whose change over time is to be believed, most labels first.
        groups: the largest communities, each with the names of its members with most labels; a single one tells
            nothing apart.
        figures: by the last part of their id.
    """

    profiles: AnnotatorProfiles
    flagged: tuple[int, ...]
    changed: tuple[int, ...]
    groups: tuple[tuple[CommunityProfile, Names], ...]
    figures: dict[str, Figure]


def annotators_section(page: QuestionPage) -> AnnotatorsSection | None:
    """What is known of the annotators of a question; None without labels, or where the consensus is over others."""
    annotations, report = page.evidence.annotations, page.consensus.annotators
    same = annotations.annotators == report.names and annotations.options == report.options
    if not len(annotations) or not same:
        return None
    found = AnnotatorProfiler().fit(page.evidence, page.consensus)
    order = np.argsort(-report.labels, kind="stable").tolist()
    changed = tuple(k for k in order if found.drifts[k])
    groups = tuple((kind, _members(found, g, order)) for g, kind in enumerate(found.kinds()[:GROUPS]))
    figures = {"forest": forest_figure(found)}
    if len(groups) > 1:
        figures["similarity"] = similarity_figure(found)
        for g in range(len(groups)):
            prototype = found.communities.prototype[g]
            figures[f"group-{g + 1}"] = prototype_figure(prototype, report.classes, report.options)
    if changed:
        figures["drift"] = drift_figure(found, changed)
    return AnnotatorsSection(found, tuple(k for k in order if found.flags(k)), changed, groups, figures)


def day(seconds: float) -> str:
    """A time as its day, where it is a time since the epoch at all; else the number."""
    found = moment(seconds, "%Y-%m-%d")
    return found if isinstance(found, str) else f"{found:g}"


def _members(found: AnnotatorProfiles, group: int, order: list[int]) -> Names:
    main = found.communities.main
    return tuple(found.names[k] for k in order if main[k] == group)[:MEMBERS]
