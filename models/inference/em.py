"""Expectation-maximization of a truth prior and an annotator model, over shards. A table in memory is one shard.

`loop` has the iterations. This module has a pass: beliefs, the expectations they give, and the items that count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models import combiner
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference import loop, working_set
from hitl.models.inference.engine import Shards, Table
from hitl.models.inference.loop import EMResult as EMResult
from hitl.models.inference.loop import Expected
from hitl.models.inference.working_set import Split
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp, observe
from hitl.models.priors import Posterior, TruthPrior

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)
E = TypeVar("E", Expected, Split)
T = TypeVar("T")

Beliefs = Callable[[Evidence], Floats]
"""A shard -> beliefs (N, J) of its items."""

Counts = Callable[[Annotations, Floats, npt.NDArray[np.bool_], Floats], Floats]
"""Annotations, beliefs (N, J), which items count (N,), log pi (K, L, J) -> expected counts (K, L, J)."""

CountsOf = Callable[[Evidence], Counts]
"""A shard -> its function that counts labels."""

PriorOn = Callable[[Any, Evidence], TruthPrior]
"""Apply a learned prior to the items of a shard."""


def counts_by_all(annotations: Annotations, q_nj: Floats, among_n: npt.NDArray[np.bool_], log_pi_klj: Floats) -> Floats:
    """Return (K, L, J) counts by full beliefs, which include the annotator's own labels."""
    return kernels.counts(annotations, q_nj, among_n)


def same_for_all(prior: Any, evidence: Evidence) -> TruthPrior:
    """Return a prior without item-specific parameters unchanged."""
    learned: TruthPrior = prior
    return learned


def run_em(
    evidence: Evidence | Shards,
    prior: P,
    annotators: A,
    first: Floats | Beliefs,
    *,
    tolerance: float,
    max_iterations: int,
    least_labels: int = 1,
    counts: Counts = counts_by_all,
    counts_of: CountsOf | None = None,
    prior_on: PriorOn = same_for_all,
    begun: Expected | None = None,
) -> EMResult[P, A]:
    """Iterate from first beliefs until an iteration gains less than `tolerance` nats per item.

    Parameters are learned from items with known truth or at least `least_labels` labels; beliefs cover all items.

    Args:
        first: beliefs (N, J) of the table, or a function that computes those of a shard.
        counts: function that counts labels; pass `counts_of` instead if it depends on the shard.
        prior_on: applies the prior to a shard's items.
        begun: expectations of the first beliefs, if already computed.
    """
    shards = evidence if isinstance(evidence, Shards) else Table(evidence)
    beliefs = first if callable(first) else _Constant(first)
    passes = _Passes(shards, prior_on, least_labels, counts_of or _Constant(counts), beliefs)
    size = annotators.log_pi_klj.size
    plain = counts_of is None and counts is counts_by_all and prior_on is same_for_all and begun is None
    if plain and working_set.pays(passes.labels, size, prior):
        return working_set.iterate_in_few_passes(
            passes, prior, annotators, tolerance=tolerance, max_iterations=max_iterations
        )
    return loop.iterate(passes, prior, annotators, tolerance=tolerance, max_iterations=max_iterations, begun=begun)


@dataclass(frozen=True, eq=False)
class Judge(Generic[P]):
    """Compute the posterior of a shard's items under learned parameters.

    A prior that ties items together uses only those with `least_labels` labels or known truth to predict the others.
    """

    prior: P
    log_pi_klj: Floats
    prior_on: PriorOn = same_for_all
    least_labels: int = 0

    def __call__(self, evidence: Evidence) -> Floats:
        """Return (N, J) beliefs."""
        counted_n = informative(evidence, self.least_labels)
        return expectation(evidence, self.prior_on(self.prior, evidence), self.log_pi_klj, counted_n).q_nj


