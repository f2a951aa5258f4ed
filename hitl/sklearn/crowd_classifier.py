"""`CrowdClassifier`: learn a classifier from the labels of several annotators, who may be wrong.

The method is that of `hitl.models.Learned`: combine the labels, train on the consensus out of fold, combine again with
the predictions as one more model. A last training on that consensus makes the classifier for new items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import assert_all_finite, check_consistent_length, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from hitl.annotations import Annotations, Floats, Name
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combine import fit, method_of
from hitl.models.combiner import Combiner
from hitl.models.learning.classifiers import LOGIT_VARIANCE, EstimatorClassifier
from hitl.models.learning.learned import NAME, is_informative, out_of_fold, plan_training
from hitl.models.numerics.checks import require_whole
from hitl.models.predictors.folds import over_all_classes

MISSING = -1
"""Label that stands for no answer in a matrix of labels. None, NaN and empty text do so too."""


class CrowdClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier that learns from features and the labels of several annotators.

    `y` is (N, K): the label that annotator k gave item n, or -1, None or NaN where there is none. A DataFrame names the
    annotators in its columns. A 1-D `y` is taken as right, as in any other classifier.

    scikit-learn's default folds cannot stratify labels of several annotators: give `cross_val_score` and searches
    `cv=KFold(5, shuffle=True)`. `cross_val_predict(method="predict_proba")` takes each annotator for a question of its
    own; predict in a loop over the folds instead.

    Args:
        estimator: scikit-learn classifier with `predict_proba`; default: logistic regression on standardized features.
        method: method that combines the labels, as in `hitl.combine`. One that does not use probabilities combines
            them without the classifier, which then learns from the result.
        folds: number of folds, >= 2. The predictions that are combined with an item's labels are from a model that
            was trained without its fold.
        random_state: seed of the split into folds.

    Attributes:
        classes_: (J,) classes, sorted.
        consensus_: consensus on the items of `fit` and report on the annotators; None if `y` was 1-D.
        estimator_: the fitted estimator. Its classes are positions in `classes_`.

    Example:
        >>> import numpy as np
        >>> from hitl.sklearn import CrowdClassifier
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.integers(2, size=200)
        >>> X = truth[:, None] + rng.normal(scale=0.5, size=(200, 3))
        >>> y = np.where(rng.random((200, 4)) < [0.9, 0.8, 0.7, 0.5], truth[:, None], 1 - truth[:, None])
        >>> y[rng.random(y.shape) < 0.4] = -1  # nobody answers everything
        >>> model = CrowdClassifier().fit(X, y)
        >>> bool((model.predict(X) == truth).mean() > 0.9), model.consensus_.annotators.accuracy.argmin()
        (True, np.int64(3))
    """

    def __init__(
        self, estimator: Any = None, method: str | Combiner = "default", folds: int = 5, random_state: int = 0
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from features (N, D), or other inputs of the estimator, and labels (N, K) or (N,)."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        validate_data(self, X, skip_check_array=True)
        check_consistent_length(X, y)
        _require_same_order(X, y)
        self.consensus_: Consensus | None = None
        if np.asarray(y).ndim < 2:
            labels = column_or_1d(y)
            assert_all_finite(labels, input_name="y")
            check_classification_targets(labels)
            self.classes_, codes = np.unique(labels, return_inverse=True)
            self.estimator_ = self._new_estimator().fit(X, codes)
            self._examples = len(codes)
            return self
        require_whole("folds", self.folds, 2)
        X = X if hasattr(X, "shape") else np.asarray(X)
        self.classes_, codes, annotators = _read(y)
        annotations = replace(_annotations(codes, self.classes_, annotators), items=_items(y))
        self.consensus_, trained = self._combine(X, annotations)
        rows = np.flatnonzero((codes >= 0).any(axis=1))
        fitted = trained.fitted(rows, self.consensus_.probabilities[rows])
        if fitted is None:
            raise ValueError(f"y: all items are of one class, {self.consensus_.labels[rows[0]]}; expected several")
        self.estimator_, self._examples = fitted, len(rows)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return (N, J) probabilities of the `classes_`."""
        check_is_fitted(self, "estimator_")
        p_nk = self.estimator_.predict_proba(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return over_all_classes(p_nk, self.estimator_.classes_.tolist(), self._examples, len(self.classes_))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the (N,) most probable classes."""
        p_nj = self.predict_proba(X)
        predicted: npt.NDArray[Any] = self.classes_[p_nj.argmax(axis=1)]
        return predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy; for labels (N, K) the share of labels that agree with the prediction."""
        if np.asarray(y).ndim < 2:
            return float(super().score(X, y, sample_weight))
        classes, codes, _ = _read(y)
        item, annotator = np.nonzero(codes >= 0)
        agrees = self.predict(X)[item] == classes[codes[item, annotator]]
        return float(np.average(agrees, weights=None if sample_weight is None else np.asarray(sample_weight)[item]))

    def _combine(self, X: Any, annotations: Annotations) -> tuple[Consensus, EstimatorClassifier]:
        """Return the consensus of annotators and the classifier, as `hitl.models.Learned` does."""
        evidence, method = Evidence(annotations), method_of(self.method)
        learner = EstimatorClassifier(lambda _: self._new_estimator(), X, "CrowdClassifier")
        people = fit(method, evidence)
        q_nj, everywhere = people.probabilities, np.ones(len(people), dtype=bool)
        training = plan_training(evidence, q_nj, self.folds, self.random_state, learnable_n=everywhere)
        if training is not None and "probabilities" in method.uses:
            p_nj, rows = out_of_fold(learner, training), training.trained_n
            if is_informative(p_nj[rows], q_nj[rows]):
                return fit(method, replace(evidence, probabilities={NAME: p_nj})), learner
        return people, learner

    def _new_estimator(self) -> Any:
        if self.estimator is not None:
            return clone(self.estimator)
        variance = LOGIT_VARIANCE / max(getattr(self, "n_features_in_", 1), 1)
        return make_pipeline(StandardScaler(), LogisticRegression(C=variance, max_iter=500))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._new_estimator()).input_tags
        tags.target_tags.two_d_labels = True
        return tags


def _require_same_order(X: Any, y: Any) -> None:
    """Raise ValueError if tables of pandas name the same items in another order, because rows are matched by place."""
    named = all(isinstance(rows, pd.DataFrame | pd.Series) for rows in (X, y))
    if named and not X.index.equals(y.index) and set(X.index) == set(y.index):
        raise ValueError("X and y have the same index in different orders; expected one order: y.loc[X.index]")


def _read(y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], list[Name]]:
    """Return classes (J,), codes (N, K) with -1 for no answer, and K names of a matrix of labels."""
    frame = pd.DataFrame(y)
    values = frame.astype(object).where(frame.notna(), None).to_numpy()  # pd.NA compares as nothing else does
    answered = ~frame.isna().to_numpy() & (values != MISSING) & (values != "")
    given = [int(one) if isinstance(one, float) and one.is_integer() else one for one in values[answered]]
    if len({isinstance(one, str) for one in given}) != 1:
        raise ValueError(f"y: {'labels are text and numbers' if given else 'no labels'}; expected labels of one type")
    labels = np.array(given)
    check_classification_targets(labels)
    classes, of_given = np.unique(labels, return_inverse=True)
    codes = np.full(frame.shape, -1)
    codes[answered] = of_given
    plain = all(isinstance(name, str) for name in frame.columns)
    return classes, codes, list(frame.columns) if plain else list(range(frame.shape[1]))


def _items(y: Any) -> tuple[Name, ...]:
    """Return the names in the index of a DataFrame, or row numbers."""
    if isinstance(y, pd.DataFrame) and y.index.is_unique and {*map(type, y.index)} in ({str}, {int}):
        return tuple(y.index)
    return tuple(range(len(y)))


def _annotations(codes: npt.NDArray[np.int64], classes: npt.NDArray[Any], annotators: Sequence[Name]) -> Annotations:
    names = classes.tolist()
    plain = {type(name) for name in names} in ({str}, {int})
    if len(names) < 2:
        raise ValueError(f"y: found one class, {names[0]!r} (-1 means no answer); expected several classes")
    return replace(Annotations.from_matrix(codes, names if plain else [*map(str, names)]), annotators=tuple(annotators))
