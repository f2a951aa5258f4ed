"""Known truth in beliefs."""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats
from hitl.evidence import Evidence


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
