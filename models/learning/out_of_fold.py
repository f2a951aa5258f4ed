"""Out-of-fold predictions from soft labels: no item is predicted by a model that has seen its labels.

Folds are those of `predictors.folds`, which has the reasons. An item without features is not predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.learning.classifiers import Classifier, Mask
from hitl.models.predictors.folds import ALL, Examples, split

MIN_PER_FOLD = 2
"""Minimum number of items per fold before anything is trained."""


@dataclass(frozen=True, eq=False)
class Training:
    """Items to train on, and the fold whose model predicts each item.

    Attributes:
        evidence: the items, with features that are finite (0 if an item has none) and standardized.
        q_nj: (N, J) beliefs of the items with labels.
        fold_n: (N,) the fold whose model predicts an item, 1 to K, or 0 for the model trained on all; -1: none does.
        trained_n: (N,) True for items to train on.
    """

    evidence: Evidence
    q_nj: Floats
    fold_n: npt.NDArray[np.intp]
    trained_n: Mask

    @property
    def folds(self) -> list[int]:
        """The folds that predict an item; each is one training."""
        return [int(fold) for fold in np.unique(self.fold_n) if fold >= 0]

    def predict(self, classifier: Classifier, fold: int) -> Floats:
        """Return (n, J) predictions for the items of this fold, in their order."""
        p_nj = classifier.predict(self.evidence, self.q_nj, self.trained_n & (self.fold_n != fold))
        return np.asarray(p_nj[self.fold_n == fold])


def plan_training(
    evidence: Evidence,
    q_nj: Floats,
    folds: int,
    seed: int = 0,
    groups: Sequence[str | None] | None = None,
    learnable_n: Mask | None = None,
) -> Training | None:
    """Split the items into folds, the same way in any order; `groups` (N,) of near-duplicates share a fold.

    `learnable_n` (N,) marks the items that can be learned from and predicted (default: those with features). Return
    None if there is too little to train on: two classes, one of them in all folds, and two items per fold.
    """
    learnable_n = evidence.featured if learnable_n is None else learnable_n
    trained_n = learnable_n & ((evidence.annotations.labels_per_item > 0) | evidence.known)
    names = evidence.annotations.items
    rows = np.array(sorted(np.flatnonzero(trained_n), key=lambda row: str(names[row])), dtype=np.intp)
    top = q_nj[rows].argmax(axis=1)
    group_n = list(groups) if groups is not None else [None] * len(q_nj)
    units = {("", n) if group_n[n] is None else group_n[n] for n in rows}
    count_j = np.bincount(top)
    if len(units) < MIN_PER_FOLD * folds or np.count_nonzero(count_j) < 2 or count_j.max() < folds:
        return None
    labels, groups_m = [str(code) for code in top], [group_n[row] for row in rows]
    fold_n = np.where(learnable_n, ALL, -1).astype(np.intp)
    fold_n[rows] = split(Examples([str(row) for row in rows], None, (), labels, groups_m), folds, seed)
    fold_of_group = {group_n[row]: fold_n[row] for row in rows if group_n[row] is not None}
    for n in np.flatnonzero(learnable_n & ~trained_n):
        fold_n[n] = fold_of_group.get(group_n[n], ALL)
    features = None if evidence.features is None else standardised(evidence.features)
    return Training(replace(evidence, features=features), q_nj, fold_n, trained_n)


def out_of_fold(classifier: Classifier, training: Training) -> Floats:
    """Return (N, J) predictions by the models of all folds; NaN for items that none predicts."""
    p_nj = np.full(training.q_nj.shape, np.nan)
    for fold in training.folds:
        p_nj[training.fold_n == fold] = training.predict(classifier, fold)
    return p_nj


def standardised(x_nd: Floats) -> Floats:
    """Return (N, D) features less their mean, over their standard deviation; 0 if constant, and for missing rows."""
    missing_n = np.asarray(np.isnan(x_nd).any(axis=1))
    centre_d, scale_d = x_nd[~missing_n].mean(axis=0), x_nd[~missing_n].std(axis=0)
    scale_d = np.where(scale_d > 1e-12 * (1 + np.abs(centre_d)), scale_d, np.inf)
    return np.where(missing_n[:, None], 0.0, (x_nd - centre_d) / scale_d)
