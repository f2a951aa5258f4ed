"""Out-of-fold probabilities: no model predicts an item whose label, or whose near-duplicate's label, it was trained on.

The labeled items are split into K folds, stratified by class. Items of one group are in the same fold. Model k is
trained on the labeled items of all folds but k, and

    a labeled item of fold k                             is predicted by model k
    an unlabeled item in a group with a labeled one      is predicted by the model of that group's fold
    any other unlabeled item                             is predicted by one more model, trained on all labeled items

The last model is not the mean over the K models: a mean is less sharp than its parts, so a single temperature,
learned on labeled items, would not fit the others.

A class that is missing from a model's n training examples is unseen, not impossible. It gets probability 1/(n + J)
(Laplace's rule of succession), and the other classes get the remainder.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.errors import BadInput, BadSettings
from hitl.models.predictors.inputs import Batch, Inputs
from hitl.models.predictors.predictor import (
    SKLEARN,
    as_fitted,
    checked_predictions,
    class_name,
    require_probabilities,
    required,
)
from hitl.platform import Progress, silent
from hitl.tables.encode import natural_order
from hitl.tables.matrices import Array

ALL = 0
"""Fold of items that are predicted by the model trained on all labeled items. Other folds count from 1."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Labeled items that have an input, in the order of the table."""

    items: list[str]
    inputs: Any
    columns: tuple[str, ...]
    labels: list[str]
    groups: list[str | None]

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """Fitted estimator, the number of its training examples, and the classes that occurred among them."""

    estimator: Any
    examples: int
    classes: tuple[str, ...]

    def predict(self, inputs: Any, columns: tuple[str, ...], classes: Sequence[str]) -> Array:
        """Return (B, J) probabilities of all `classes`, including classes that are unseen."""
        own = np.asarray(self.estimator.predict_proba(as_fitted(self.estimator, inputs, columns)), dtype=np.float64)
        return over_all_classes(own, [classes.index(name) for name in self.classes], self.examples, len(classes))


def over_all_classes(own_bk: Array, codes: Sequence[int], examples: int, n_classes: int) -> Array:
    """Extend probabilities of the classes `codes` to all J classes, (B, J).

    Each unseen class gets 1/(n + J) after n examples; the other classes get the remainder.
    """
    unseen = 1 / (examples + n_classes)
    p_bj = np.full((len(own_bk), n_classes), unseen)
    p_bj[:, codes] = own_bk * (1 - unseen * (n_classes - len(codes)))
    return p_bj


@dataclass(frozen=True, slots=True, eq=False)
class OutOfFold:
    """K + 1 models and the items that each predicts.

    Attributes:
        classes: names of the J classes.
        models: model 0 was trained on all labeled items, model k on the items of all folds but k.
        fold_of_item, fold_of_group: fold, 1..K, of each labeled item, and of each group with a labeled item.
        duplicates: number of labeled items whose input also occurs in another fold.
    """

    classes: tuple[str, ...]
    models: tuple[Trained, ...]
    fold_of_item: Mapping[str, int]
    fold_of_group: Mapping[str, int]
    duplicates: int

    def folds(self, batch: Batch) -> list[int]:
        """Return the fold of each item, `ALL` for items that are in no fold."""
        return [
            self.fold_of_item.get(item) or self.fold_of_group.get(group or "") or ALL
            for item, group in zip(batch.items, batch.groups, strict=True)
        ]

    def predict(self, batch: Batch) -> Array:
        """Return (B, J) probabilities, each row by the model that was not trained on the item's label."""
        values = np.full((len(batch.items), len(self.classes)), np.nan)
        fold_b = np.array(self.folds(batch))
        for fold in np.unique(fold_b):
            chosen, model = fold_b == fold, self.models[fold]

            def run(rows: npt.NDArray[np.intp], model: Trained = model) -> Array:
                return model.predict(batch.take(rows), batch.columns, self.classes)

            values[chosen] = checked_predictions(batch, chosen & ~batch.empty, len(self.classes), False, run)[chosen]
        return values


