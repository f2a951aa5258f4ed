"""What a consensus keeps of its Markov chain, so that other sequences are judged, or a fit goes on from it.

first    (J,)    probability of each class at the beginning of a sequence
steps    (J, J)  probability of each class after each class; rows sum to 1
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.inference import em
from hitl.models.inference.warm_start import require_same_classes, usable
from hitl.models.numerics.votes import voted
from hitl.models.priors.dirichlet_chain import NEVER
from hitl.models.priors.markov_chain import MarkovChain, Sequences

FIRST, STEPS = "first", "steps"

LogAnswers = Callable[[Consensus, Annotations], Floats]
"""What a consensus says of these annotators: (K, L, J) log probabilities of their answers."""


def sequences_of(evidence: Evidence) -> Sequences:
    """Which items follow each other."""
    assert evidence.sequence is not None
    return Sequences(evidence.sequence)


def judged(consensus: Consensus, evidence: Evidence, log_pi_klj: Floats) -> Floats:
    """(N, J) beliefs by the chain that was learned and these annotators. Raises BadEvidence for other classes."""
    require_same_classes(consensus, evidence)
    kept = consensus.parameters
    first_j, step_ij = (np.maximum(kept[name], np.exp(NEVER)) for name in (FIRST, STEPS))
    chain = MarkovChain(sequences_of(evidence), first_j, step_ij)
    return em.expectation(evidence, chain, log_pi_klj).q_nj


def first_beliefs(evidence: Evidence, start: Consensus | None, log_pi: LogAnswers) -> Floats:
    """(N, J) where iterations begin: at the votes, or at what an earlier fit says of items of annotators it has met."""
    if start is None or FIRST not in start.parameters or not usable(start, evidence.annotations):
        return voted(evidence)
    return where_met(start, evidence, judged(start, evidence, log_pi(start, evidence.annotations)))


def where_met(start: Consensus, evidence: Evidence, q_nj: Floats) -> Floats:
    """(N, J) these beliefs for items of annotators that `start` has met, votes for others."""
    met_n = confusion.judged_by(start.annotators, evidence.annotations)
    return np.where(met_n[:, None], q_nj, voted(evidence))
