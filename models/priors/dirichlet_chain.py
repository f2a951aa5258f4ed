"""A Markov chain of true classes with Dirichlet posteriors of its first class and its steps, for variational Bayes.

    first ~ Dir(nu_0)      step_i ~ Dir(nu_0)      q(step_i) = Dir(nu_0 + expected steps from i)

The passes forward and backward take exp E ln p in place of the probabilities, which sum to less than 1: what they find
is the part of the bound on the log evidence in which the true classes are (Beal 2003, section 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics.special import digamma
from hitl.models.priors import Mask, Posterior
from hitl.models.priors.dirichlet_shares import log_beta
from hitl.models.priors.markov_chain import Sequences, Transitions, chained, independent


@dataclass(frozen=True, eq=False)
class DirichletChain:
    """Dirichlet posteriors of a chain.

    Attributes:
        sequences: which items follow each other.
        nu_rj: (1 + J, J) their parameters: of the first class, and of the step from each class.
        smoothing: pseudo-counts of each in the prior, > 0.
    """

    sequences: Sequences
    nu_rj: Floats
    smoothing: float = 1.0

    @classmethod
    def even(cls, sequences: Sequences, n_classes: int, smoothing: float = 1.0) -> Self:
        """The prior itself."""
        return cls(sequences, np.full((1 + n_classes, n_classes), smoothing), smoothing)

    @property
    def mean_rj(self) -> Floats:
        """(1 + J, J) posterior means: of the first class, and of the step from each class."""
        mean: Floats = self.nu_rj / self.nu_rj.sum(axis=1, keepdims=True)
        return mean

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """q(z) given the messages of the whole sequence."""
        p_rj = np.exp(self._expected_log())
        return chained(self.sequences, message_nj, counted_n, p_rj[0], p_rj[1:])

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Transitions:
        """Pairs of neighbours as if they were independent."""
        return independent(self.sequences, q_nj, counted_n)

    def learn(self, statistics: Transitions) -> Self:
        """Pseudo-counts and expected counts."""
        return replace(self, nu_rj=self.smoothing + np.vstack((statistics.first_j, statistics.pairs_ij)))

    def log_density(self) -> float:
        """-KL(q || prior) of all rows."""
        prior_rj = np.full_like(self.nu_rj, self.smoothing)
        expected_rj = self._expected_log()
        return float(
            np.sum(log_beta(self.nu_rj) - log_beta(prior_rj) - np.sum((self.nu_rj - prior_rj) * expected_rj, axis=1))
        )

    def _expected_log(self) -> Floats:
        expected: Floats = digamma(self.nu_rj) - digamma(self.nu_rj.sum(axis=1, keepdims=True))
        return expected
