"""Single steps of the loop, for tests that look at one of them."""

from __future__ import annotations

from typing import Any

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.numerics import kernels


def maximisation(evidence: Evidence, prior: Any, annotators: Any, q_nj: Floats, counted_n: Any) -> tuple[Any, Any, Any]:
    """The M-step: expected counts (K, L, J), the annotators, and the prior."""
    counts_klj = kernels.counts(evidence.annotations, q_nj, counted_n)
    return counts_klj, annotators.learn(counts_klj), prior.learn(prior.statistics(q_nj, counted_n))
