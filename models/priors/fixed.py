"""A prior that is given: log p(z_n = j) of each item as somebody else worked it out; nothing of it is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.numerics import kernels


@dataclass(frozen=True, eq=False)
class Fixed:
    """(N, J) log probabilities, of any normaliser."""

    log_p_nj: Floats

    def log_prior(self) -> Floats:
        """(N, J) as given."""
        return self.log_p_nj

    def beliefs(self, message_nj: Floats) -> tuple[Floats, Floats]:
        """(N, J) posterior and (N,) log evidence."""
        return kernels.beliefs(message_nj, self.log_p_nj, out=message_nj)

    def learn(self, q_nj: Floats, informative_n: npt.NDArray[np.bool_]) -> Self:
        """The same."""
        return self

    def log_density(self) -> float:
        """0: it has no parameters."""
        return 0.0
