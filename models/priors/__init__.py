"""Priors over the true labels: what is believed of an item before anybody labels it."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats


class TruthPrior(Protocol):
    """p(z | theta) over the true labels of all items, with its parameters theta and their density."""

    def beliefs(self, message_nj: Floats) -> tuple[Floats, Floats]:
        """(N, J) posterior given the annotators' log likelihoods, and (N,) log evidence of each item.

        May use the memory of `message_nj` for the posterior.
        """
        ...

    def log_prior(self) -> Floats:
        """(N, J) or (1, J) log p(z_n = j | theta)."""
        ...

    def learn(self, q_nj: Floats, informative_n: npt.NDArray[np.bool_]) -> Self:
        """The parameters that maximise the expected log joint, from the informative items."""
        ...

    def log_density(self) -> float:
        """Log density of the parameters, up to a constant."""
        ...
