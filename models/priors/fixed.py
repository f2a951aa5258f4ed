"""Fixed prior: log p(z_n = j) of each item, computed elsewhere; nothing is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hitl.annotations import Floats
from hitl.models.priors import Mask, Posterior, factored


@dataclass(frozen=True, eq=False)
class Fixed:
    """(N, J) log probabilities, with any normalizer."""

    log_p_nj: Floats

    def log_prior(self) -> Floats:
        """Return (N, J) the stored log probabilities."""
        return self.log_p_nj

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Return beliefs of each item independently."""
        return factored(self, message_nj, counted_n)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> float:
        """Return 0: there is nothing to learn."""
        return 0.0

    def learn(self, statistics: float) -> Self:
        """Return itself."""
        return self

    def log_density(self) -> float:
        """Return 0: it has no parameters."""
        return 0.0
