"""Majority vote: the baseline that needs no explanation.

    p[n, j] = (votes for j + 1/J) / (votes + 1)

A flat truth prior and an annotator model that trusts all annotators equally. Options that are no class do not vote.
The smoothing is a Dirichlet prior of one vote in total: an unlabeled item is uniform, and one vote is not certainty.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import used_shards
from hitl.models.inference.engine import Shards
from hitl.models.inference.voted import voted_consensus
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.votes import voted


@dataclass(frozen=True, slots=True)
class MajorityVote:
    """Majority vote; `smoothing` is the number of votes spread evenly over the classes of every item, > 0.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.MajorityVote().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    fits_shards: ClassVar[bool] = True

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Count votes; `start` is ignored."""
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        return voted_consensus(self, began, shards, self._beliefs)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Count the votes on other items."""
        require_same_classes(consensus, evidence)
        return consensus.judging(evidence.annotations.items, self._beliefs(evidence))

    def _beliefs(self, evidence: Evidence) -> Floats:
        """Return (N, J) smoothed vote fractions; known truths stay one-hot."""
        return voted(evidence, self.smoothing)
