"""Known truth as evidence: in messages, before a prior sees them, and in beliefs that come from elsewhere."""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats
from hitl.evidence import Evidence


def observe(message_nj: Floats, evidence: Evidence) -> Floats:
    """The messages with -inf for every class that a known truth rules out; changed in place."""
    known = np.flatnonzero(evidence.known)
    if known.size:
        assert evidence.truth is not None
        truth = evidence.truth[known]
        of_truth = message_nj[known, truth]
        message_nj[known] = -np.inf
        message_nj[known, truth] = of_truth
    return message_nj


def clamp(q_nj: Floats, evidence: Evidence) -> Floats:
    """Beliefs with the known truths put in as one-hot rows."""
    known = np.flatnonzero(evidence.known)
    if not known.size:
        return q_nj
    assert evidence.truth is not None
    clamped = q_nj.copy()
    clamped[known] = 0.0
    clamped[known, evidence.truth[known]] = 1.0
    return clamped
