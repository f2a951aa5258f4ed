"""What runs over the items: a `Predictor` gives each batch one distribution a row, or abstains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hitl.errors import BadInput, MissingExtra
from hitl.models.predictors.inputs import Batch
from hitl.tables.probabilities import Array, distributions


class Predictor(Protocol):
    """A model that is ready to judge."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The J classes, in the order of the columns."""

    def predict(self, batch: Batch) -> Array:
        """(B, J) distributions over the classes; a row of NaN where there is nothing to judge by."""

    def notes(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        """More columns of the probability table, one value a row."""


def answers(
    batch: Batch,
    present: npt.NDArray[np.bool_],
    n_classes: int,
    logits: bool,
    run: Callable[[npt.NDArray[np.intp]], Any],
) -> Array:
    """(B, J): what `run` says of the rows that are present, checked; NaN for the others.

    `run` is user code: whatever it raises becomes BadInput that names the items. So do a wrong shape, NaN, infinities,
    and (unless they are logits) rows that are not distributions.
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
        raise BadInput(
            f"{where}: output of shape {raw.shape}; expected {(len(rows), n_classes)}, one column for each class"
        )
    named = [batch.items[row] for row in rows]
    if np.isnan(raw).any():
        first = named[int(np.flatnonzero(np.isnan(raw).any(axis=1))[0])]
        raise BadInput(f"{where}: answers NaN for item {first!r}; expected {'logits' if logits else 'probabilities'}")
    values[rows] = distributions(raw, logits, where, named)
    return values


def required(module: str, what: str, install: str) -> Any:
    """A module that is not always installed. Raises MissingExtra, saying what needs it and how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(f"{what} needs {module.split('.')[0]}: pip install '{install}'") from None
