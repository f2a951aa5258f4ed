"""Class shares as the prior of all items, at their mode or with a Dirichlet posterior; and a fixed prior per item.

z_n ~ Cat(p)        p ~ Dirichlet(smoothing + 1)        at its mode                            (Dawid & Skene 1979)
p ~ Dir(nu_0)       q(p) = Dir(nu),  nu_j = nu_0 + N_j,  E ln p_j = psi(nu_j) - psi(sum nu)    (Simpson 2011, 14-18)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics import kernels
from hitl.models.numerics.special import digamma, log_gamma
from hitl.models.priors import FactoredPrior, Mask, Same


@dataclass(frozen=True, eq=False)
class Shares(FactoredPrior, Same):
    """Class shares at their posterior mode.

    Attributes:
        share_j: (J,) shares, which sum to 1.
        smoothing: number of pseudo-items of each class, > 0: one number, or (J,).
    """

    share_j: Floats
    smoothing: Any = 0.01

    @classmethod
    def even(cls, n_classes: int, smoothing: float = 0.01) -> Shares:
        """Build uniform shares."""
        return cls(np.full(n_classes, 1 / n_classes), smoothing)

    def log_prior(self) -> Floats:
        """Return (1, J) log shares."""
        return np.log(self.share_j)[None]

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Floats:
        return kernels.totals(q_nj, counted_n)

    def learn(self, statistics: Floats) -> Self:
        """Return the posterior mode of the shares: (expected items + smoothing) / total."""
        raised = statistics + self.smoothing
        return replace(self, share_j=raised / raised.sum())

    def log_density(self) -> float:
        return float(np.sum(self.smoothing * np.log(self.share_j)))


@dataclass(frozen=True, eq=False)
class DirichletShares(FactoredPrior, Same):
    """Dirichlet posterior of the class shares.

    Attributes:
        nu_j: (J,) Dirichlet parameters.
        smoothing: number of pseudo-items of each class in the prior, > 0: one number, or (J,).
    """

    nu_j: Floats
    smoothing: Any = 1.0

    @classmethod
    def even(cls, n_classes: int, smoothing: float = 1.0) -> DirichletShares:
        """Build the shares before any data, whose posterior is the prior."""
        return cls(np.full(n_classes, smoothing), smoothing)

    @property
    def share_j(self) -> Floats:
        """(J,) posterior mean of the shares."""
        return np.asarray(self.nu_j / self.nu_j.sum())

    def log_prior(self) -> Floats:
        """Return (1, J) expected log shares."""
        return np.asarray((digamma(self.nu_j) - digamma(self.nu_j.sum()))[None])

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Floats:
        return kernels.totals(q_nj, counted_n)

    def learn(self, statistics: Floats) -> Self:
        """Return nu = nu_0 + expected number of items of each class (eq. 17)."""
        return replace(self, nu_j=statistics + self.smoothing)

    def log_density(self) -> float:
        prior_j = np.full_like(self.nu_j, self.smoothing)
        evidence = log_beta(self.nu_j) - log_beta(prior_j)
        return float(evidence - (self.nu_j - prior_j) @ self.log_prior()[0])


def log_beta(alpha: Floats) -> Floats:
    """Return the log multivariate beta function over the last axis, the log normalizer of a Dirichlet."""
    return np.asarray(log_gamma(alpha).sum(axis=-1) - log_gamma(alpha.sum(axis=-1)))


@dataclass(frozen=True, eq=False)
class Fixed(FactoredPrior):
    """Prior (N, J) log p(z_n = j), computed elsewhere, up to a constant per item; nothing is learned."""

    log_p_nj: Floats

    def log_prior(self) -> Floats:
        return self.log_p_nj

    def statistics(self, q_nj: Floats, counted_n: Mask) -> float:
        return 0.0

    def learn(self, statistics: float) -> Self:
        return self

    def log_density(self) -> float:
        return 0.0
