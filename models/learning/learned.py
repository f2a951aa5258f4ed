"""Combiner plus a classifier that learns the combiner's consensus from features and then acts as one more model.

    people     q_nj = combiner(labels, other models)                        training targets
    learned    p_nj = classifier(features; q of the items of other folds)   folds as in `predictors.folds`
    consensus  combiner(labels, other models, p_nj)

The classifier is used if its out-of-fold predictions p explain the beliefs q about the labeled items better than the
class shares s do:

    r_nj(b)  proportional to  s_j (p_nj / s_j)^b                    b = 0: the shares; b = 1: the classifier as it is
    gain  =  max_b>=0  sum_n log sum_j r_nj(b) q_nj / s_j           the log likelihood gained with r as truth prior

Twice the gain of an uninformative classifier is 0 or a chi-square of one degree of freedom, with equal probability. So
it exceeds 4 with a probability of 1/44.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from hitl.annotations import Floats, Name
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import name_of, seen_by, used
from hitl.models.learning.classifiers import Classifier, Mask, classifier
from hitl.models.numerics.checks import check_settings
from hitl.models.predictors.folds import ALL, Examples, split
from hitl.models.registry import combiner

NAME = "learned"
"""Name of the classifier among the models of the consensus."""

ENOUGH = 4.0
"""A classifier is informative if twice its gain exceeds this: two standard errors."""

SHARPNESS = 2.0 ** np.arange(-6, 7)
"""Grid of b to search."""

MIN_PER_FOLD = 2
"""Minimum number of training items per fold, where a group of near-duplicates counts as one."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Combiner plus a classifier that learns from its consensus.

    Attributes:
        method: name of the combiner.
        model: "logistic", or another name that `models.learning.classifiers.classifier` knows.
        folds: number of folds K, >= 2. One model is trained without each fold, and one more on all labeled items.
        seed: seed of the split into folds.
        groups: item -> its group of near-duplicates, which share a fold; None: each item is its own group.

    The classifier is left out while there is too little to learn from (`plan_training`), or if it is no more
    informative than the class shares.

    Example:
        >>> import numpy as np
        >>> from dataclasses import replace
        >>> from hitl.models import Learned
        >>> from hitl.testing import crowd
        >>> evidence, truth = crowd(np.random.default_rng(0), n_items=60)
        >>> consensus = Learned().fit(replace(evidence, features=np.eye(3)[truth]))
        >>> list(consensus.temperatures)
        ['learned']
    """

    tables: ClassVar[int] = 20
    beliefs: ClassVar[int] = 20
    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth", "features"})
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    method: str = "default"
    model: str = "logistic"
    folds: int = 5
    seed: int = 0
    groups: Mapping[Name, str] | None = None

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Fit the combiner, train on its consensus, and fit it again with the predictions."""
        evidence = used(self, evidence)
        method = combiner(self.method)
        without_features = seen_by(method, evidence)
        consensus = method.fit(without_features, start=start)
        predictions = self.predictions(evidence, consensus)
        if predictions:
            models = {**without_features.probabilities, **predictions}
            consensus = method.fit(replace(without_features, probabilities=models), start=start)
        fit = replace(consensus.fit, method=name_of(self), settings=asdict(replace(self, groups=None)))
        return replace(consensus, fit=fit)

    def predictions(self, evidence: Evidence, people: Consensus) -> dict[str, Floats]:
        """Return name -> (N, J) predictions of a classifier trained on the consensus `people`.

        The dict is empty if there is too little to learn from, or if the predictions are uninformative.
        """
        groups = None if self.groups is None else [self.groups.get(item) for item in evidence.annotations.items]
        training = plan_training(evidence, people.probabilities, self.folds, self.seed, groups)
        if training is None:
            return {}
        p_nj, trained_n = out_of_fold(classifier(self.model), training), training.trained_n
        return {NAME: p_nj} if is_informative(p_nj[trained_n], people.probabilities[trained_n]) else {}


