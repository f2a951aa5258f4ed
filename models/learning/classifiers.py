"""Models that learn from features and soft labels: scikit-learn estimators, and combiners that use features themselves.

An estimator learns from beliefs: every training item enters once per class, weighted by the belief in the class. (An
estimator without weights learns from the most probable class.) A combiner that uses features, such as gpc-ma, learns
from the labels of the training items; all other labels are removed first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from hitl.annotations import Floats
from hitl.errors import BadInput, BadSettings
from hitl.evidence import Evidence
from hitl.models.predictors.folds import over_all_classes
from hitl.models.predictors.loading import estimator_maker, load
from hitl.models.predictors.predictor import SKLEARN, require_probabilities, required

Mask = npt.NDArray[np.bool_]

LOGIT_VARIANCE = 9.0
"""Prior variance of the logits of "logistic": logits of -3 to 3, or probabilities of .05 to .95, are expected."""

MIN_BELIEF = 0.02
"""An item enters for a class only if the belief in it exceeds this. Other copies would only cost time."""

ROUNDING = 1e-6
"""Probabilities of at least -ROUNDING are accepted and set to 0 if negative: estimators may compute differences."""

COMBINERS: Mapping[str, str] = {"gp": "variational-gpc-ma", "gpc-ma": "gpc-ma"}
"""Name of a classifier -> the combiner that implements it."""

NAMES = ("logistic", *COMBINERS)


class Classifier(Protocol):
    """Predicts classes from features."""

    def predict(self, evidence: Evidence, q_nj: Floats, trained_n: Mask) -> Floats:
        """Train on the items marked in `trained_n` (N,) with beliefs `q_nj` (N, J), and return (N, J) predictions.

        All features in the evidence are finite and standardized, unless the model has inputs of its own.
        """


@dataclass(frozen=True)
class EstimatorClassifier:
    """scikit-learn estimator, built for each training by `make(number of features)`.

    Attributes:
        input_n: (N,) inputs to use instead of features, such as texts, with None for items without input, or the N rows
            of a matrix or DataFrame; None: use the features.
        where: name of the estimator in messages.
    """

    make: Callable[[int], Any]
    input_n: Any = None
    where: str = "learn.model"

    def predict(self, evidence: Evidence, q_nj: Floats, trained_n: Mask) -> Floats:
        """Predict as `Classifier.predict`; items without input get NaN. Raise BadInput if the estimator fails.

        A class without examples gets 1 / (M + J), where M is the number of training items.
        """
        x_n = evidence.features if self.input_n is None else self.input_n
        assert x_n is not None
        q_mj, rows = q_nj[trained_n], np.flatnonzero(trained_n)
        present_n = np.array([x is not None for x in x_n]) if len(x_n.shape) == 1 else np.ones(len(q_nj), dtype=bool)
        estimator = replace(self, input_n=x_n).fitted(rows, q_mj)
        if estimator is None:
            return np.tile((q_mj.sum(axis=0) + 1) / (len(q_mj) + q_mj.shape[1]), (len(q_nj), 1))
        with self._naming(estimator):
            p_mk = np.asarray(estimator.predict_proba(_take(x_n, np.flatnonzero(present_n))), np.float64)
            codes = np.asarray(estimator.classes_)
        seen = np.unique(_weighted(q_mj, _weights_argument(estimator) is not None)[1])
        _require_distributions(self.where, type(estimator).__name__, p_mk, int(present_n.sum()), codes, seen)
        p_nj = np.full(q_nj.shape, np.nan)
        p_nj[present_n] = over_all_classes(np.maximum(p_mk, 0.0), codes.tolist(), len(q_mj), q_nj.shape[1])
        return p_nj

    def fitted(self, rows: npt.NDArray[np.intp], q_mj: Floats) -> Any:
        """Return an estimator fitted to these rows of `input_n` and beliefs (M, J); None if there is only one class.

        Its classes are the codes of those that occur. Raise BadInput if it fails.
        """
        estimator = self.make(self.input_n.shape[-1])
        require_probabilities(estimator)
        weights = _weights_argument(estimator)
        row, code = _weighted(q_mj, weights is not None)
        if len(np.unique(code)) < 2:
            return None
        # On a busy machine threads of BLAS wait for each other: one is 3 to 18 times as fast, up to 40,000 x 768 values
        with self._naming(estimator), threadpool_limits(1, user_api="blas"):
            estimator.fit(
                _take(self.input_n, rows[row]), code, **({} if weights is None else {weights: q_mj[row, code]})
            )
        return estimator

    @contextmanager
    def _naming(self, estimator: Any) -> Iterator[None]:
        """Turn any error of an estimator, which is user code, into a BadInput error that names it."""
        try:
            yield
        except Exception as error:
            raise BadInput(
                f"{self.where}: {type(estimator).__name__} cannot be trained: {type(error).__name__}: {error}"
            ) from error


def _weighted(q_mj: Floats, weighted: bool) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return rows and classes of the training examples: each class that is believed in, or only the most probable."""
    row, code = np.nonzero(q_mj > MIN_BELIEF if weighted else np.eye(q_mj.shape[1])[q_mj.argmax(axis=1)])
    return row, code


