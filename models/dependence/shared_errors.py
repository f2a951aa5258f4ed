"""Confidence where people and models err on the same items.

Given its class, an item that misleads a person tends to mislead the next one, and the models too. With the design
effect of cluster samples (Kish 1965; as in `dependence`), m_n labels and the pool of models are worth m_n + 1
independent voices over T_n (`caution`: what models alone are tempered by, see `untold`):

    T_n = caution + rho m_n    beside models, else 1 + rho (m_n - 1)        q_n  ∝  exp( ln q0_n / T_n )

The most probable class stays as it is. How much one error tells of the next is not to be seen where each item has one
or two labels: without truth rho = EXPECTED. With truth for some items ln rho ~ N(ln EXPECTED, SPREAD^2), at its mode.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.numerics.kernels import messages
from hitl.models.priors.calibrated import CAUTION

EXPECTED, SPREAD = 0.4, 0.7
SMALLEST = 1e-300
LOWEST, HIGHEST = np.log(0.01), np.log(3.0)


def temperatures(evidence: Evidence, rho: float, caution: float) -> Floats:
    """(N,) T_n >= 1."""
    spoken = np.any([~np.isnan(p_nj[:, 0]) for p_nj in evidence.probabilities.values()], axis=0)
    labels_n = evidence.annotations.labels_per_item
    return np.where(spoken, caution + rho * labels_n, 1 + rho * np.maximum(labels_n - 1, 0))


def caution_of(consensus: Consensus) -> float:
    """What models alone are tempered by."""
    return float(consensus.parameters.get(CAUTION, np.array(1.0)))


def tempered(evidence: Evidence, log_q0_nj: Floats, rho: float, caution: float) -> Floats:
    """(N, J) beliefs from those under independence, up to a constant a row."""
    beliefs: Floats = softmax(log_q0_nj / temperatures(evidence, rho, caution)[:, None], axis=1)
    return beliefs


def independent(evidence: Evidence, q_nj: Floats, rho: float, caution: float) -> Floats:
    """(N, J) the beliefs under independence again: what `tempered` made less sure."""
    logits_nj = np.log(np.maximum(q_nj, SMALLEST)) * temperatures(evidence, rho, caution)[:, None]
    beliefs: Floats = softmax(logits_nj, axis=1)
    return beliefs


def each_alone(evidence: Evidence, q_nj: Floats, log_pi_klj: Floats, caution: float) -> Floats:
    """(N, J) beliefs by models as sure as they are alone and people, with matrices (K, L, J), taken at their word.

    ln q_nj = ln p_nj + sum of what people said becomes ln p_nj / caution + that sum.
    """
    people_nj = messages(evidence.annotations, log_pi_klj)
    models_nj = np.log(np.maximum(q_nj, SMALLEST)) - people_nj
    beliefs: Floats = softmax(models_nj / temperatures(evidence, 0.0, caution)[:, None] + people_nj, axis=1)
    return beliefs


def learned(evidence: Evidence, log_q0_nj: Floats, caution: float) -> float:
    """rho, by the items of known truth if there are any; log_q0_nj (N, J) as if nothing were known."""
    known = np.flatnonzero(evidence.known)
    if not known.size:
        return EXPECTED
    assert evidence.truth is not None
    logits, truth = log_q0_nj[known], evidence.truth[known]

    def cost(log_rho: float) -> float:
        temperature = temperatures(evidence, float(np.exp(log_rho)), caution)[known, None]
        log_p = log_softmax(logits / temperature, axis=1)[np.arange(known.size), truth]
        return float(((log_rho - np.log(EXPECTED)) / SPREAD) ** 2 / 2 - log_p.sum())

    return float(np.exp(minimize_scalar(cost, bounds=(LOWEST, HIGHEST), method="bounded").x))
