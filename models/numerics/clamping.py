"""Apply ground truth: to messages before a prior receives them, or to beliefs computed without it."""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.numerics import kernels


def known_truth(evidence: Evidence) -> Floats:
    """Return (N, J) one-hot rows for items with ground truth, 0 for the others."""
    return clamp(np.zeros((evidence.annotations.n_items, evidence.annotations.n_classes)), evidence)


def messages(evidence: Evidence, log_pi_klj: Floats) -> Floats:
    """Return (N, J) log likelihoods of the labels, -inf for classes that ground truth rules out."""
    return observe(kernels.messages(evidence.annotations, log_pi_klj), evidence)


def observe(message_nj: Floats, evidence: Evidence) -> Floats:
    """Set messages to -inf, in place, for every class that ground truth rules out."""
    known = np.flatnonzero(evidence.known)
    if known.size:
        assert evidence.truth is not None
        truth = evidence.truth[known]
        of_truth = message_nj[known, truth]
        message_nj[known] = -np.inf
        message_nj[known, truth] = of_truth
    return message_nj


def clamp(q_nj: Floats, evidence: Evidence) -> Floats:
    """Return beliefs with one-hot rows for items with ground truth. Copies only if there are any."""
    known = np.flatnonzero(evidence.known)
    if not known.size:
        return q_nj
    assert evidence.truth is not None
    clamped = q_nj.copy()
    clamped[known] = 0.0
    clamped[known, evidence.truth[known]] = 1.0
    return clamped
