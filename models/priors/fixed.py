"""A prior that is given: log p(z_n = j) of each item as it was worked out elsewhere; nothing of it is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hitl.annotations import Floats
from hitl.models.priors import Mask, Posterior, factored


@dataclass(frozen=True, eq=False)
class Fixed:
    """(N, J) log probabilities, of any normaliser."""

    log_p_nj: Floats

    def log_prior(self) -> Floats:
        """(N, J) as given."""
        return self.log_p_nj

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Beliefs of each item by itself."""
        return factored(self, message_nj, counted_n)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> float:
        """0: there is nothing to learn."""
        return 0.0

    def learn(self, statistics: float) -> Self:
        """Return itself."""
        return self

    def log_density(self) -> float:
        """0: it has no parameters."""
        return 0.0
