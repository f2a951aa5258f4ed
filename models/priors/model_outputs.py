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

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.crew import EXPECTED_ACCURACY

FLOOR = 1e-12
"""No model may forbid a class for ever."""

CERTAIN = 1 - 1e-9
LEAST_ROWS = 20
"""Items that a model must predict before it shows what it never says; fewer may be alike by chance."""


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """How each of M models is read: `certainty_m` (M,) c in (1 / J, 1], `knows_mj` (M, J) the classes it knows."""

    certainty_m: Floats
    knows_mj: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, models: tuple[str, ...], probabilities: Mapping[str, Floats], used_j: npt.NDArray[np.bool_]
    ) -> ModelOutputs:
        """As these predictions, (N, J) of each model, NaN where it abstains, look; `used_j` (J,) classes in use."""
        certainty_m, knows_mj = np.ones(len(models)), np.ones((len(models), used_j.size), dtype=bool)
        for m, name in enumerate(models):
            predicted = probabilities[name][~np.isnan(probabilities[name][:, 0])]
            if len(predicted) >= LEAST_ROWS:
                knows_mj[m] = (predicted > 0).any(axis=0) | ~used_j
                certainty_m[m] = EXPECTED_ACCURACY if (predicted.max(axis=1) > CERTAIN).all() else 1.0
        return cls(certainty_m, knows_mj)

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
