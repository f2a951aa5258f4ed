"""Consensus of methods whose beliefs come from votes rather than a confusion model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import VotesCounted
from hitl.models.combiner import concluded
from hitl.models.inference.em import Beliefs
from hitl.models.inference.engine import Shards


def voted_consensus(method: Any, began: float, shards: Shards, beliefs: Beliefs, **learned: Any) -> Consensus:
    """Return the consensus with these beliefs; arguments as in `combiner.concluded`."""
    beliefs = shards.once(beliefs)
    people = shards.total(_Counted(beliefs)).report(shards.annotations)
    q_nj = np.empty((0, shards.annotations.n_classes)) if shards.table is None else beliefs(shards.table)
    return concluded(method, began, shards, q_nj, people, **learned)


@dataclass(frozen=True, eq=False)
class _Counted:
    beliefs: Beliefs

    def __call__(self, evidence: Evidence) -> VotesCounted:
        q_nj: Floats = self.beliefs(evidence)
        return VotesCounted.of(evidence.annotations, q_nj)
