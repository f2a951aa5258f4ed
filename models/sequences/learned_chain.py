"""What a consensus keeps of its Markov chain, so that other sequences are judged, or a fit goes on from it.

first    (J,)    probability of each class at the beginning of a sequence
steps    (J, J)  probability of each class after each class; rows sum to 1
"""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.inference import em
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.priors.dirichlet_chain import NEVER
from hitl.models.priors.markov_chain import MarkovChain, Sequences

FIRST, STEPS = "first", "steps"


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
    prior = Outputs.of(evidence, consensus).beside(chain)
    return em.expectation(evidence, prior, log_pi_klj).q_nj