def is_informative(p_mj: Floats, q_mj: Floats) -> bool:
    """Return True if predictions (M, J) explain beliefs (M, J) about the same items better than class shares do."""
    return 2 * gain(p_mj, q_mj) > ENOUGH


def gain(p_mj: Floats, q_mj: Floats) -> float:
    """Return the log likelihood that predictions (M, J) gain over the class shares of beliefs (M, J), in nats, >= 0."""
    share_j = (q_mj.sum(axis=0) + 1) / (len(q_mj) + q_mj.shape[1])
    log_s_j, odds_mj = np.log(share_j), q_mj / share_j
    x_mj = np.log(np.maximum(p_mj, np.finfo(float).tiny)) - log_s_j

    def log_likelihood(b: float) -> float:
        r_mj = np.exp(log_softmax(log_s_j + b * x_mj, axis=1))
        likelihood_m = np.einsum("mj,mj->m", r_mj, odds_mj)
        return float(np.sum(np.log(np.maximum(likelihood_m, np.finfo(float).tiny))))

    tried = [log_likelihood(b) for b in SHARPNESS]
    best = int(np.argmax(tried))
    bounds = SHARPNESS[max(best - 1, 0)], SHARPNESS[min(best + 1, len(SHARPNESS) - 1)]
    nearby = -float(minimize_scalar(lambda b: -log_likelihood(b), bounds=bounds, method="bounded").fun)
    shares = log_likelihood(0.0)
    return max(tried[best], nearby, shares) - shares


@dataclass(frozen=True, eq=False)
class Training:
    """Items to train on, and the fold whose model predicts each item.

    Attributes:
        evidence: the items, with features that are finite (0 if an item has none) and standardized.
        q_nj: (N, J) beliefs about the items, the training targets.
        fold_n: (N,) fold of each item: 1 to K if the model trained without that fold predicts it, 0 if the model
            trained on all labeled items does, -1 if none does.
        trained_n: (N,) True for items to train on.
    """

    evidence: Evidence
    q_nj: Floats
    fold_n: npt.NDArray[np.intp]
    trained_n: Mask

    @property
    def folds(self) -> list[int]:
        """Folds, 0 to K, with items to predict; each takes one training."""
        return [int(fold) for fold in np.unique(self.fold_n) if fold >= 0]

    def predict(self, classifier: Classifier, fold: int) -> Floats:
        """Train on the other folds, and return (n, J) predictions for the items of this fold, in order."""
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
    """Split the items into folds; the order of the items does not matter.

    Args:
        evidence: the items.
        q_nj: (N, J) beliefs about the items.
        folds: number of folds K.
        seed: seed of the split.
        groups: (N,) group of near-duplicates of each item, or None; a group shares a fold.
        learnable_n: (N,) True for items that can be learned from and predicted; default: those with features.

    Items with labels or ground truth are trained on. Return None if there are too few: required are MIN_PER_FOLD items
    per fold, where a group counts once, two or more most probable classes among them, and a class with `folds` items.
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
    """Train a model for each fold, and return (N, J) predictions of all items; NaN for items that none predicts."""
    p_nj = np.full(training.q_nj.shape, np.nan)
    for fold in training.folds:
        p_nj[training.fold_n == fold] = training.predict(classifier, fold)
    return p_nj


def standardised(x_nd: Floats) -> Floats:
    """Return (N, D) features scaled to mean 0 and standard deviation 1.

    Constant features become 0, and so do rows with a NaN, which are missing.
    """
    missing_n = np.asarray(np.isnan(x_nd).any(axis=1))
    centre_d, scale_d = x_nd[~missing_n].mean(axis=0), x_nd[~missing_n].std(axis=0)
    scale_d = np.where(scale_d > 1e-12 * (1 + np.abs(centre_d)), scale_d, np.inf)
    return np.where(missing_n[:, None], 0.0, (x_nd - centre_d) / scale_d)
