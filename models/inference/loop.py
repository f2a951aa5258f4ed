"""Iterations of expectation-maximization, for any truth prior and annotator model.

    E   L = messages(annotators.log_pi), -inf for the classes that ground truth rules out
        q, statistics = prior.posterior(L)
    M   annotators = annotators.learn(counts(q));  prior = prior.learn(statistics)

Iterations never lower the objective, the log posterior of the parameters with the truths summed out:

    sum_n log sum_j p(z_n = j | theta) prod_k pi[k, j, l_nk]  +  log p(pi)  +  log p(theta)

Near the optimum plain EM slows down, so steps there use momentum (Nesterov 1983): the annotators learn from counts
extrapolated by s / (s + 1) of their last change, s steps after momentum began. If that lowers the objective, a plain
step replaces it and s restarts at 0 (O'Donoghue & Candes 2015). Momentum saves up to two thirds of the iterations and
ends nearer to the optimum. The first, large steps are plain: they decide which of several optima is reached, and that
should be the one nearest to the start. The last step is plain too: the loop ends when a plain step gains almost
nothing.

With Dirichlet posteriors in place of point estimates the same loop is variational Bayes: log pi and log p(z) are
expectations, the log densities are negative divergences from the priors, and the objective is the evidence bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from hitl.annotations import Floats
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference.engine import Additive
from hitl.models.priors import TruthPrior

MOMENTUM_BELOW = 1e-2
"""Gain of an iteration, in nats per item, below which steps use momentum."""

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)


@dataclass(frozen=True, eq=False)
class Expected(Additive):
    """Expected counts (K, L, J), statistics that the prior learns from, and log evidence in nats, from one pass."""

    counts_klj: Floats
    statistics: Any
    log_evidence: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Stopping rule: stop once an iteration gains less than `tolerance` nats per item, or after `max_iterations`.

    `counted`: number of items that count.
    """

    counted: int
    tolerance: float
    max_iterations: int

    @property
    def enough(self) -> float:
        """Gain of an iteration, in nats, below which it is the last."""
        return self.tolerance * max(1, self.counted)


Pass = Callable[[Any, Floats], Expected]
"""Prior and log pi (K, L, J) -> expectations by the posterior under these parameters."""


@dataclass(frozen=True, eq=False)
class EMResult(Generic[P, A]):
    """Parameters at the end of EM, and its trace.

    Attributes:
        prior, annotators: parameters of the last pass.
        expected: expectations by the beliefs of the last pass, from which the next parameters would be learned.
        objective: objective after each iteration.
        converged: True if the tolerance ended the loop, False if `max_iterations` did.
        q_nj: (N, J) beliefs of the items if they are one table in memory; empty for shards.
    """

    prior: P
    annotators: A
    expected: Expected
    objective: tuple[float, ...]
    converged: bool
    q_nj: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def counts_klj(self) -> Floats:
        """(K, L, J) expected counts."""
        return self.expected.counts_klj

    @property
    def statistics(self) -> Any:
        return self.expected.statistics


def iterate(expected: Pass, prior: P, annotators: A, found: Expected, limits: Limits) -> EMResult[P, A]:
    """Iterate from the expectations `found`. Old ones are released early: with many classes they take gigabytes."""
    last_klj = found.counts_klj
    trace: list[float] = []
    converged, streak = False, 0
    while not converged and len(trace) < limits.max_iterations:
        prior = prior.learn(found.statistics)
        counts_klj = found.counts_klj
        step = annotators.learn(extrapolate(counts_klj, last_klj, streak / (streak + 1)))
        last_klj = counts_klj
        if not streak:  # a step without momentum is never undone: free memory for the pass
            annotators = step
        found, objective = evaluate(expected, prior, step)
        if streak and objective < trace[-1]:
            streak = 0
            step = annotators.learn(counts_klj)
            found, objective = evaluate(expected, prior, step)
        gain = objective - trace[-1] if trace else np.inf
        trace.append(objective)
        converged = not streak and bool(gain < limits.enough)
        streak = streak + 1 if limits.enough <= gain < MOMENTUM_BELOW * limits.counted else 0
        annotators = step
    return EMResult(prior, annotators, found, tuple(trace), converged)


def evaluate(expected: Pass, prior: TruthPrior, annotators: AnnotatorModel) -> tuple[Expected, float]:
    """Make a pass with these parameters; return its expectations and the objective."""
    found = expected(prior, annotators.log_pi_klj)
    return found, found.log_evidence + annotators.log_density() + prior.log_density()


def extrapolate(counts_klj: Floats, last_klj: Floats, momentum: float) -> Floats:
    """Return the counts plus `momentum` times their change since `last_klj`, at least 0. May overwrite `last_klj`."""
    if not momentum:
        return counts_klj
    last_klj -= counts_klj
    last_klj *= -momentum
    last_klj += counts_klj
    return np.maximum(last_klj, 0.0, out=last_klj)
