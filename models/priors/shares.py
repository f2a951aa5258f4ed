"""Class shares: every item is of class j with probability p[j], the same for all (Dawid & Skene 1979).

z_n ~ Cat(p)        p ~ Dirichlet(smoothing + 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics import kernels
from hitl.models.priors import Mask, Posterior, factored


@dataclass(frozen=True, eq=False)
class Shares:
    """Class shares (J,) that sum to 1, with `smoothing` > 0 pseudo-items of each class."""

    share_j: Floats
    smoothing: float = 0.01

    @classmethod
    def even(cls, n_classes: int, smoothing: float = 0.01) -> Shares:
        """Build uniform shares."""
        return cls(np.full(n_classes, 1 / n_classes), smoothing)

    def log_prior(self) -> Floats:
        """Return (1, J) log shares."""
        return np.log(self.share_j)[None]

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Return beliefs of each item independently."""
        return factored(self, message_nj, counted_n)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Floats:
        """Return (J,) expected number of items of each class."""
        return kernels.totals(q_nj, counted_n)

    def learn(self, statistics: Floats) -> Self:
        """Return the posterior mode of the shares: (expected items + smoothing) / total."""
        raised = statistics + self.smoothing
        return type(self)(raised / raised.sum(), self.smoothing)

    def explained(self, statistics: Floats) -> float:
        """Return the expected log probability of the classes, given expected numbers of items per class."""
        return float(statistics @ self.log_prior()[0])

    def log_density(self) -> float:
        """Return the log Dirichlet density of the shares, up to a constant."""
        return float(self.smoothing * np.log(self.share_j).sum())
