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
from numba import prange

from hitl.annotations import Floats
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference.passes import Additive
from hitl.models.numerics.compiled import compiled, inlined, threaded
from hitl.models.numerics.kernels import threads_for
from hitl.models.priors import TruthPrior

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


class From:
    """The same passes, from what the last one gave."""

    def __init__(self, found: Expected, passes: Passes) -> None:
        self._found, self.counted, self.expected = found, passes.counted, passes.expected

    def first(self, prior: Any, log_pi_klj: Floats) -> Expected:
        """What that pass gave."""
        return self._found


def climb(
    passes: Passes,
    prior: P,
    annotators: A,
    *,
    tolerance: float,
    max_iterations: int,
    ahead: Callable[[Floats, Floats, float], Floats] | None = None,
) -> Climbed[P, A]:
    """The loop itself, over passes: until an iteration gains less than `tolerance` nats an item that counts.

    `ahead`: what goes on from the last counts over these by a momentum, where counts are not whole tables.
    """
    go_on = _ahead if ahead is None else ahead
    enough = tolerance * max(1, passes.counted)
    found = passes.first(prior, annotators.log_pi_klj)
    last_klj = found.counts_klj
    trace: list[float] = []
    converged, streak = False, 0
    while not converged and len(trace) < max_iterations:
        prior = prior.learn(found.statistics)
        counts_klj = found.counts_klj
        step = annotators.learn(go_on(counts_klj, last_klj, streak / (streak + 1)))
        last_klj = counts_klj
        if not streak:  # no way back: what this step began with is not held beside what the pass makes
            annotators = step
        found, objective = judged(passes, prior, step)
        if streak and objective < trace[-1]:
            streak = 0
            step = annotators.learn(counts_klj)
            found, objective = judged(passes, prior, step)
        gain = objective - trace[-1] if trace else np.inf
        trace.append(objective)
        converged = not streak and bool(gain < enough)
        streak = streak + 1 if enough <= gain < MOMENTUM_BELOW * passes.counted else 0
        annotators = step
    return Climbed(prior, annotators, found.counts_klj, found.statistics, tuple(trace), converged)


def judged(passes: Passes, prior: TruthPrior, annotators: AnnotatorModel) -> tuple[Expected, float]:
    """What a pass with these parameters gives, and the objective there."""
    found = passes.expected(prior, annotators.log_pi_klj)
    return found, found.log_evidence + annotators.log_density() + prior.log_density()


def _ahead(counts_klj: Floats, last_klj: Floats, momentum: float) -> Floats:
    """Counts that go on the way from the last ones to these; not below 0.

    They take the place of the last ones, which nothing reads any more: with many classes a table more is gigabytes.
    """
    if not momentum:
        return counts_klj
    loop = _ahead_threaded if threads_for(counts_klj.size) > 1 else _ahead_alone
    loop(counts_klj.ravel(), momentum, last_klj.reshape(-1))
    return last_klj


@inlined
def _on(count: float, last: float, momentum: float) -> float:
    return max(count - momentum * (last - count), 0.0)


@compiled
def _ahead_alone(counts: Any, momentum: float, last: Any) -> None:
    for i in range(counts.shape[0]):
        last[i] = _on(counts[i], last[i], momentum)


@threaded
def _ahead_threaded(counts: Any, momentum: float, last: Any) -> None:
    for i in prange(counts.shape[0]):
        last[i] = _on(counts[i], last[i], momentum)
