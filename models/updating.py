"""Bringing a consensus up to date with everything at once: a few iterations of the fit, from what it learned.

Labels that are new, different or gone need not be told apart: the expected counts are sums over the labels as they are
now, and where the iterations of the method would end does not depend on where they begin (up to local tops).
"""

from __future__ import annotations

from dataclasses import replace

from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence

ITERATIONS = 20
"""Most iterations of an update."""


def iterations(consensus: Consensus, evidence: Evidence, most: int) -> int:
    """How many iterations at most bring a consensus up to date, of a method that takes `most`.

    Few, unless an answer has become possible that it has not met. Raises BadEvidence for other classes.
    """
    learned, annotations = consensus.annotators, evidence.annotations
    if learned.classes != annotations.classes:
        raise BadEvidence(f"learned for classes {learned.classes}; the evidence has {annotations.classes}")
    return min(ITERATIONS, most) if learned.options == annotations.options else most


def cautious(consensus: Consensus) -> Consensus:
    """The same with confusion matrices at the mean of their posteriors, not at the mode: no answer is impossible.

    Else somebody's first answer of a kind would count e^-9, and what was believed without it would stay for ever.
    """
    people = consensus.annotators
    raised_kjl = people.concentration + 1
    return replace(consensus, annotators=replace(people, confusion=raised_kjl / raised_kjl.sum(axis=2, keepdims=True)))