def train(
    make: Callable[[], Any],
    examples: Examples,
    folds: int,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> OutOfFold:
    """Train K + 1 models, each made unfitted by `make`. The split depends on labels, groups and seed alone.

    Raise BadInput if there are too few items, groups or classes, or if a model cannot be trained. Raise BadSettings if
    a label is not in `classes`.
    """
    labels = dict.fromkeys(examples.labels)
    unknown = [name for name in labels if classes is not None and name not in classes]
    if unknown:
        raise BadSettings(f"--classes: the label {unknown[0]!r} is not among {', '.join(classes or ())}")
    # A class without any label is left out, not made improbable: the model cannot know it.
    names = tuple(name for name in classes or map(str, natural_order(list(labels))) if name in labels)
    fold_m = split(examples, folds, seed)
    fold_of_item = dict(zip(examples.items, fold_m.tolist(), strict=True))
    pairs = zip(examples.groups, fold_m.tolist(), strict=True)
    fold_of_group = {group: fold for group, fold in pairs if group is not None}
    keys = [row.tobytes() if isinstance(row, np.ndarray) else row for row in examples.inputs]
    folds_of: dict[Any, set[int]] = {}
    for key, fold in zip(keys, fold_m.tolist(), strict=True):
        folds_of.setdefault(key, set()).add(fold)
    models = []
    progress("train", 0, folds + 1)
    for fold in range(folds + 1):
        models.append(_train_one(make, examples, fold_m, fold))
        progress("train", fold + 1, folds + 1)
    duplicates = sum(len(folds_of[key]) > 1 for key in keys)
    return OutOfFold(names, tuple(models), fold_of_item, fold_of_group, duplicates)


def split(examples: Examples, folds: int, seed: int) -> npt.NDArray[np.intp]:
    """Return (M,) the fold, 1..K, of each labeled item. Folds are stratified by class and do not divide groups.

    Raise BadInput if there are fewer than two classes, or too few items or groups.
    """
    selection = required("sklearn.model_selection", "--folds", SKLEARN)
    classes = {name: j for j, name in enumerate(dict.fromkeys(examples.labels))}
    if len(classes) < 2:
        raise BadInput(f"--folds: the labels name {len(classes)} class; expected two or more")
    grouped = any(group is not None for group in examples.groups)
    # An item without a group is a group of its own. Its key is a pair, so it differs from every group name.
    keys = [("", item) if group is None else group for item, group in zip(examples.items, examples.groups, strict=True)]
    code = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    if len(code) < folds:
        kind = "groups" if grouped else "labeled items"
        raise BadInput(f"--folds {folds}: there are {len(code)} {kind}; expected at least one for each fold")
    splitter = selection.StratifiedGroupKFold if grouped else selection.StratifiedKFold
    target = np.array([classes[label] for label in examples.labels])
    fold_m = np.zeros(len(examples), np.intp)
    try:
        with warnings.catch_warnings():  # about a class with fewer items than folds, which `Trained` handles
            warnings.simplefilter("ignore", UserWarning)
            parts = splitter(n_splits=folds, shuffle=True, random_state=seed).split(
                np.zeros((len(target), 1)), target, [code[key] for key in keys] if grouped else None
            )
            for fold, (_, held_out) in enumerate(parts, start=1):
                fold_m[held_out] = fold
    except ValueError as error:
        raise BadInput(f"--folds {folds}: {error}") from None
    return fold_m


def labeled(inputs: Inputs, labels: Mapping[str, str], size: int) -> Examples:
    """Read the items of the table that have a label and an input. Raise BadInput if there are none."""
    items: list[str] = []
    groups: list[str | None] = []
    parts: list[Any] = []
    columns: tuple[str, ...] = ()
    for batch in inputs.batches(size):
        rows = np.flatnonzero(np.array([item in labels for item in batch.items]) & ~batch.empty)
        items += [batch.items[row] for row in rows]
        groups += [batch.groups[row] for row in rows]
        parts.append(batch.take(rows))
        columns = batch.columns
    if not items:
        raise BadInput(f"--truth: none of its {len(labels)} labeled items is in {inputs.path}; expected the same names")
    values: Any = np.vstack(parts) if inputs.kind == "features" else [value for part in parts for value in part]
    return Examples(items, values, columns, [labels[item] for item in items], groups)


def _train_one(make: Callable[[], Any], examples: Examples, fold_m: npt.NDArray[np.intp], fold: int) -> Trained:
    estimator, rows = make(), np.flatnonzero(fold_m != fold)
    require_probabilities(estimator)
    are_numbers = isinstance(examples.inputs, np.ndarray)
    inputs: Any = examples.inputs[rows] if are_numbers else [examples.inputs[row] for row in rows]
    if examples.columns and are_numbers:
        import pandas as pd

        inputs = pd.DataFrame(inputs, columns=list(examples.columns))
    try:
        estimator.fit(inputs, np.array([examples.labels[row] for row in rows]))
    except Exception as error:  # user code
        part = "all labeled items" if fold == ALL else f"all folds but {fold}"
        raise BadInput(f"the model cannot be trained on {part}: {type(error).__name__}: {error}") from error
    return Trained(estimator, len(rows), tuple(class_name(name) for name in estimator.classes_))
