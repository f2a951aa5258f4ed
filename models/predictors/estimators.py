"""scikit-learn estimators as predictors: whatever has `predict_proba` and `classes_`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.errors import BadInput, BadSettings
from hitl.models.predictors.inputs import Batch
from hitl.models.predictors.predictor import answers
from hitl.tables.probabilities import Array


@dataclass(frozen=True, slots=True, eq=False)
class EstimatorPredictor:
    """A fitted estimator. `classes` are its own, or names for them (see `named_classes`)."""

    estimator: Any
    classes: tuple[str, ...]

    def predict(self, batch: Batch) -> Array:
        """(B, J) of `predict_proba`; a row without any input is NaN, one with gaps is left to the estimator."""

        def run(rows: npt.NDArray[np.intp]) -> Any:
            return self.estimator.predict_proba(as_seen(self.estimator, batch.take(rows), batch.columns))

        return answers(batch, ~batch.empty, len(self.classes), False, run)

    def notes(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        """Nothing more."""
        return {}


def fitted(estimator: Any, classes: Sequence[str] | None) -> EstimatorPredictor:
    """A predictor of a fitted estimator. Raises BadSettings where it gives no probabilities or is not fitted."""
    require_probabilities(estimator)
    own = getattr(estimator, "classes_", None)
    if own is None:
        raise BadSettings(
            f"--model: {type(estimator).__name__} is not fitted (it has no classes_); fit it first, or give it labels "
            "with --folds and --truth"
        )
    return EstimatorPredictor(estimator, named_classes([class_name(name) for name in own], classes))


def require_probabilities(estimator: Any) -> None:
    """Raise BadSettings unless the estimator can give probabilities."""
    if not hasattr(estimator, "predict_proba"):
        raise BadSettings(
            f"--model: {type(estimator).__name__} has no predict_proba; wrap it, for instance in CalibratedClassifierCV"
        )


def named_classes(own: Sequence[str], given: Sequence[str] | None) -> tuple[str, ...]:
    """The names of an estimator's classes: its own, or, where these are the numbers 0..J-1, those that are given.

    Raises BadSettings when the given ones are neither a superset of its own nor as many as its numbers.
    """
    if given is None or set(own) <= set(given):
        return tuple(own)
    if len(given) == len(own) and list(own) == [str(code) for code in range(len(own))]:
        return tuple(given)
    raise BadSettings(f"--classes {', '.join(given)}: the model knows {', '.join(own)}")


def class_name(value: Any) -> str:
    """A class as text; 3.0 is "3", as in every table we read."""
    plain = value.item() if isinstance(value, np.generic) else value
    return str(int(plain)) if isinstance(plain, float) and plain.is_integer() else str(plain)


def as_seen(estimator: Any, inputs: Any, columns: tuple[str, ...]) -> Any:
    """The inputs as the estimator was fitted on them: a data frame where it knows the names of its features."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or not isinstance(inputs, np.ndarray):
        return inputs
    import pandas as pd

    missing = [str(name) for name in names if name not in columns]
    if missing:
        raise BadInput(f"the model was fitted on a feature {missing[0]!r}; found {', '.join(columns) or 'a list'}")
    return pd.DataFrame(inputs, columns=list(columns))[list(names)]
