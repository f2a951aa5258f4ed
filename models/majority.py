"""Majority vote: the baseline that needs no explanation.

    p[n, j] = (votes for j + 1/J) / (votes + 1)

A flat truth prior and an annotator model that believes all annotators alike. Options that are no class do not vote.
The smoothing is a Dirichlet prior of one vote in all: an item no annotator labeled is even, one vote is not certainty.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import FittedToShards, concluded, used
from hitl.models.inference import over_shards
from hitl.models.inference.over_shards import used_of
from hitl.models.inference.passes import IN_TURN, Engine
from hitl.models.numerics.checks import require_positive
from hitl.models.numerics.votes import voted


@dataclass(frozen=True, slots=True)
class MajorityVote:
    """Majority vote; `smoothing` is the number of votes spread evenly over the classes of every item, > 0.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import MajorityVote
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> MajorityVote().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, "smoothing")

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """(N, J) smoothed vote fractions; known truths as they are."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        q_nj = voted(evidence, self.smoothing)
        return concluded(self, began, evidence, q_nj, confusion.report_of_votes(evidence.annotations, q_nj))

    def fit_shards(
        self, shards: Sequence[Evidence], *, start: Consensus | None = None, engine: Engine = IN_TURN
    ) -> FittedToShards:
        """Votes of shards; see `Shardable`."""
        began = time.perf_counter()
        return over_shards.voted(self, began, used_of(self, shards), engine, partial(voted, smoothing=self.smoothing))
