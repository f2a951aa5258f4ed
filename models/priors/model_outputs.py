"""How the probabilities of a model are read before they are calibrated.

    p~[n, j]  =  c p[n, j] + (1 - p[n, j]) (1 - c) / (J - 1),   at least FLOOR

c < 1 for a model that gives labels rather than probabilities (all its rows are one-hot). Such a label is believed as
far as that of an annotator not met, and the temperature says the rest. Else c = 1.

Of a class that annotators use and to which a model gives exactly 0 wherever it predicts (LEAST_ROWS items or more), the
model knows nothing. Each of U such classes has 1 / (U + 1) of the largest probability of the row: annotators decide
between it and the model's choice, and without labels the model does. A model that only ever predicts one class says
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.crew import EXPECTED_ACCURACY
from hitl.models.inference.engine import Additive

FLOOR = 1e-12
"""No model may forbid a class for ever."""

CERTAIN = 1 - 1e-9
LEAST_ROWS = 20
"""Items that a model must predict before it shows what it never says; fewer may be alike by chance."""


@dataclass(frozen=True, eq=False)
class OutputsSeen(Additive):
    """Counts over predictions; they add up over shards.

    Attributes:
        predicted_m: (M,) items that each model predicts.
        unsure_m: (M,) those to which no class is certain.
        possible_mj: (M, J) those in which each class has a chance.
    """

    predicted_m: npt.NDArray[np.int64]
    unsure_m: npt.NDArray[np.int64]
    possible_mj: npt.NDArray[np.int64]

    @classmethod
    def of(cls, models: tuple[str, ...], probabilities: Mapping[str, Floats]) -> Self:
        """Count (N, J) predictions of each model, NaN where it abstains."""
        counted = [_counted(probabilities[name]) for name in models]
        return cls(*(np.array([one[field] for one in counted]) for field in range(3)))

    def read(self, used_j: npt.NDArray[np.bool_]) -> ModelOutputs:
        """Return how the models are read; `used_j` (J,) classes in use."""
        enough_m = self.predicted_m >= LEAST_ROWS
        knows_mj = (self.possible_mj > 0) | ~used_j | ~enough_m[:, None]
        return ModelOutputs(np.where(enough_m & (self.unsure_m == 0), EXPECTED_ACCURACY, 1.0), knows_mj)


def _counted(p_nj: Floats) -> tuple[int, int, npt.NDArray[np.int64]]:
    """Items that a model predicts, those to which no class is certain, and (J,) those in which each has a chance."""
    p_nj = p_nj[~np.isnan(p_nj[:, 0])]
    unsure = len(p_nj) - np.count_nonzero(p_nj.max(axis=1) > CERTAIN)
    return len(p_nj), int(unsure), np.count_nonzero(p_nj > 0, axis=0)


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Reading of M models: `certainty_m` (M,) c in (1 / J, 1], `knows_mj` (M, J) the classes each knows."""

    certainty_m: Floats
    knows_mj: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, models: tuple[str, ...], probabilities: Mapping[str, Floats], used_j: npt.NDArray[np.bool_]
    ) -> ModelOutputs:
        """Read models by their predictions (N, J), NaN where one abstains; `used_j` (J,) classes in use."""
        return OutputsSeen.of(models, probabilities).read(used_j)

    def log_p(self, m: int, p_nj: Floats) -> Floats:
        """(N, J) log probabilities of model m as they are read; 0 where it abstains."""
        abstains = np.isnan(p_nj[:, 0])
        read = np.where(abstains[:, None], 1.0, p_nj)
        c, knows = self.certainty_m[m], self.knows_mj[m]
        if c < 1:
            read = c * read + (1 - read) * ((1 - c) / (read.shape[1] - 1))
        if knows.sum() < 2:
            read[:] = 1 / read.shape[1]
        elif not knows.all():
            read[:, ~knows] = read.max(axis=1, keepdims=True) / (1 + np.sum(~knows))
            read /= read.sum(axis=1, keepdims=True)
        np.maximum(read, FLOOR, out=read)
        np.log(read, out=read)
        read[abstains] = 0.0
        return read
