"""The one loop: expectation-maximisation of a truth prior x an annotator model.

    E   L = messages(annotators.log_pi), -inf for the classes that a known truth rules out
        q, statistics = prior.posterior(L)
    M   annotators = annotators.learn(counts(q));  prior = prior.learn(statistics)

It climbs the log posterior of the parameters (truths summed out), which therefore never falls:

    sum_n log sum_j p(z_n = j | theta) prod_k pi[k, j, l_nk]  +  log p(pi)  +  log p(theta)

Near the top plain EM creeps. There steps gather momentum (Nesterov 1983): the annotators learn from counts that go on
the way of the last step by s / (s + 1) of it, s steps after the start; where that leads down, the plain step is taken
instead and s begins again at 0 (O'Donoghue & Candes 2015). It saves up to two thirds of the iterations and ends nearer
to the top. The first, large steps are plain ones: they decide which of several tops is climbed, and that should be the
one next to the start. So is the last: what ends the loop is a step of plain EM that gains next to nothing.

With Dirichlet posteriors in place of point estimates the same loop is variational Bayes: log pi and log p(z) are
expectations, the densities negative divergences from the priors, and what it climbs is the evidence bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models import combiner
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference.passes import Additive
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp, observe
from hitl.models.priors import Posterior, TruthPrior

MOMENTUM_BELOW = 1e-2
"""Gain of an iteration, in nats an item, below which steps gather momentum."""

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)


@dataclass(frozen=True, eq=False)
class Climbed(Generic[P, A]):
    """Where the loop ended: the prior, the annotators, their counts (K, L, J), and its trace.

    The counts and `statistics` are of the last beliefs: what the annotators and the prior would be learned from next.
    """

    prior: P
    annotators: A
    counts_klj: Floats
    statistics: Any
    objective: tuple[float, ...]
    converged: bool


@dataclass(frozen=True, eq=False)
class Estimate(Climbed[P, A]):
    """The same of a single table, with the beliefs (N, J) of its items."""

    q_nj: Floats


@dataclass(frozen=True, eq=False)
class Expected(Additive):
    """What one pass gives: expected counts (K, L, J), what the prior learns from, log evidence in nats."""

    counts_klj: Floats
    statistics: Any
    log_evidence: float


class Passes(Protocol):
    """The passes that the loop makes over everything that is known."""

    @property
    def counted(self) -> int:
        """How many items the parameters are learned from."""
        ...

    def first(self, prior: Any, log_pi_klj: Floats) -> Expected:
        """By the beliefs at which iterations begin; without log evidence."""
        ...

    def expected(self, prior: Any, log_pi_klj: Floats) -> Expected:
        """By the posterior under these parameters."""
        ...


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
) -> Estimate[P, A]:
    """Iterate from the beliefs `q_nj` until an iteration gains less than `tolerance` nats an item.

    The parameters are learned from items with known truth or at least `least_labels` labels; all are judged. `counts`
    says by which beliefs annotators are judged.
    """
    table = _Table(evidence, q_nj, informative(evidence, least_labels), counts)
    found = climb(table, prior, annotators, tolerance=tolerance, max_iterations=max_iterations)
    return Estimate(
        found.prior,
        found.annotators,
        found.counts_klj,
        found.statistics,
        found.objective,
        found.converged,
        table.q_nj,
    )


def climb(passes: Passes, prior: P, annotators: A, *, tolerance: float, max_iterations: int) -> Climbed[P, A]:
    """The loop itself, over passes: until an iteration gains less than `tolerance` nats an item that counts."""
    enough = tolerance * max(1, passes.counted)
    found = passes.first(prior, annotators.log_pi_klj)
    last_klj = found.counts_klj
    trace: list[float] = []
    converged, streak = False, 0
    while not converged and len(trace) < max_iterations:
        prior = prior.learn(found.statistics)
        counts_klj = found.counts_klj
        step = annotators.learn(_ahead(counts_klj, last_klj, streak / (streak + 1)))
        found, objective = _judged(passes, prior, step)
        if streak and objective < trace[-1]:
            streak = 0
            step = annotators.learn(counts_klj)
            found, objective = _judged(passes, prior, step)
        gain = objective - trace[-1] if trace else np.inf
        trace.append(objective)
        converged = not streak and bool(gain < enough)
        streak = streak + 1 if enough <= gain < MOMENTUM_BELOW * passes.counted else 0
        annotators, last_klj = step, counts_klj
    return Climbed(prior, annotators, found.counts_klj, found.statistics, tuple(trace), converged)


def _judged(passes: Passes, prior: TruthPrior, annotators: AnnotatorModel) -> tuple[Expected, float]:
    """What a pass with these parameters gives, and the objective there."""
    found = passes.expected(prior, annotators.log_pi_klj)
    return found, found.log_evidence + annotators.log_density() + prior.log_density()


@dataclass(eq=False)
class _Table:
    """Passes over one table in memory, whose beliefs are kept."""

    evidence: Evidence
    q_nj: Floats
    informative_n: npt.NDArray[np.bool_]
    counts: Counts

    @property
    def counted(self) -> int:
        return int(self.informative_n.sum())

    def first(self, prior: Any, log_pi_klj: Floats) -> Expected:
        self.q_nj = clamp(self.q_nj, self.evidence)
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


def _ahead(counts_klj: Floats, last_klj: Floats, momentum: float) -> Floats:
    """Counts that go on the way from the last ones to these; not below 0.

    They take the place of the last ones, which nothing reads any more: with many classes a table more is gigabytes.
    """
    if not momentum:
        return counts_klj
    ahead_klj = last_klj
    ahead_klj -= counts_klj
    ahead_klj *= -momentum
    ahead_klj += counts_klj
    return np.maximum(ahead_klj, 0.0, out=ahead_klj)


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