class _Passes:
    """Passes of the loop over shards. For one table in memory, the beliefs of the last pass are stored."""

    def __init__(
        self, shards: Shards, prior_on: PriorOn, least_labels: int, counts_of: CountsOf, beliefs: Beliefs
    ) -> None:
        self._shards, self._prior_on, self._least_labels = shards, prior_on, least_labels
        self._counts_of, self._beliefs = counts_of, beliefs
        self.q_nj: Floats = np.empty((0, shards.annotations.n_classes))
        self.counted, self.labels = shards.size.counted(least_labels), shards.size.labels

    def first(self, prior: Any, log_pi_klj: Floats) -> Expected:
        parameters = prior, log_pi_klj, self._prior_on, self._least_labels, self._counts_of
        return self._total(_First(*parameters, self._beliefs))

    def expected(self, prior: Any, log_pi_klj: Floats) -> Expected:
        return self._total(_Pass(prior, log_pi_klj, self._prior_on, self._least_labels, self._counts_of))

    def split(self, prior: Any, log_pi_klj: Floats, bins: int) -> Split:
        return self._total(_SplitPass(prior, log_pi_klj, self._least_labels, bins))

    def _total(self, work: _Work[E]) -> E:
        if self._shards.table is None:
            return self._shards.total(work)
        found, self.q_nj = work.judge(self._shards.table)
        return found


class _Work(Generic[E]):
    """Work of a pass over one shard."""

    def judge(self, evidence: Evidence) -> tuple[E, Floats]:
        """Return the expectations, and beliefs (N, J)."""
        raise NotImplementedError

    def __call__(self, evidence: Evidence) -> E:
        return self.judge(evidence)[0]


@dataclass(frozen=True, eq=False)
class _Pass(_Work[Expected]):
    """Expectations by the posterior under these parameters."""

    prior: Any
    log_pi_klj: Floats
    prior_on: PriorOn
    least_labels: int
    counts_of: CountsOf

    def judge(self, evidence: Evidence) -> tuple[Expected, Floats]:
        counted_n = informative(evidence, self.least_labels)
        found = expectation(evidence, self.prior_on(self.prior, evidence), self.log_pi_klj, counted_n)
        counts_klj = self.counts_of(evidence)(evidence.annotations, found.q_nj, counted_n, self.log_pi_klj)
        return Expected(counts_klj, found.statistics, found.log_evidence), found.q_nj


@dataclass(frozen=True, eq=False)
class _First(_Pass):
    """Expectations by given beliefs; without log evidence."""

    beliefs: Beliefs

    def judge(self, evidence: Evidence) -> tuple[Expected, Floats]:
        q_nj, counted_n = clamp(self.beliefs(evidence), evidence), informative(evidence, self.least_labels)
        statistics = self.prior_on(self.prior, evidence).statistics(q_nj, counted_n)
        counts_klj = self.counts_of(evidence)(evidence.annotations, q_nj, counted_n, self.log_pi_klj)
        return Expected(counts_klj, statistics, 0.0), q_nj


@dataclass(frozen=True, eq=False)
class _SplitPass(_Work[Split]):
    """Expectations of sure and unsure items, for a prior that is the same for all items."""

    prior: Any
    log_pi_klj: Floats
    least_labels: int
    bins: int

    def judge(self, evidence: Evidence) -> tuple[Split, Floats]:
        return Split.of(evidence, self.prior, self.log_pi_klj, informative(evidence, self.least_labels), self.bins)


@dataclass(frozen=True, eq=False)
class _Constant(Generic[T]):
    """Constant function of a shard."""

    value: T

    def __call__(self, evidence: Evidence) -> T:
        return self.value


def concluded(
    method: Any,
    began: float,
    evidence: Evidence | Shards,
    found: EMResult[P, A],
    people: AnnotatorReport,
    **learned: Any,
) -> Consensus:
    """Return the consensus of a method that iterates; arguments as those of `combiner.concluded`."""
    learned |= {"objective": found.objective, "converged": found.converged}
    return combiner.concluded(method, began, evidence, found.q_nj, people, **learned)


def informative(evidence: Evidence, least_labels: int) -> npt.NDArray[np.bool_]:
    """Return (N,) items to learn from: with known truth or at least `least_labels` labels."""
    return (evidence.annotations.labels_per_item >= least_labels) | evidence.known


def expectation(
    evidence: Evidence, prior: TruthPrior, log_pi_klj: Floats, counted_n: npt.NDArray[np.bool_] | None = None
) -> Posterior:
    """Return beliefs given known truth, and the log evidence and statistics of `counted_n` (default: all)."""
    message_nj = observe(kernels.messages(evidence.annotations, log_pi_klj), evidence)
    counted_n = np.ones(len(message_nj), dtype=bool) if counted_n is None else counted_n
    return prior.posterior(message_nj, counted_n)
