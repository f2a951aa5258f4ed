"""Truth priors: beliefs about items before annotators label them.

A prior takes the messages L[n, j], the log likelihood of all labels of item n if its true class is j, and returns
beliefs. Known truth is evidence like the labels: its messages are -inf for all other classes before the prior
sees them, so a prior that ties items together passes it on to their neighbors.

A prior learns from a statistic. The statistics of two shards of independent items add up to those of both:

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
    """Beliefs of a prior given messages.

    Attributes:
        q_nj: (N, J) marginal beliefs; rows sum to 1.
        log_evidence: log probability of the labels (and known truths) of the items that count, in nats.
        statistics: input to `learn`, from the items that count; two of them add up by `+`.
    """

    q_nj: Floats
    log_evidence: float
    statistics: Any


class TruthPrior(Protocol):
    """p(z | theta) over the true classes of all items, with its parameters theta and their density."""

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Return beliefs given the messages (N, J), -inf where a class is ruled out; `counted_n` (N,) marks items that
        count.

        Items that do not count get beliefs, but the log evidence and the statistics leave them out. May reuse the
        memory of `message_nj` for the beliefs.
        """

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Any:
        """Return the statistics of independent items with these beliefs, from which iterations start."""

    def learn(self, statistics: Any) -> Self:
        """Return the parameters at (or a step nearer to) the maximum of the expected log joint."""

    def log_density(self) -> float:
        """Return the log density of the parameters, up to a constant."""


class FactoredPrior(TruthPrior, Protocol):
    """Truth prior under which items are independent given its parameters."""

    def log_prior(self) -> Floats:
        """Return log p(z_n = j | theta) with any normalizer: (N, J), or (1, J) if it is the same for every item."""


@runtime_checkable
class Same(Protocol):
    """Factored prior that is the same for every item, whose statistics are the numbers of items of each class."""

    def log_prior(self) -> Floats:
        """Return (1, J) log p(z_n = j | theta)."""

    def explained(self, statistics: Any) -> float:
        """Return the expected log probability of the classes with these statistics."""


def factored(prior: FactoredPrior, message_nj: Floats, counted_n: Mask) -> Posterior:
    """Return the exact posterior of a factored prior, item by item."""
    q_nj, log_z_n = kernels.beliefs(message_nj, prior.log_prior(), out=message_nj)
    return Posterior(q_nj, float(np.sum(log_z_n, where=counted_n)), prior.statistics(q_nj, counted_n))
