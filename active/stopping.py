"""When an item is done: its truth is known, its confidence reaches the target, or it has its share of labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.consensus import Consensus
from hitl.crew import Budget
from hitl.evidence import Evidence

OPEN, KNOWN, CONFIDENT, LIMIT = 0, 1, 2, 3
REASONS = {KNOWN: "its truth is known", CONFIDENT: "confidence reached the target", LIMIT: "label limit reached"}


def item_states(evidence: Evidence, consensus: Consensus, budget: Budget) -> npt.NDArray[np.int8]:
    """(N,) OPEN, or why the item is done: KNOWN, CONFIDENT (with `min_labels` labels at least), or LIMIT."""
    labels = evidence.annotations.labels_per_item
    state = np.full(len(labels), OPEN, dtype=np.int8)
    state[labels >= budget.max_labels] = LIMIT
    state[(consensus.confidence >= budget.target_confidence) & (labels >= budget.min_labels)] = CONFIDENT
    state[evidence.known] = KNOWN
    return state
