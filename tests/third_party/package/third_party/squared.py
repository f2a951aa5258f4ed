"""A combiner: votes squared, p[n, j] ∝ (votes for j + 1/J)^2."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import ClassVar

from hitl.consensus import Consensus, Fit
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import used
from hitl.models.numerics import kernels
from hitl.models.numerics.votes import shares, voted


@dataclass(frozen=True, slots=True)
class Squared:
    """A majority vote that is surer; `power` >= 1."""

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    power: float = 2.0

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """(N, J) smoothed vote fractions to the power; known truths as they are."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations = evidence.annotations
        raised_nj = voted(evidence, 1.0) ** self.power
        q_nj = raised_nj / raised_nj.sum(axis=1, keepdims=True)
        share_j = shares(q_nj)
        pseudo = confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, 0.01)
        report = confusion.report(annotations, kernels.counts(annotations, q_nj), pseudo, share_j)
        fit = Fit("squared", asdict(self), seconds=time.perf_counter() - began)
        return Consensus(annotations.items, annotations.classes, q_nj, report, share_j, fit=fit)
