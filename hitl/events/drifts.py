"""Which annotators have changed over time, each told once.

The test is that of `hitl annotators` (`hitl.models.analysis.drift`). It is made at each cycle, and near its limit it
says one thing now and another then. So one who was told stays told until the sign of change has clearly gone
(`OVER`), and is told again only of a change that began after all that was seen when they were told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hitl.models.analysis.drift import Change, DriftTest
from hitl.models.analysis.spammers import SpammerModel
from hitl.models.annotators.leave_one_out import Others

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence

OVER = 0.25
"""Above this chance (at any look) of as strong a sign without a change, a change that was told is over."""

MOST = 20
"""Annotators of one question that are told of at once, the clearest first; the others are with the next cycle."""


@dataclass(frozen=True)
class Drifted:
    """An annotator who has changed, and how."""

    annotator: str
    change: Change


def changes(evidence: Evidence, consensus: Consensus) -> tuple[list[Change | None], list[bool]]:
    """Of each annotator the most likely change, and whether to believe it; as `AnnotatorProfiler` finds them."""
    test, people = DriftTest(), consensus.annotators
    others = Others(evidence, consensus)
    ways = SpammerModel().fit(evidence.annotations, others, people.shares)
    found = test.fit(evidence.annotations, others, ways.confusion)
    return found, test.alarms(found).tolist()


def newly_drifted(
    evidence: Evidence, consensus: Consensus, told: Mapping[str, Any]
) -> tuple[list[Drifted], dict[str, Any]]:
    """Who has to be told of, and what was told by then: annotator -> until when labels were seen.

    Nothing where answers have no time, or are not about whole items.
    """
    annotations = evidence.annotations
    if annotations.time is None or evidence.parts is not None or not len(annotations):
        return [], {}
    found, alarms = changes(evidence, consensus)
    now: dict[str, Any] = {}
    fresh: list[Drifted] = []
    seen = float(np.nanmax(annotations.time))
    for code, name in enumerate(map(str, annotations.annotators)):
        change, before = found[code], told.get(name)
        if change is None or code == annotations.anonymous:
            continue
        again = before is not None and change.when > before
        if alarms[code] and (before is None or again):
            fresh.append(Drifted(name, change))
        if before is not None and change.p_any_look <= OVER:
            now[name] = before
    fresh = sorted(fresh, key=lambda one: (one.change.p_value, one.annotator))[:MOST]
    return fresh, now | {one.annotator: seen for one in fresh}
