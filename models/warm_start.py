"""What an earlier fit says of these items, and where iterations begin.

An earlier fit judges by its confusion matrices (for strangers: what is expected of them) and its class shares. It is a
start where it speaks of the same classes and options, for the items on which somebody has spoken whom it has met;
elsewhere iterations begin at the votes.
"""

from __future__ import annotations

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models import confusion, em
from hitl.models.majority import voted
from hitl.models.priors.shares import Shares

LEAST_SHARE = 1e-6
"""A class the earlier fit has not seen is rare, not impossible."""


def require_same_classes(learned: Consensus, evidence: Evidence) -> None:
    """Raises BadEvidence for other classes."""
    if learned.classes != evidence.annotations.classes:
        raise BadEvidence(f"learned for classes {learned.classes}; the evidence has {evidence.annotations.classes}")


def usable(start: Consensus | None, annotations: Annotations) -> bool:
    """Whether there is a start that speaks of the same classes and options."""
    return start is not None and confusion.same_codes(start.annotators, annotations.classes, annotations.options)


def judged(learned: Consensus, evidence: Evidence, stranger_jl: Floats) -> Floats:
    """(N, J) beliefs by what was learned; `stranger_jl` (any scale) of people not met. BadEvidence: other classes."""
    require_same_classes(learned, evidence)
    return judged_by(learned, evidence, np.log(confusion.confusion_from(learned, evidence.annotations, stranger_jl)))


def judged_by(learned: Consensus, evidence: Evidence, log_pi_klj: Floats) -> Floats:
    """(N, J) beliefs by these annotators and the class shares that were learned."""
    share_j = np.maximum(learned.class_shares, LEAST_SHARE)
    q_nj, _ = em.expectation(evidence, Shares(share_j / share_j.sum()), log_pi_klj)
    return q_nj


def first_beliefs(evidence: Evidence, start: Consensus | None, stranger_jl: Floats) -> Floats:
    """(N, J) beliefs where iterations begin."""
    votes_nj = voted(evidence)
    if start is None or not usable(start, evidence.annotations):
        return votes_nj
    met_n = confusion.judged_by(start.annotators, evidence.annotations)
    return np.where(met_n[:, None], judged(start, evidence, stranger_jl), votes_nj)
