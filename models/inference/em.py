"""Expectation-maximisation of one table: a truth prior x an annotator model.

The loop is `inference.loop`; here is what it needs of a table: beliefs, what they let expect, which items count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models import combiner
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference import working_set
from hitl.models.inference.loop import Climbed, Expected, climb
from hitl.models.inference.working_set import Split, split_of
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp, observe
from hitl.models.priors import Posterior, TruthPrior

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)


@dataclass(frozen=True, eq=False)
class Estimate(Climbed[P, A]):
    """The same of a single table, with the beliefs (N, J) of its items."""

    q_nj: Floats


Counts = Callable[[Annotations, Floats, npt.NDArray[np.bool_], Floats], Floats]
"""Annotations, beliefs (N, J), which items count (N,), log pi (K, L, J) -> expected counts (K, L, J)."""


def counts_by_all(annotations: Annotations, q_nj: Floats, among_n: npt.NDArray[np.bool_], log_pi_klj: Floats) -> Floats:
    """(K, L, J) counts by the beliefs as they are, the annotator's own labels in them."""
    return kernels.counts(annotations, q_nj, among_n)


def maximise(
    evidence: Evidence,
    prior: P,
    annotators: A,
    q_nj: Floats,
    *,
    tolerance: float,
    max_iterations: int,
    least_labels: int = 1,
    counts: Counts = counts_by_all,
    begun: Callable[[], Expected] | None = None,
) -> Estimate[P, A]:
    """Iterate from the beliefs `q_nj` until an iteration gains less than `tolerance` nats an item.

    The parameters are learned from items with known truth or at least `least_labels` labels; all are judged. `counts`
    says by which beliefs annotators are judged. `begun` gives what `q_nj` lets expect, where that is known; it is asked
    once.
    """
    table = _Table(evidence, q_nj, informative(evidence, least_labels), counts, begun)
    quick = counts is counts_by_all and working_set.pays(table.labels, annotators.log_pi_klj.size, prior)
    loop = working_set.climb if quick else climb
    found = loop(table, prior, annotators, tolerance=tolerance, max_iterations=max_iterations)
    return Estimate(
        found.prior,
        found.annotators,
        found.counts_klj,
        found.statistics,
        found.objective,
        found.converged,
        table.q_nj,
    )


@dataclass(eq=False)
class _Table:
    """Passes over one table in memory, whose beliefs are kept."""

    evidence: Evidence
    q_nj: Floats
    informative_n: npt.NDArray[np.bool_]
    counts: Counts
    begun: Callable[[], Expected] | None
    own_nj: Floats | None = None  # beliefs of an earlier pass, whose memory is taken for the next

    @property
    def counted(self) -> int:
        return int(self.informative_n.sum())

    @property
    def labels(self) -> int:
        return len(self.evidence.annotations)

    def split(self, prior: Any, log_pi_klj: Floats, bins: int) -> Split:
        found, self.q_nj = split_of(self.evidence, prior, log_pi_klj, self.informative_n, bins, self.own_nj)
        self.own_nj = self.q_nj
        return found

    def first(self, prior: Any, log_pi_klj: Floats) -> Expected:
        self.q_nj = clamp(self.q_nj, self.evidence)
        if self.begun is not None:
            return self.begun()
        return by_beliefs(self.evidence, prior, self.q_nj, self.informative_n, log_pi_klj, self.counts)

    def expected(self, prior: Any, log_pi_klj: Floats) -> Expected:
        found, self.q_nj = expected(self.evidence, prior, log_pi_klj, self.informative_n, self.counts)
        return found


def expected(
    evidence: Evidence,
    prior: TruthPrior,
    log_pi_klj: Floats,
    informative_n: npt.NDArray[np.bool_],
    counts: Counts = counts_by_all,
) -> tuple[Expected, Floats]:
    """What the posterior under these parameters lets expect, and its beliefs (N, J)."""
    found = expectation(evidence, prior, log_pi_klj, informative_n)
    counts_klj = counts(evidence.annotations, found.q_nj, informative_n, log_pi_klj)
    return Expected(counts_klj, found.statistics, found.log_evidence), found.q_nj


def by_beliefs(
    evidence: Evidence,
    prior: TruthPrior,
    q_nj: Floats,
    informative_n: npt.NDArray[np.bool_],
    log_pi_klj: Floats,
    counts: Counts = counts_by_all,
) -> Expected:
    """What beliefs (N, J) that are given let expect; without log evidence."""
    statistics = prior.statistics(q_nj, informative_n)
    return Expected(counts(evidence.annotations, q_nj, informative_n, log_pi_klj), statistics, 0.0)


def concluded(
    method: Any, began: float, evidence: Evidence, found: Estimate[P, A], people: AnnotatorReport, **learned: Any
) -> Consensus:
    """The consensus of a method that iterates; arguments as those of `combiner.concluded`."""
    trace, converged = found.objective, found.converged
    return combiner.concluded(
        method, began, evidence, found.q_nj, people, objective=trace, converged=converged, **learned
    )


def informative(evidence: Evidence, least_labels: int) -> npt.NDArray[np.bool_]:
    """(N,) items to learn from: with known truth or at least `least_labels` labels."""
    return (evidence.annotations.labels_per_item >= least_labels) | evidence.known


def expectation(
    evidence: Evidence, prior: TruthPrior, log_pi_klj: Floats, counted_n: npt.NDArray[np.bool_] | None = None
) -> Posterior:
    """The E-step: beliefs of all items, known truth observed; log evidence and statistics of some (default: all)."""
    message_nj = observe(kernels.messages(evidence.annotations, log_pi_klj), evidence)
    counted_n = np.ones(len(message_nj), dtype=bool) if counted_n is None else counted_n
    return prior.posterior(message_nj, counted_n)
