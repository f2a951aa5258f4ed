"""The learned prior of a consensus, for other evidence."""

from __future__ import annotations

import numpy as np

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.priors import FactoredPrior
from hitl.models.priors.calibrated import Calibrated
from hitl.models.priors.shares import Shares

LEAST_SHARE = 1e-6
"""Smallest class share: a class that an earlier fit has not met is rare, not impossible."""


def learned_prior(consensus: Consensus, evidence: Evidence) -> FactoredPrior:
    """Return the class shares or, if the consensus learned model temperatures, the pool of the evidence's models."""
    shares = learned_shares(consensus)
    if not (evidence.probabilities and consensus.temperatures):
        return shares
    return Calibrated.from_evidence(evidence, LogTemperature(), consensus).with_shares(shares)


def learned_shares(consensus: Consensus) -> Shares:
    """Return the class shares alone."""
    share_j = np.maximum(consensus.class_shares, LEAST_SHARE)
    return Shares(share_j / share_j.sum())
