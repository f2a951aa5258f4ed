"""Bringing a consensus up to date with everything at once: a few iterations of the fit, from what it learned.

Labels that are new, different or gone need not be told apart: the expected counts are sums over the labels as they are
now, and where iterations end depends on where they begin only where a method has several answers to the same labels.
"""

from __future__ import annotations

from dataclasses import replace

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.warm_start import require_same_classes

ITERATIONS = 20
"""Most iterations of an update."""

GROWTH = 2.0
"""Times as many labels as were learned from with which an update is a fit from nothing."""


def goes_on(consensus: Consensus, evidence: Evidence) -> bool:
    """Whether what was learned is a good start; else the method begins from nothing. BadEvidence for other classes.

    An answer that it has not met has no place in it. What was learned from few labels may be next to the wrong top,
    and no iteration leaves that.
    """
    require_same_classes(consensus, evidence)
    learned, annotations = consensus.annotators, evidence.annotations
    return learned.options == annotations.options and len(annotations) < GROWTH * int(learned.labels.sum())


def iterations(most: int) -> int:
    """How many iterations an update takes at most, of a method that takes `most`."""
    return min(ITERATIONS, most)


def better(updated: Consensus, begun_anew: Consensus) -> Consensus:
    """The one with the higher objective.

    What was learned from labels or truths that turned out wrong may be next to a top that few iterations do not leave.
    """
    return updated if updated.fit.objective[-1] >= begun_anew.fit.objective[-1] else begun_anew


def cautious(consensus: Consensus) -> Consensus:
    """The same with confusion matrices at the mean of their posteriors, not at the mode: no answer is impossible.

    Else somebody's first answer of a kind would count e^-9, and what was believed without it would stay for ever.
    """
    people = consensus.annotators
    raised_kjl = people.concentration + 1
    return replace(consensus, annotators=replace(people, confusion=raised_kjl / raised_kjl.sum(axis=2, keepdims=True)))
