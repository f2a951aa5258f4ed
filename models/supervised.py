"""What methods share that learn from known truth alone, of people and models."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models import em


def told_truth(evidence: Evidence, method: str) -> Floats:
    """(N, J) one-hot where the truth is known, else 0. Raises BadEvidence without a model or without any truth."""
    if not evidence.probabilities:
        raise BadEvidence(
            f"{method} needs class probabilities of a model (probabilities=, --probabilities) and found none"
        )
    if not evidence.known.any():
        raise BadEvidence(f"{method} learns from known truth and found none; give truth for some items, or use P+L-EM")
    annotations = evidence.annotations
    return em.clamp(np.zeros((annotations.n_items, annotations.n_classes)), evidence)


def speaks(probability_nj: Floats) -> npt.NDArray[np.bool_]:
    """(N,) where a model is not silent."""
    spoken: npt.NDArray[np.bool_] = ~np.isnan(probability_nj[:, 0])
    return spoken
