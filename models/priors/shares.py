"""Class shares: every item is of class j with probability p[j], the same for all (Dawid & Skene 1979).

z_n ~ Cat(p)        p ~ Dirichlet(smoothing + 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.numerics import kernels


@dataclass(frozen=True, eq=False)
class Shares:
    """Class shares (J,) that sum to 1, with `smoothing` > 0 pseudo-items of each class."""

    share_j: Floats
    smoothing: float = 0.01

    @classmethod
    def even(cls, n_classes: int, smoothing: float = 0.01) -> Shares:
        """Every class equally common."""
        return cls(np.full(n_classes, 1 / n_classes), smoothing)

    def log_prior(self) -> Floats:
        """(1, J) log shares."""
        return np.log(self.share_j)[None]

    def beliefs(self, message_nj: Floats) -> tuple[Floats, Floats]:
        """(N, J) posterior and (N,) log evidence."""
        return kernels.beliefs(message_nj, self.log_prior(), out=message_nj)

    def learn(self, q_nj: Floats, informative_n: npt.NDArray[np.bool_]) -> Self:
        """Posterior mode of the shares: (sum_n q[n, j] + smoothing) / total."""
        raised = kernels.totals(q_nj, informative_n) + self.smoothing
        return type(self)(raised / raised.sum(), self.smoothing)

    def log_density(self) -> float:
        """Log Dirichlet density of the shares, up to a constant."""
        return float(self.smoothing * np.log(self.share_j).sum())
