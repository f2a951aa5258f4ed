"""Class shares with a Dirichlet posterior (Simpson et al. 2011, eqs. 14-18), for variational Bayes.

    p ~ Dir(nu_0)      q(p) = Dir(nu),  nu_j = nu_0 + N_j      E ln p_j = psi(nu_j) - psi(sum nu)

With an anchor w the beliefs N_j count (1 - w) and the votes V_j count w (see `models.dirichlet`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics import kernels
from hitl.models.numerics.special import digamma, log_gamma
from hitl.models.priors import Mask, Posterior, factored


@dataclass(frozen=True, eq=False)
class DirichletShares:
    """Dirichlet posterior of the class shares.

    Attributes:
        nu_j: (J,) its parameters.
        smoothing: pseudo-items of each class in the prior, > 0.
        anchor: weight of the votes in the counts, in [0, 1).
        votes_j: (J,) number of items of each class by agreeing votes.
    """

    nu_j: Floats
    smoothing: float = 1.0
    anchor: float = 0.0
    votes_j: Floats | float = 0.0

    @classmethod
    def even(cls, n_classes: int, smoothing: float = 1.0) -> DirichletShares:
        """Return the prior itself."""
        return cls(np.full(n_classes, smoothing), smoothing)

    @property
    def share_j(self) -> Floats:
        """(J,) posterior mean of the shares."""
        mean: Floats = self.nu_j / self.nu_j.sum()
        return mean

    def log_prior(self) -> Floats:
        """Return (1, J) expected log shares."""
        expected: Floats = (digamma(self.nu_j) - digamma(self.nu_j.sum()))[None]
        return expected

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Return q(z), item by item."""
        return factored(self, message_nj, counted_n)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Floats:
        """Return (J,) expected number of items of each class."""
        return kernels.totals(q_nj, counted_n)

    def learn(self, statistics: Floats) -> Self:
        """Return nu = nu_0 + expected number of items of each class (eq. 17)."""
        return replace(self, nu_j=(1 - self.anchor) * statistics + self.anchor * self.votes_j + self.smoothing)

    def explained(self, statistics: Floats) -> float:
        """Return the expected log probability of the classes, given expected numbers of items per class."""
        return float(statistics @ self.log_prior()[0])

    def log_density(self) -> float:
        """Return (-KL(q(p) || p(p)) + w E ln p(votes)) / (1 - w), in units of the beliefs' weight."""
        prior_j = np.full_like(self.nu_j, self.smoothing)
        evidence = log_beta(self.nu_j) - log_beta(prior_j)
        explained = (self.nu_j - prior_j - self.anchor * self.votes_j) @ self.log_prior()[0]
        return float((evidence - explained) / (1 - self.anchor))


def log_beta(alpha: Floats) -> Floats:
    """Return the log multivariate beta function over the last axis, the log normalizer of a Dirichlet."""
    value: Floats = log_gamma(alpha).sum(axis=-1) - log_gamma(alpha.sum(axis=-1))
    return value
