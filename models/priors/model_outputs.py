"""Preprocessing of model probabilities before calibration.

    p~[n, j]  =  c p[n, j] + (1 - p[n, j]) (1 - c) / (J - 1),   at least FLOOR

c < 1 for a model that gives labels rather than probabilities (all its rows are one-hot). Such a label is trusted as
much as that of a new annotator, and the temperature does the rest. Else c = 1.

If annotators use a class and a model gives it exactly 0 on all its items (LEAST_ROWS or more), the model does not
know that class. Each of U such classes gets 1 / (U + 1) of the row's largest probability, so annotators decide
between it and the model's choice, and without labels the model does. A model that only ever predicts one class is
ignored.
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
"""Smallest probability, so that no model rules out a class forever."""

CERTAIN = 1 - 1e-9
LEAST_ROWS = 20
"""Items that a model must predict before its zeros count as unknown classes; fewer may be alike by chance."""


@dataclass(frozen=True, eq=False)
class OutputsSeen(Additive):
    """Counts over predictions; they add up over shards.

    Attributes:
        predicted_m: (M,) items that each model predicts.
        unsure_m: (M,) those without a certain class.
        possible_mj: (M, J) those in which each class has a nonzero probability.
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
        """Return how the models are read; `used_j` (J,) marks classes in use."""
        enough_m = self.predicted_m >= LEAST_ROWS
        knows_mj = (self.possible_mj > 0) | ~used_j | ~enough_m[:, None]
        return ModelOutputs(np.where(enough_m & (self.unsure_m == 0), EXPECTED_ACCURACY, 1.0), knows_mj)


def _counted(p_nj: Floats) -> tuple[int, int, npt.NDArray[np.int64]]:
    """Count predicted items, those without a certain class, and (J,) those in which each class is possible."""
    p_nj = p_nj[~np.isnan(p_nj[:, 0])]
    unsure = len(p_nj) - np.count_nonzero(p_nj.max(axis=1) > CERTAIN)
    return len(p_nj), int(unsure), np.count_nonzero(p_nj > 0, axis=0)


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Preprocessing of M models: `certainty_m` (M,) c in (1 / J, 1], `knows_mj` (M, J) True for classes each knows."""

    certainty_m: Floats
    knows_mj: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, models: tuple[str, ...], probabilities: Mapping[str, Floats], used_j: npt.NDArray[np.bool_]
    ) -> ModelOutputs:
        """Decide how to read models from their predictions (N, J), NaN where one abstains; `used_j` (J,) marks classes
        in use."""
        return OutputsSeen.of(models, probabilities).read(used_j)

    def log_p(self, m: int, p_nj: Floats) -> Floats:
        """Return (N, J) log probabilities of model m after preprocessing; 0 where it abstains."""
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
