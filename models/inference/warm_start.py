"""First beliefs of iterations: the votes, or the predictions of an earlier fit.

An earlier fit predicts with its prior, its confusion matrices and, for new annotators, expected ones. Its predictions
are used if it has the same classes and options, and for items labeled by an annotator that it knows. For all other
items iterations start from the votes.
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
from hitl.models.priors.calibrated import learned_prior


def require_same_classes(learned: Consensus, evidence: Evidence) -> None:
    """Raise BadEvidence unless the consensus and the evidence have the same classes."""
    if learned.classes != evidence.annotations.classes:
        known, given = listed(learned.classes), listed(evidence.annotations.classes)
        fix = "build it with classes=consensus.classes"
        raise BadEvidence(f"estimated for the classes {known}; the evidence has {given}; {fix}")


def require_learned(learned: Consensus, *parameters: str) -> None:
    """Raise BadEvidence unless the consensus has these parameters, that is, comes from the right method."""
    if not learned.parameters.keys() >= {*parameters}:
        raise BadEvidence(f"learned by {learned.fit.method}, and not by this method; apply the method that learned it")


def usable(start: Consensus | None, annotations: Annotations) -> bool:
    """Return True if there is a start with the same classes and options."""
    return start is not None and confusion.same_codes(start.annotators, annotations.classes, annotations.options)


def applied(learned: Consensus, evidence: Evidence, unmet_jl: Floats) -> Consensus:
    """Predict other items by the learned prior and matrices. New annotators get the rows `unmet_jl` (any scale)."""
    require_same_classes(learned, evidence)
    return applied_under(learned_prior(learned, evidence), learned, evidence, unmet_jl)


def applied_under(prior: TruthPrior, learned: Consensus, evidence: Evidence, unmet_jl: Floats) -> Consensus:
    """Predict other items under another prior than the learned one."""
    log_pi_klj = np.log(confusion.confusion_from(learned, evidence.annotations, unmet_jl))
    return learned.judging(evidence.annotations.items, em.expectation(evidence, prior, log_pi_klj).q_nj)


def first_beliefs(evidence: Evidence, start: Consensus | None, unmet_jl: Floats) -> Floats:
    """Return (N, J) first beliefs of a method that predicts by class shares and matrices."""
    return begin(evidence, start, lambda learned: applied(learned, evidence, unmet_jl).probabilities)


def begin(
    evidence: Evidence,
    start: Consensus | None,
    judge: Callable[[Consensus], Floats],
    votes_nj: Floats | None = None,
    needs: str | None = None,
) -> Floats:
    """Return (N, J) first beliefs: `judge(start)` for items where `start` can be used, else the votes.

    `votes_nj` (N, J): beliefs to use as the votes; default: smoothed vote fractions. `needs`: a parameter that `start`
    must have to be used.
    """
    first_nj = voted(evidence) if votes_nj is None else votes_nj
    if start is None or not usable(start, evidence.annotations) or (needs and needs not in start.parameters):
        return first_nj
    met_n = confusion.labeled_by_known(start.annotators, evidence.annotations)
    return np.where(met_n[:, None], judge(start), first_nj)
