"""Out-of-fold predictions from soft labels: no item is predicted by a model that has seen its labels.

    an item with labels or known truth, of fold k    is predicted by a model trained on those of all other folds
    an item of a group that has such an item         by the model of that group's fold
    any other item                                   by one more model, trained on all of them

as `predictors.folds` does it with known labels, and for the same reasons. An item without features is not predicted.

Folds go in pairs, 1 and 2, 3 and 4: the models of both may go on from one that learned from the items of neither. So
what is dear to learn, such as a kernel, is learned once for both, and still no item is predicted by a model that has
seen its labels. The last fold of an odd number has no partner; the model trained on all goes on from its model. With
less than five folds what a pair has in common is too little to go on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.learning.classifiers import Classifier, Mask
from hitl.models.predictors.folds import ALL, Examples, split

Fold = npt.NDArray[np.intp]

FEWEST = 2
"""Items of each fold, at least, before anything is trained."""

PAIRED = 5
"""Folds from which they go in pairs: all but two of five have two thirds of the labels of all but one, and more."""


@dataclass(frozen=True, eq=False)
class Training:
    """Which item is predicted by the model of which fold.

    Attributes:
        evidence: the items, with features that are finite (0 where an item has none) and standardised.
        q_nj: (N, J) beliefs of the items with labels.
        fold_n: (N,) the fold whose model predicts an item, 1 to K, or 0 for the model trained on all; -1: none does.
        trained_n: (N,) items that are trained on.
    """

    evidence: Evidence
    q_nj: Floats
    fold_n: Fold
    trained_n: Mask

    @classmethod
    def of(
        cls,
        evidence: Evidence,
        q_nj: Floats,
        folds: int,
        seed: int = 0,
        groups: Sequence[str | None] | None = None,
        there_n: Mask | None = None,
    ) -> Training | None:
        """The folds of these items, in whatever order they are; `groups` (N,) of near-duplicates share a fold.

        `there_n` (N,) says which items can be learned from and predicted (default: those with features). None where
        there is too little to train on: two classes, one of them in all folds, and two items a fold.
        """
        featured_n = evidence.featured if there_n is None else there_n
        trained_n = featured_n & ((evidence.annotations.labels_per_item > 0) | evidence.known)
        names = evidence.annotations.items
        rows = np.array(sorted(np.flatnonzero(trained_n), key=lambda row: str(names[row])), dtype=np.intp)
        top = q_nj[rows].argmax(axis=1)
        group_n = list(groups) if groups is not None else [None] * len(q_nj)
        apart = {("", n) if group_n[n] is None else group_n[n] for n in rows}
        count_j = np.bincount(top)
        if len(apart) < FEWEST * folds or np.count_nonzero(count_j) < 2 or count_j.max() < folds:
            return None
        examples = Examples(
            [str(row) for row in rows], None, (), [str(code) for code in top], [group_n[row] for row in rows]
        )
        fold_n = np.where(featured_n, ALL, -1).astype(np.intp)
        fold_n[rows] = split(examples, folds, seed)
        home = {group_n[row]: fold_n[row] for row in rows if group_n[row] is not None}
        for n in np.flatnonzero(featured_n & ~trained_n):
            fold_n[n] = home.get(group_n[n], ALL)
        x_nd = None if evidence.features is None else standardised(evidence.features)
        return cls(replace(evidence, features=x_nd), q_nj, fold_n, trained_n)

    @property
    def parts(self) -> list[int]:
        """The folds that predict an item; each is one training."""
        return [int(fold) for fold in np.unique(self.fold_n) if fold >= 0]

    def predict(self, classifier: Classifier, fold: int) -> Floats:
        """(n, J) what the model of this fold predicts of its items, in their order."""
        first = self._first(fold)
        first_n = None if first is None else self._without(*first)
        p_nj = classifier.predict(self.evidence, self.q_nj, self._without(fold), first_n)
        predicted: Floats = p_nj[self.fold_n == fold]
        return predicted

    def _without(self, *folds: int) -> Mask:
        """(N,) the items that are trained on, less those of these folds; all have another fold than ALL."""
        return self.trained_n & ~np.isin(self.fold_n, folds)

    def _first(self, fold: int) -> tuple[int, ...] | None:
        """The folds that are left out of what the model of this fold goes on from; None where it begins anew."""
        last = int(self.fold_n[self.trained_n].max())
        if last < PAIRED:
            return None
        if fold == ALL:
            return (last,) if last % 2 else None
        partner = fold + 1 if fold % 2 else fold - 1
        return None if partner > last else (min(fold, partner), max(fold, partner))

    def joined(self, parts: Iterator[tuple[int, Floats]]) -> Floats:
        """(N, J) the predictions of all folds; NaN where none predicts."""
        p_nj = np.full(self.q_nj.shape, np.nan)
        for fold, predicted in parts:
            p_nj[self.fold_n == fold] = predicted
        return p_nj


def out_of_fold(
    classifier: Classifier,
    training: Training,
    progress: Callable[[str, int, int | None], None] = lambda what, done, total: None,
) -> Floats:
    """(N, J) of all folds, trained one after the other; NaN for items without features."""
    folds = training.parts

    def each() -> Iterator[tuple[int, Floats]]:
        for done, fold in enumerate(folds):
            progress("train", done, len(folds))
            yield fold, training.predict(classifier, fold)
        progress("train", len(folds), len(folds))

    return training.joined(each())


def standardised(x_nd: Floats) -> Floats:
    """(N, D) features less their mean, by their standard deviation; 0 where constant, and for items without any."""
    lacking_n = np.asarray(np.isnan(x_nd).any(axis=1))
    centre_d, scale_d = x_nd[~lacking_n].mean(axis=0), x_nd[~lacking_n].std(axis=0)
    scale_d = np.where(scale_d > 1e-12 * (1 + np.abs(centre_d)), scale_d, np.inf)
    z_nd: Floats = np.where(lacking_n[:, None], 0.0, (x_nd - centre_d) / scale_d)
    return z_nd
