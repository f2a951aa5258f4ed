"""Out-of-fold probabilities: no model judges an item whose label, or whose near-duplicate's label, it was trained on.

The labeled items are split into K folds, stratified by class; items of one group share a fold. Model k is trained on
the labeled items of all folds but k, and

    a labeled item of fold k                             is judged by model k
    an unlabeled item in a group with a labeled one      is judged by the model of that group's fold
    any other unlabeled item                             is judged by one more model, trained on all labeled items

The last and not the mean over the K models: a mean is less sharp than its parts, and then one temperature, learned on
labeled items, does not fit the others; one model trained the same way on K/(K-1) as many items is about as sharp. On
noisy digits (five kinds of estimator, 100 to 900 labels, K = 5) the best temperature of the labeled items was within
14 % of the single model's own on the others, but 4 to 33 % above the mean's. Errors differ either way, and the mean
costs K times as much.

A class that is missing from the training part of a fold is unseen, not impossible: it gets 1/(n + J) after n examples
(Laplace's rule of succession), the others share the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.errors import BadInput, BadSettings
from hitl.models.predictors.estimators import as_seen, class_name, require_probabilities
from hitl.models.predictors.inputs import Batch, Inputs
from hitl.models.predictors.predictor import answers, required
from hitl.tables.encoding import natural_order
from hitl.tables.probabilities import Array

INSTALL = "hitl-toolkit[sklearn]"
ALL = 0
"""The fold of an item that is judged by the model trained on all labeled items; folds count from 1."""


@dataclass(frozen=True, slots=True)
class Examples:
    """The labeled items: names, inputs, labels and groups, in the order of the table."""

    items: list[str]
    inputs: Any
    columns: tuple[str, ...]
    labels: list[str]
    groups: list[str | None]

    def __len__(self) -> int:
        return len(self.items)

    def take(self, rows: npt.NDArray[np.intp]) -> Any:
        """The inputs of some rows."""
        return self.inputs[rows] if isinstance(self.inputs, np.ndarray) else [self.inputs[row] for row in rows]


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """One fitted estimator and what it was fitted on: the number of items and its classes."""

    estimator: Any
    examples: int
    classes: tuple[str, ...]

    def judge(self, inputs: Any, columns: tuple[str, ...], classes: Sequence[str]) -> Array:
        """(B, J) over all classes; an unseen one gets 1/(n + J)."""
        own = np.asarray(self.estimator.predict_proba(as_seen(self.estimator, inputs, columns)), dtype=np.float64)
        place = [classes.index(name) for name in self.classes]
        unseen = 1 / (self.examples + len(classes))
        values = np.full((len(own), len(classes)), unseen)
        values[:, place] = own * (1 - unseen * (len(classes) - len(place)))
        return values


@dataclass(frozen=True, slots=True, eq=False)
class OutOfFold:
    """K + 1 models and who is judged by which.

    Attributes:
        classes: the J classes.
        models: the one trained on all labeled items, then those that left out fold 1..K.
        fold_of_item, fold_of_group: 1..K.
        duplicates: labeled items whose input is that of a labeled item in another fold.
    """

    classes: tuple[str, ...]
    models: tuple[Trained, ...]
    fold_of_item: Mapping[str, int]
    fold_of_group: Mapping[str, int]
    duplicates: int

    def folds(self, batch: Batch) -> list[int]:
        """The fold of each item, `ALL` where no fold holds it."""
        return [
            self.fold_of_item.get(item) or self.fold_of_group.get(group or "") or ALL
            for item, group in zip(batch.items, batch.groups, strict=True)
        ]

    def predict(self, batch: Batch) -> Array:
        """(B, J), each row by the model that has not seen its label."""
        values = np.full((len(batch.items), len(self.classes)), np.nan)
        fold_b = np.array(self.folds(batch))
        for fold in np.unique(fold_b):
            ours = fold_b == fold
            run = partial(self._judge, batch, self.models[fold])
            values[ours] = answers(batch, ours & ~batch.empty, len(self.classes), False, run)[ours]
        return values

    def notes(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        """The fold that judged: 1..K, or 0 for the model trained on all labeled items."""
        return {"fold": self.folds(batch)}

    def _judge(self, batch: Batch, model: Trained, rows: npt.NDArray[np.intp]) -> Array:
        return model.judge(batch.take(rows), batch.columns, self.classes)


def train(
    make: Callable[[], Any],
    examples: Examples,
    folds: int,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int | None], None] = lambda what, done, total: None,
) -> OutOfFold:
    """Train K + 1 models that `make` gives, unfitted. The split depends on the labels, groups and seed alone.

    Raises BadInput for too few items, groups or classes, and for a model that cannot be trained; BadSettings for a
    label outside `classes`.
    """
    found = dict.fromkeys(examples.labels)
    unknown = [name for name in found if classes is not None and name not in classes]
    if unknown:
        raise BadSettings(f"--classes: the label {unknown[0]!r} is not among {', '.join(classes or ())}")
    # A class without any label is left out, not made improbable: of what it cannot know a model says nothing.
    names = tuple(name for name in classes or map(str, natural_order(list(found))) if name in found)
    fold_m = split(examples, folds, seed)
    models = []
    progress("train", 0, folds + 1)
    for fold in range(folds + 1):
        rows = np.flatnonzero(fold_m != fold)
        models.append(_train_one(make, examples, rows, fold))
        progress("train", fold + 1, folds + 1)
    pairs = zip(examples.groups, fold_m, strict=True)
    return OutOfFold(
        names,
        tuple(models),
        dict(zip(examples.items, fold_m.tolist(), strict=True)),
        {group: int(fold) for group, fold in pairs if group is not None},
        _duplicates(examples, fold_m),
    )


def split(examples: Examples, folds: int, seed: int) -> npt.NDArray[np.intp]:
    """(M,) fold 1..K of each labeled item, stratified by class, a group in one fold."""
    selection = required("sklearn.model_selection", "--folds", INSTALL)
    codes = {name: code for code, name in enumerate(dict.fromkeys(examples.labels))}
    if len(codes) < 2:
        raise BadInput(f"--folds: the labels name {len(codes)} class; expected two or more")
    grouped = any(group is not None for group in examples.groups)
    # An item without a group is a group of its own; a pair cannot be mistaken for a name.
    keys = [("", item) if group is None else group for item, group in zip(examples.items, examples.groups, strict=True)]
    place = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    if len(place) < folds:
        what = "groups" if grouped else "labeled items"
        raise BadInput(f"--folds {folds}: there are {len(place)} {what}; expected at least one for each fold")
    splitter = selection.StratifiedGroupKFold if grouped else selection.StratifiedKFold
    target = np.array([codes[label] for label in examples.labels])
    fold_m = np.zeros(len(examples), np.intp)
    try:
        with warnings.catch_warnings():  # of a class with fewer items than folds; `Trained.judge` deals with it
            warnings.simplefilter("ignore", UserWarning)
            parts = splitter(n_splits=folds, shuffle=True, random_state=seed).split(
                np.zeros((len(target), 1)), target, [place[key] for key in keys] if grouped else None
            )
            for fold, (_, held_out) in enumerate(parts, start=1):
                fold_m[held_out] = fold
    except ValueError as error:
        raise BadInput(f"--folds {folds}: {error}") from None
    return fold_m


def labeled(inputs: Inputs, labels: Mapping[str, str], size: int) -> Examples:
    """The items of the table that have a label and something to judge by. Raises BadInput when there are none."""
    items: list[str] = []
    groups: list[str | None] = []
    parts: list[Any] = []
    columns: tuple[str, ...] = ()
    for batch in inputs.batches(size):
        known = np.array([item in labels for item in batch.items]) & ~batch.empty
        rows = np.flatnonzero(known)
        items += [batch.items[row] for row in rows]
        groups += [batch.groups[row] for row in rows]
        parts.append(batch.take(rows))
        columns = batch.columns
    if not items:
        raise BadInput(f"--truth: none of its {len(labels)} labeled items is in {inputs.path}; expected the same names")
    seen: Any = np.vstack(parts) if inputs.kind == "features" else [value for part in parts for value in part]
    return Examples(items, seen, columns, [labels[item] for item in items], groups)


def _train_one(make: Callable[[], Any], examples: Examples, rows: npt.NDArray[np.intp], fold: int) -> Trained:
    estimator = make()
    require_probabilities(estimator)
    seen: Any = examples.take(rows)
    if examples.columns and isinstance(seen, np.ndarray):
        import pandas as pd

        seen = pd.DataFrame(seen, columns=list(examples.columns))
    target = np.array([examples.labels[row] for row in rows])
    try:
        estimator.fit(seen, target)
    except Exception as error:  # user code
        part = "all labeled items" if fold == ALL else f"all folds but {fold}"
        raise BadInput(f"the model cannot be trained on {part}: {type(error).__name__}: {error}") from error
    return Trained(estimator, len(rows), tuple(class_name(name) for name in estimator.classes_))


def _duplicates(examples: Examples, fold_m: npt.NDArray[np.intp]) -> int:
    """How many labeled items have the same input as one in another fold."""
    keys = [row.tobytes() if isinstance(row, np.ndarray) else row for row in examples.inputs]
    where: dict[Any, set[int]] = {}
    for key, fold in zip(keys, fold_m.tolist(), strict=True):
        where.setdefault(key, set()).add(fold)
    return sum(len(where[key]) > 1 for key in keys)
