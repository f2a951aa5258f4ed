"""A combiner: votes squared, p[n, j] ∝ (votes for j + 1/J)^2."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import concluded, used
from hitl.models.majority import report_of_votes
from hitl.models.numerics.votes import voted


@dataclass(frozen=True, slots=True)
class Squared:
    """A majority vote that is surer; `power` >= 1."""

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    power: float = 2.0

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """(N, J) smoothed vote fractions to the power; known truths as they are."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        raised_nj = voted(evidence, 1.0) ** self.power
        q_nj = raised_nj / raised_nj.sum(axis=1, keepdims=True)
        return concluded(self, began, evidence, q_nj, report_of_votes(evidence.annotations, q_nj))
