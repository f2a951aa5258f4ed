"""Truth priors: distributions of the true classes before any label is seen.

A prior takes the messages L[n, j], the log likelihood of all labels of item n if its true class is j, and returns
beliefs: the posterior probabilities of the classes. Known truth is applied to the messages first, as -inf for all other
classes. So a prior that ties items together also passes ground truth on to neighbors.

A prior learns from a statistic. The statistics of two shards of independent items add up to the statistics of both:

    class shares      expected number of items of each class
    chain             expected number of transitions
    pool of models    gradient and curvature of the expected log likelihood in the temperatures

A prior whose items are independent given its parameters is a `FactoredPrior`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.numerics import kernels

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class Posterior:
    """Posterior under a prior, given messages.

    Attributes:
        q_nj: (N, J) marginal beliefs; rows sum to 1.
        log_evidence: log probability of the labels (and ground truth) of the items that count, in nats.
        statistics: input to `learn`, from the items that count; `+` adds those of two shards.
    """

    q_nj: Floats
    log_evidence: float
    statistics: Any


class TruthPrior(Protocol):
    """p(z | theta) over the true classes of all items, with its parameters theta and their density."""

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Return the posterior given messages (N, J), which are -inf for classes that are ruled out.

        `counted_n` (N,) marks the items that count. The others get beliefs too, but the log evidence and the statistics
        leave them out. May overwrite `message_nj` with the beliefs.
        """

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Any:
        """Return the statistics of items with these beliefs, treated as independent. Iterations start from them."""

    def learn(self, statistics: Any) -> Self:
        """Return the prior with parameters that maximize the expected log joint, or a step closer to that."""

    def log_density(self) -> float:
        """Return the log density of the parameters, up to a constant."""


class FactoredPrior(TruthPrior, Protocol):
    """Truth prior under which items are independent given its parameters."""

    def log_prior(self) -> Floats:
        """Return log p(z_n = j | theta) up to a constant per item: (N, J), or (1, J) if all items have the same."""

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Return the exact posterior, item by item."""
        q_nj, log_z_n = kernels.beliefs(message_nj, self.log_prior(), out=message_nj)
        return Posterior(q_nj, float(np.sum(log_z_n, where=counted_n)), self.statistics(q_nj, counted_n))


@runtime_checkable
class Same(Protocol):
    """Factored prior that is the same for every item. Its statistics are the expected numbers of items per class."""

    def log_prior(self) -> Floats:
        """Return (1, J) log p(z_n = j | theta)."""

    def explained(self, statistics: Any) -> float:
        """Return the expected log probability of true classes that have these statistics."""
        return float(statistics @ self.log_prior()[0])
