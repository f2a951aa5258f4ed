"""Where iterations begin: at the votes, or at what an earlier fit says of these items.

An earlier fit judges by its confusion matrices (annotators it has not met: by what is expected of them) and its prior.
It is a start where it has the same classes and options, for the items that an annotator it has met has labeled.
Elsewhere iterations begin at the votes.

An update is a few iterations from there, over everything. Labels that are new, different or gone need no telling
apart: expected counts are sums over the labels as they are now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.models.annotators import confusion
from hitl.models.inference import em
from hitl.models.numerics.votes import voted
from hitl.models.priors import TruthPrior
from hitl.models.priors.learned import learned_prior


def require_same_classes(learned: Consensus, evidence: Evidence) -> None:
    """Raises BadEvidence for other classes."""
    if learned.classes != evidence.annotations.classes:
        known, given = listed(learned.classes), listed(evidence.annotations.classes)
        raise BadEvidence(f"estimated for the classes {known}; the evidence has {given}")


def require_learned(learned: Consensus, *parameters: str) -> None:
    """Raises BadEvidence for the consensus of another method, which lacks what this one has learned."""
    if not learned.parameters.keys() >= {*parameters}:
        raise BadEvidence(f"learned by {learned.fit.method}, and not by this method; apply the method that learned it")


def usable(start: Consensus | None, annotations: Annotations) -> bool:
    """Whether there is a start with the same classes and options."""
    return start is not None and confusion.same_codes(start.annotators, annotations.classes, annotations.options)


def judged(learned: Consensus, evidence: Evidence, unmet_jl: Floats) -> Floats:
    """(N, J) beliefs by what was learned; `unmet_jl` (any scale) of annotators not met. BadEvidence: other classes."""
    require_same_classes(learned, evidence)
    return judged_by(learned, evidence, np.log(confusion.confusion_from(learned, evidence.annotations, unmet_jl)))


def applied(learned: Consensus, evidence: Evidence, unmet_jl: Floats) -> Consensus:
    """What was learned, with the beliefs of other items that `judged` gives."""
    require_same_classes(learned, evidence)
    return applied_under(learned_prior(learned, evidence), learned, evidence, unmet_jl)


def applied_under(prior: TruthPrior, learned: Consensus, evidence: Evidence, unmet_jl: Floats) -> Consensus:
    """The same under another prior than the one that was learned."""
    log_pi_klj = np.log(confusion.confusion_from(learned, evidence.annotations, unmet_jl))
    return learned.judging(evidence.annotations.items, em.expectation(evidence, prior, log_pi_klj).q_nj)


def judged_by(learned: Consensus, evidence: Evidence, log_pi_klj: Floats) -> Floats:
    """(N, J) beliefs by these annotators and the class shares that were learned."""
    return em.expectation(evidence, learned_prior(learned, evidence), log_pi_klj).q_nj


def first_beliefs(evidence: Evidence, start: Consensus | None, unmet_jl: Floats) -> Floats:
    """(N, J) beliefs where iterations begin."""
    votes_nj = voted(evidence)
    if start is None or not usable(start, evidence.annotations):
        return votes_nj
    met_n = confusion.judged_by(start.annotators, evidence.annotations)
    return np.where(met_n[:, None], judged(start, evidence, unmet_jl), votes_nj)


def beliefs_of(evidence: Evidence, start: Consensus | None, kept: str, judge: Callable[[Consensus], Floats]) -> Floats:
    """(N, J) beliefs where iterations begin, of a method that judges by more than class shares and matrices.

    `kept`: a parameter that a start of this method has; `judge` says what the start makes of all items.
    """
    votes_nj = voted(evidence)
    if start is None or kept not in start.parameters or not usable(start, evidence.annotations):
        return votes_nj
    met_n = confusion.judged_by(start.annotators, evidence.annotations)
    return np.where(met_n[:, None], judge(start), votes_nj)


# -- updates --------------------------------------------------------------------------------------------------

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

    Else an annotator's first answer of a kind would count e^-9, and what was believed without it would stay for ever.
    """
    report = consensus.annotators
    raised_kjl = report.concentration + 1
    mean_kjl = raised_kjl / raised_kjl.sum(axis=2, keepdims=True)
    return replace(consensus, annotators=replace(report, confusion=mean_kjl))
