"""Class shares learned from weighted items, in addition to votes.

    z_n ~ Cat(p)      p ~ Dirichlet(pseudo + 1)      and item n counts u_n in [0, 1] of an item

It maximizes  sum_n u_n log evidence_n  +  sum_j pseudo_j log p_j.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics import kernels
from hitl.models.priors import Mask, Posterior


@dataclass(frozen=True, eq=False)
class WeighedShares:
    """Shares (J,), the weights (N,) of the items they are learned from, and (J,) pseudo-items > 0."""

    share_j: Floats
    weight_n: Floats
    pseudo_j: Floats

    @classmethod
    def unlearned(cls, weight_n: Floats, pseudo_j: Floats) -> WeighedShares:
        """Start at the mode of the prior."""
        return cls(pseudo_j / pseudo_j.sum(), weight_n, pseudo_j)

    def log_prior(self) -> Floats:
        """Return (1, J) log shares."""
        return np.log(self.share_j)[None]

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Return beliefs of each item independently; the evidence is weighted."""
        q_nj, log_evidence_n = kernels.beliefs(message_nj, self.log_prior(), out=message_nj)
        (log_evidence,) = kernels.totals(log_evidence_n[:, None], self.weight_n)
        return Posterior(q_nj, float(log_evidence), self.statistics(q_nj, counted_n))

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Floats:
        """Return (J,) weighted number of items of each class."""
        return kernels.totals(q_nj, self.weight_n)

    def learn(self, statistics: Floats) -> Self:
        """Return the posterior mode of the shares."""
        raised_j = statistics + self.pseudo_j
        return replace(self, share_j=raised_j / raised_j.sum())

    def log_density(self) -> float:
        """Return the log Dirichlet density of the shares, up to a constant."""
        return float(self.pseudo_j @ np.log(self.share_j))
