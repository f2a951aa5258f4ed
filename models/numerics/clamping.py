"""Known truth in beliefs."""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats
from hitl.evidence import Evidence


def known_truth(evidence: Evidence) -> Floats:
    """(N, J) one-hot where the truth is known, else 0."""
    return clamp(np.zeros((evidence.annotations.n_items, evidence.annotations.n_classes)), evidence)


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
