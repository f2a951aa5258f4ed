"""The `Predictor` interface, and its implementation for fitted estimators.

A predictor returns a distribution over the classes for each item, or abstains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hitl.errors import BadInput, BadSettings, MissingExtra
from hitl.models.predictors.inputs import Batch
from hitl.tables.matrices import Array, distributions

SKLEARN = "hitl-toolkit[sklearn]"
VISION = "hitl-toolkit[vision]"
LLM = "hitl-toolkit[llm]"


class Predictor(Protocol):
    """Model that is ready to predict."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the J classes, in the order of the columns that `predict` returns."""

    def predict(self, batch: Batch) -> Array:
        """Return (B, J) distributions over the classes. A row is NaN if the model abstains for lack of usable input."""


@dataclass(frozen=True, slots=True, eq=False)
class EstimatorPredictor:
    """Fitted estimator with `predict_proba`. `classes`: the estimator's own, or names for them."""

    estimator: Any
    classes: tuple[str, ...]

    def predict(self, batch: Batch) -> Array:
        """Return (B, J) probabilities, NaN for items without input. The estimator handles single missing features."""

        def run(rows: npt.NDArray[np.intp]) -> Any:
            return self.estimator.predict_proba(as_fitted(self.estimator, batch.take(rows), batch.columns))

        return checked_predictions(batch, ~batch.empty, len(self.classes), False, run)


def fitted(estimator: Any, classes: Sequence[str] | None) -> EstimatorPredictor:
    """Return a predictor for a fitted estimator.

    If the estimator's classes are the numbers 0..J-1, `classes` may name them; otherwise it must include all of them.
    Raise BadSettings if it does not, and if the estimator has no `predict_proba` or is not fitted.
    """
    require_probabilities(estimator)
    labels = getattr(estimator, "classes_", None)
    if labels is None:
        raise BadSettings(
            f"the model {type(estimator).__name__} is not fitted (it has no classes_); fit it first, or give it labels "
            "with --folds and --truth"
        )
    own = tuple(class_name(label) for label in labels)
    if classes is None or set(own) <= set(classes):
        return EstimatorPredictor(estimator, own)
    if len(classes) == len(own) and list(own) == [str(code) for code in range(len(own))]:
        return EstimatorPredictor(estimator, tuple(classes))
    raise BadSettings(f"--classes {', '.join(classes)}: the model knows {', '.join(own)}")


def require_probabilities(estimator: Any) -> None:
    """Raise BadSettings unless the estimator has `predict_proba`."""
    if not hasattr(estimator, "predict_proba"):
        raise BadSettings(
            f"the model {type(estimator).__name__} has no predict_proba; wrap it, such as in CalibratedClassifierCV"
        )


def class_name(value: Any) -> str:
    """Convert a class to text. 3.0 becomes "3", as in every table that hitl reads."""
    plain = value.item() if isinstance(value, np.generic) else value
    return str(int(plain)) if isinstance(plain, float) and plain.is_integer() else str(plain)


def as_fitted(estimator: Any, inputs: Any, columns: tuple[str, ...]) -> Any:
    """Return the inputs in the form that the estimator was fitted on.

    If it stored the names of its features, this is a data frame of these. Raise BadInput if one of them is missing.
    """
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or not isinstance(inputs, np.ndarray):
        return inputs
    import pandas as pd

    missing = [str(name) for name in names if name not in columns]
    if missing:
        raise BadInput(f"the model was fitted on a feature {missing[0]!r}; found {', '.join(columns) or 'a list'}")
    return pd.DataFrame(inputs, columns=list(columns))[list(names)]


def checked_predictions(
    batch: Batch,
    present: npt.NDArray[np.bool_],
    n_classes: int,
    logits: bool,
    run: Callable[[npt.NDArray[np.intp]], Any],
) -> Array:
    """Call `run` on the rows marked in `present`. Return (B, J) checked probabilities, NaN in the other rows.

    `run` is user code, and returns logits or probabilities. Raise BadInput that names the items if it fails or returns
    a wrong shape, NaN, infinities or, unless `logits`, rows that are not distributions.
    """
    values = np.full((len(batch.items), n_classes), np.nan)
    rows = np.flatnonzero(present)
    if not rows.size:
        return values
    where = f"the model, items {batch.start} to {batch.start + len(batch.items) - 1}"
    try:
        raw = np.asarray(run(rows), dtype=np.float64)
    except (BadInput, MissingExtra):
        raise
    except Exception as error:
        raise BadInput(f"{where} (the first is {batch.items[0]!r}): {type(error).__name__}: {error}") from error
    if raw.shape != (len(rows), n_classes):
        expected = f"expected {(len(rows), n_classes)}, one column for each class"
        raise BadInput(f"{where}: output of shape {raw.shape}; {expected}")
    items = [batch.items[row] for row in rows]
    if np.isnan(raw).any():
        first = items[int(np.isnan(raw).any(axis=1).argmax())]
        raise BadInput(f"{where}: answers NaN for item {first!r}; expected {'logits' if logits else 'probabilities'}")
    values[rows] = distributions(raw, logits, where, items)
    return values


def required(module: str, user: str, install: str) -> Any:
    """Import an optional module. If it is missing, raise MissingExtra, which names its user and how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(f"{user} needs {module.split('.')[0]}: pip install '{install}'") from None
