"""Priors that follow items one by one: what incremental inference needs of a factored prior.

FollowedShares    the same log prior for all items, from the running sums of classes
FollowedPool      one of each item, from what the models predict of it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.priors.calibrated import Calibrated

Codes = npt.NDArray[np.int64]


class FollowedPrior(Protocol):
    """A prior over items that join, and of which models may predict something new."""

    @property
    def uninformed(self) -> bool:
        """Whether it says the same of every item."""
        ...

    @property
    def predictions(self) -> Mapping[str, Floats]:
        """Model name -> (N or more, J) probabilities, NaN where the model abstains."""
        ...

    def log_prior(self, expected_log_share_j: Floats) -> Floats:
        """(1, J) or (N or more, J) log prior, given the expected log of the running class shares."""
        ...

    def join(self, n_items: int) -> None:
        """There are so many items now."""
        ...

    def predict(self, items: Codes, probabilities: Mapping[str, Floats]) -> None:
        """Models predict these probabilities of these items."""
        ...

    def reported_shares(self, q_nj: Floats, running_j: Floats) -> Floats:
        """(J,) class shares of a consensus with beliefs q_nj, of which the running sums say `running_j`."""
        ...

    def report(self) -> tuple[dict[str, float], dict[str, Floats]]:
        """Temperatures and parameters of a consensus."""
        ...


class FollowedShares:
    """Class shares, from the running sums alone."""

    uninformed = True

    def __init__(self) -> None:
        self.predictions: dict[str, Floats] = {}

    def log_prior(self, expected_log_share_j: Floats) -> Floats:
        """(1, J)."""
        return expected_log_share_j[None]

    def join(self, n_items: int) -> None:
        """Nothing is kept of an item."""

    def predict(self, items: Codes, probabilities: Mapping[str, Floats]) -> None:
        """Predictions change nothing."""

    def reported_shares(self, q_nj: Floats, running_j: Floats) -> Floats:
        """The running shares."""
        return running_j

    def report(self) -> tuple[dict[str, float], dict[str, Floats]]:
        """Neither."""
        return {}, {}


@dataclass(eq=False)
class FollowedPool:
    """A pool of models, held at its temperatures. `predictions` are copied; they grow with the items."""

    pool: Calibrated
    predictions: dict[str, Floats] = field(default_factory=dict)
    uninformed = False

    def __post_init__(self) -> None:
        self.predictions = {model: rows.copy() for model, rows in self.predictions.items()}
        self._log_prior_nj = self.pool.log_prior()

    def log_prior(self, expected_log_share_j: Floats) -> Floats:
        """(N or more, J)."""
        return self._log_prior_nj

    def join(self, n_items: int) -> None:
        """Items that join have no predictions: their prior is the class shares."""
        if n_items > len(self._log_prior_nj):
            size = max(n_items, 2 * len(self._log_prior_nj))
            rows = np.repeat(self.pool.shares.log_prior(), size - len(self._log_prior_nj), axis=0)
            self._log_prior_nj = np.concatenate((self._log_prior_nj, rows))
            self.predictions = {
                model: np.concatenate((known, np.full_like(rows, np.nan))) for model, known in self.predictions.items()
            }

    def predict(self, items: Codes, probabilities: Mapping[str, Floats]) -> None:
        """Models that abstain on an item leave what they predicted before."""
        for model, rows in probabilities.items():
            predicted = ~np.isnan(rows[:, 0])
            self.predictions[model][items[predicted]] = rows[predicted]
        here = {model: rows[items] for model, rows in self.predictions.items()}
        self._log_prior_nj[items] = self.pool.over(here).log_prior()

    def reported_shares(self, q_nj: Floats, running_j: Floats) -> Floats:
        """Those of the pool."""
        return self.pool.reported_shares(q_nj)

    def report(self) -> tuple[dict[str, float], dict[str, Floats]]:
        """Those of the pool."""
        return self.pool.temperatures, self.pool.parameters
