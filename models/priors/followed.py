"""Priors that follow items one by one: what incremental inference needs of a factored prior.

FollowedShares    the same log prior for all items, from the running sums of classes
FollowedPool      one of each item, from what the models predict of it
FollowedOutputs   the running sums, beside what the models say of each item
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

    def log_shares(self, expected_log_share_j: Floats) -> Floats:
        """(J,) part of the log prior that all items have, given the expected log of the running class shares."""
        ...

    def log_items(self) -> Floats:
        """(1, J) or (N or more, J) part that items have of their own."""
        ...

    def join(self, n_items: int) -> None:
        """There are so many items now."""
        ...

    def predict(self, items: Codes, probabilities: Mapping[str, Floats]) -> None:
        """Models predict these probabilities of these items."""
        ...

    def informativeness(self, items: Codes) -> Floats:
        """(n,) how much these items count with too few labels to learn from: as far as models tell their classes."""
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

    def __init__(self, n_classes: int) -> None:
        self.predictions: dict[str, Floats] = {}
        self._nothing = np.zeros((1, n_classes))

    def log_shares(self, expected_log_share_j: Floats) -> Floats:
        """The running shares."""
        return expected_log_share_j

    def log_items(self) -> Floats:
        """Nothing."""
        return self._nothing

    def join(self, n_items: int) -> None:
        """Nothing is kept of an item."""

    def predict(self, items: Codes, probabilities: Mapping[str, Floats]) -> None:
        """Predictions change nothing."""

    def informativeness(self, items: Codes) -> Floats:
        """0: there is no model."""
        return np.zeros(len(items))

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
        self._log_items_nj = self._said(self.predictions)

    def log_shares(self, expected_log_share_j: Floats) -> Floats:
        """Nothing: the pool has shares of its own."""
        return np.zeros_like(expected_log_share_j)

    def log_items(self) -> Floats:
        """(N or more, J)."""
        return self._log_items_nj

    def join(self, n_items: int) -> None:
        """Items that join have no predictions: their prior is the class shares."""
        if n_items > len(self._log_items_nj):
            size = max(n_items, 2 * len(self._log_items_nj))
            rows = np.repeat(self._unsaid(), size - len(self._log_items_nj), axis=0)
            self._log_items_nj = np.concatenate((self._log_items_nj, rows))
            self.predictions = {
                model: np.concatenate((known, np.full_like(rows, np.nan))) for model, known in self.predictions.items()
            }

    def predict(self, items: Codes, probabilities: Mapping[str, Floats]) -> None:
        """Models that abstain on an item leave what they predicted before."""
        for model, rows in probabilities.items():
            predicted = ~np.isnan(rows[:, 0])
            self.predictions[model][items[predicted]] = rows[predicted]
        here = {model: rows[items] for model, rows in self.predictions.items()}
        self._log_items_nj[items] = self._said(here)

    def informativeness(self, items: Codes) -> Floats:
        """0: no annotator is learned from items with few labels, whatever a pool says of them."""
        return np.zeros(len(items))

    def reported_shares(self, q_nj: Floats, running_j: Floats) -> Floats:
        """Those of the pool."""
        return self.pool.reported_shares(q_nj)

    def report(self) -> tuple[dict[str, float], dict[str, Floats]]:
        """Those of the pool."""
        return self.pool.temperatures, self.pool.parameters

    def _said(self, probabilities: Mapping[str, Floats]) -> Floats:
        """(n, J) what models with these predictions say of items."""
        return self.pool.over(probabilities).log_prior()

    def _unsaid(self) -> Floats:
        """(1, J) the same of an item without predictions."""
        return self.pool.shares.log_prior()


@dataclass(eq=False)
class FollowedOutputs(FollowedPool):
    """Class shares from the running sums, and what a held pool says of each item beside its own shares.

    `share_j` (J,) are those, `certain` in [0, 1] how much the pool tells of a class, `parameters` what a consensus
    keeps of it. An item without predictions has the class shares.
    """

    share_j: Floats = field(default_factory=lambda: np.ones(1))
    certain: float = 0.0
    parameters: dict[str, Floats] = field(default_factory=dict)

    def log_shares(self, expected_log_share_j: Floats) -> Floats:
        """The running shares."""
        return expected_log_share_j

    def informativeness(self, items: Codes) -> Floats:
        """What the pool tells of items that a model predicts."""
        predicted_n = np.zeros(len(items), dtype=bool)
        for rows in self.predictions.values():
            predicted_n |= ~np.isnan(rows[items, 0])
        return self.certain * predicted_n

    def reported_shares(self, q_nj: Floats, running_j: Floats) -> Floats:
        """The running shares."""
        return running_j

    def report(self) -> tuple[dict[str, float], dict[str, Floats]]:
        """Those of the pool."""
        return self.pool.temperatures, self.parameters

    def _said(self, probabilities: Mapping[str, Floats]) -> Floats:
        pool = self.pool.over(probabilities)
        said_nj: Floats = pool.log_prior() - np.log(self.share_j)
        said_nj[pool.abstained_n] = 0.0
        return said_nj

    def _unsaid(self) -> Floats:
        return np.zeros((1, self.share_j.size))