def _take(x_n: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Return rows of an array, a sparse matrix or a DataFrame."""
    return x_n.iloc[rows] if hasattr(x_n, "iloc") else x_n[rows]


@dataclass(frozen=True)
class CombinerClassifier:
    """Combiner, by name, that predicts items from their features; their labels and truth are hidden from it."""

    method: str

    def predict(self, evidence: Evidence, q_nj: Floats, trained_n: Mask) -> Floats:
        """Predict as `Classifier.predict`; the beliefs are not used."""
        from hitl.models.registry import combiner

        annotations, truth = evidence.annotations, evidence.truth
        assert truth is not None
        visible = replace(
            evidence,
            annotations=annotations.select(trained_n[annotations.item]),
            truth=np.where(trained_n, truth, -1).astype(np.int32),
            probabilities={},
        )
        return combiner(self.method).fit(visible).probabilities


def classifier(name: str, input_n: npt.NDArray[np.object_] | None = None) -> Classifier:
    """Return a classifier by name: "logistic", "gp", "gpc-ma", or module:name of an estimator or its factory.

    `input_n` (N,) replaces the features for your own estimator. Raise BadSettings for an unknown name.
    """
    if not isinstance(name, str):
        raise BadSettings(
            f"learn.model is a {type(name).__name__}; expected its name: {', '.join(NAMES)}, or module:name or "
            "file.py:name of a function that makes an estimator"
        )
    if name == "logistic":
        linear = required("sklearn.linear_model", "learn.model 'logistic'", SKLEARN)
        return EstimatorClassifier(lambda n: linear.LogisticRegression(C=LOGIT_VARIANCE / n, max_iter=500))
    if name in COMBINERS:
        return CombinerClassifier(COMBINERS[name])
    if ":" not in name:
        raise BadSettings(
            f"learn.model {name!r} is unknown; expected one of {', '.join(NAMES)}, or module:name or file.py:name of "
            "an estimator with fit and predict_proba"
        )
    make = estimator_maker(load(name)[0])
    return EstimatorClassifier(lambda n_features: make(), input_n)


def _weights_argument(estimator: Any) -> str | None:
    """Return the name of the argument of `fit` that takes item weights, or None."""
    steps = getattr(estimator, "steps", None)
    if steps:
        inner = _weights_argument(steps[-1][1])
        return None if inner is None else f"{steps[-1][0]}__{inner}"
    return "sample_weight" if "sample_weight" in inspect.signature(estimator.fit).parameters else None


def _require_distributions(
    where: str, name: str, p_mk: Floats, n_items: int, codes: npt.NDArray[Any], seen: Any
) -> None:
    """Raise BadInput unless the estimator gave each item a distribution over the classes it learned."""
    shape = (n_items, len(codes))
    if codes.ndim != 1 or len({*codes.tolist()} & {*seen.tolist()}) != len(codes):
        problem = f"classes_ is {codes.tolist()}; expected the labels it was fitted on: {seen.tolist()}"
    elif p_mk.shape != shape:
        problem = f"predict_proba gives shape {p_mk.shape}; expected {shape}, a column for each class"
    elif not ((p_mk >= -ROUNDING).all() and np.allclose(p_mk.sum(axis=1), 1, atol=1e-3)):
        problem = "predict_proba gives rows that are no probabilities, which sum to 1"
    else:
        return
    raise BadInput(f"{where}: {name}.{problem}")
