"""First beliefs of iterations: the votes, or the predictions of an earlier fit.

An earlier fit predicts by its confusion matrices (for new annotators: by expected ones) and its prior.
It provides the start if it has the same classes and options, for items that an annotator it has met has labeled.
Elsewhere iterations begin at the votes.
"""

from __future__ import annotations

from collections.abc import Callable

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
    """Raise BadEvidence unless the classes are the same."""
    if learned.classes != evidence.annotations.classes:
        known, given = listed(learned.classes), listed(evidence.annotations.classes)
        raise BadEvidence(f"estimated for the classes {known}; the evidence has {given}")


def require_learned(learned: Consensus, *parameters: str) -> None:
    """Raise BadEvidence if the consensus is from another method, which lacks these parameters."""
    if not learned.parameters.keys() >= {*parameters}:
        raise BadEvidence(f"learned by {learned.fit.method}, and not by this method; apply the method that learned it")


def usable(start: Consensus | None, annotations: Annotations) -> bool:
    """Return True if there is a start with the same classes and options."""
    return start is not None and confusion.same_codes(start.annotators, annotations.classes, annotations.options)


def judged(learned: Consensus, evidence: Evidence, unmet_jl: Floats) -> Floats:
    """Return (N, J) learned beliefs; new annotators use `unmet_jl` (any scale). BadEvidence: other classes."""
    require_same_classes(learned, evidence)
    return judged_by(learned, evidence, np.log(confusion.confusion_from(learned, evidence.annotations, unmet_jl)))


def applied(learned: Consensus, evidence: Evidence, unmet_jl: Floats) -> Consensus:
    """Return the learned consensus with beliefs of other items from `judged`."""
    require_same_classes(learned, evidence)
    return applied_under(learned_prior(learned, evidence), learned, evidence, unmet_jl)


def applied_under(prior: TruthPrior, learned: Consensus, evidence: Evidence, unmet_jl: Floats) -> Consensus:
    """Predict other items under another prior than the learned one."""
    log_pi_klj = np.log(confusion.confusion_from(learned, evidence.annotations, unmet_jl))
    return learned.judging(evidence.annotations.items, em.expectation(evidence, prior, log_pi_klj).q_nj)


def judged_by(learned: Consensus, evidence: Evidence, log_pi_klj: Floats) -> Floats:
    """Return (N, J) beliefs by these annotators and the learned class shares."""
    return em.expectation(evidence, learned_prior(learned, evidence), log_pi_klj).q_nj


def first_beliefs(evidence: Evidence, start: Consensus | None, unmet_jl: Floats) -> Floats:
    """Return (N, J) first beliefs of iterations."""
    votes_nj = voted(evidence)
    if start is None or not usable(start, evidence.annotations):
        return votes_nj
    met_n = confusion.judged_by(start.annotators, evidence.annotations)
    return np.where(met_n[:, None], judged(start, evidence, unmet_jl), votes_nj)


def beliefs_of(evidence: Evidence, start: Consensus | None, kept: str, judge: Callable[[Consensus], Floats]) -> Floats:
    """Return (N, J) first beliefs of a method that predicts by more than class shares and matrices.

    `kept`: a parameter that only a start of this method has. `judge`: computes beliefs of all items from the start.
    """
    votes_nj = voted(evidence)
    if start is None or kept not in start.parameters or not usable(start, evidence.annotations):
        return votes_nj
    met_n = confusion.judged_by(start.annotators, evidence.annotations)
    return np.where(met_n[:, None], judge(start), votes_nj)
