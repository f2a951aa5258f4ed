"""Class shares with a Dirichlet posterior (Simpson et al. 2011, eqs. 14-18), for variational Bayes.

p ~ Dir(nu_0)      q(p) = Dir(nu),  nu_j = nu_0 + N_j      E ln p_j = psi(nu_j) - psi(sum nu)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, gammaln

from hitl.annotations import Floats
from hitl.models import kernels


@dataclass(frozen=True, eq=False)
class DirichletShares:
    """Dirichlet parameters `nu_j` (J,) of the class shares; the prior has `smoothing` > 0 pseudo-items a class."""

    nu_j: Floats
    smoothing: float = 1.0

    @classmethod
    def even(cls, n_classes: int, smoothing: float = 1.0) -> DirichletShares:
        """The prior itself."""
        return cls(np.full(n_classes, smoothing), smoothing)

    @property
    def share_j(self) -> Floats:
        """(J,) posterior mean of the shares."""
        mean: Floats = self.nu_j / self.nu_j.sum()
        return mean

    def log_prior(self) -> Floats:
        """(1, J) expected log shares."""
        expected: Floats = (digamma(self.nu_j) - digamma(self.nu_j.sum()))[None]
        return expected

    def beliefs(self, message_nj: Floats) -> tuple[Floats, Floats]:
        """(N, J) q(z) and (N,) log normalisers."""
        return kernels.beliefs(message_nj, self.log_prior())

    def learn(self, q_nj: Floats, informative_n: npt.NDArray[np.bool_]) -> Self:
        """nu = nu_0 + expected number of informative items of each class (eq. 17)."""
        return replace(self, nu_j=q_nj[informative_n].sum(axis=0) + self.smoothing)

    def log_density(self) -> float:
        """-KL(q(p) || p(p)), in nats."""
        prior_j = np.full_like(self.nu_j, self.smoothing)
        gained_j = self.nu_j - prior_j
        return float(log_beta(self.nu_j) - log_beta(prior_j) - gained_j @ self.log_prior()[0])


def log_beta(alpha: Floats) -> Floats:
    """Log of the multivariate beta function over the last axis: the log normaliser of a Dirichlet."""
    value: Floats = gammaln(alpha).sum(axis=-1) - gammaln(alpha.sum(axis=-1))
    return value
