"""Markov chain of true classes with Dirichlet posteriors of first classes and transitions, for variational Bayes.

    first ~ Dir(nu_0)      step_i ~ Dir(nu_0)      q(step_i) = Dir(nu_0 + expected steps from i)

The forward and backward passes use exp E ln p in place of probabilities, which sum to less than 1. Their result
is the part of the evidence bound that contains the true classes (Beal 2003, section 3.4).

Forbidden transitions are left out of the Dirichlets and get probability e^-40: known truth may break the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.numerics.special import digamma
from hitl.models.priors import Mask, Posterior
from hitl.models.priors.markov_chain import Sequences, Transitions, chained, independent
from hitl.models.priors.shares import log_beta

NEVER = -40.0
"""Log probability of a forbidden transition."""


@dataclass(frozen=True, eq=False)
class DirichletChain:
    """Dirichlet posteriors of a chain.

    Attributes:
        sequences: which items follow each other.
        nu_rj: (1 + J, J) their parameters: of the first class, and of the transition from each class.
        smoothing: pseudo-counts of each in the prior, > 0.
        allowed_rj: (1 + J, J) allowed first classes and transitions; None: all.
    """

    sequences: Sequences
    nu_rj: Floats
    smoothing: float = 1.0
    allowed_rj: npt.NDArray[np.bool_] | None = None

    @classmethod
    def even(
        cls,
        sequences: Sequences,
        n_classes: int,
        smoothing: float = 1.0,
        allowed_rj: npt.NDArray[np.bool_] | None = None,
    ) -> Self:
        """Return the prior itself."""
        allowed = np.ones((1 + n_classes, n_classes), dtype=bool) if allowed_rj is None else allowed_rj
        return cls(sequences, np.where(allowed, smoothing, 0.0), smoothing, allowed_rj)

    @property
    def mean_rj(self) -> Floats:
        """(1 + J, J) posterior means of the first class and of the transition from each class."""
        return np.asarray(self.nu_rj / self.nu_rj.sum(axis=1, keepdims=True))

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        p_rj = np.exp(self._expected_log())
        return chained(self.sequences, message_nj, counted_n, p_rj[0], p_rj[1:])

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Transitions:
        return independent(self.sequences, q_nj, counted_n)

    def learn(self, statistics: Transitions) -> Self:
        counted_rj = self.smoothing + np.vstack((statistics.first_j, statistics.pairs_ij))
        return replace(
            self, nu_rj=counted_rj if self.allowed_rj is None else np.where(self.allowed_rj, counted_rj, 0.0)
        )

    def log_density(self) -> float:
        rows = zip(self.nu_rj, self._expected_log(), strict=True)
        return sum(self._row_density(nu_j[nu_j > 0], expected_j[nu_j > 0]) for nu_j, expected_j in rows)

    def _row_density(self, nu_j: Floats, expected_j: Floats) -> float:
        prior_j = np.full_like(nu_j, self.smoothing)
        return float(log_beta(nu_j) - log_beta(prior_j) - (nu_j - prior_j) @ expected_j)

    def _expected_log(self) -> Floats:
        there = self.nu_rj > 0
        total = digamma(self.nu_rj.sum(axis=1, keepdims=True))
        return np.asarray(np.where(there, digamma(np.where(there, self.nu_rj, 1.0)) - total, NEVER))
