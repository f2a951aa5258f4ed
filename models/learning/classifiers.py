"""What can learn from features and soft labels: scikit-learn estimators, and combiners that use features themselves.

A `Classifier` is given all items and told which it may learn from. An estimator learns from their beliefs: every item
enters once for each class, with its belief in the class as weight. A combiner that uses features (gpc-ma) learns from
their labels: those of all other items are withdrawn first. It may go on from what fewer of these items have taught it,
which two trainings can share (`out_of_fold`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.errors import BadInput, BadSettings
from hitl.evidence import Evidence
from hitl.models.predictors.estimators import require_probabilities
from hitl.models.predictors.loading import ModelSettings, find, maker
from hitl.models.predictors.predictor import required

Mask = npt.NDArray[np.bool_]

INSTALL = "hitl-toolkit[sklearn]"

LOGIT_VARIANCE = 9.0
"""Prior variance of a logit of "logistic": logits of -3 to 3, probabilities of .05 to .95, are nothing special."""

LEAST = 0.02
"""Belief from which an item enters for a class: below, its copies would only take time."""

ROUNDING = 1e-6
"""How far below 0 a probability may be that an estimator has computed as a difference; it is taken for 0."""


class Classifier(Protocol):
    """Predicts classes from features."""

    def predict(self, evidence: Evidence, q_nj: Floats, trained_n: Mask, first_n: Mask | None = None) -> Floats:
        """(N, J) distributions, by a model that learned from the items `trained_n` (N,) alone.

        `q_nj` (N, J) are beliefs. `first_n` (N,) are some of the items, from which it may learn first. All items have
        features, finite and standardised, unless it has inputs of its own.
        """
        ...


@dataclass(frozen=True)
class Estimating:
    """A scikit-learn estimator, made anew for each training by `make(number of features)`.

    Attributes:
        input_n: (N,) what it is given of each item in place of features, such as a text; None where there is nothing.
    """

    make: Callable[[int], Any]
    input_n: npt.NDArray[np.object_] | None = None

    def predict(self, evidence: Evidence, q_nj: Floats, trained_n: Mask, first_n: Mask | None = None) -> Floats:
        """As `Classifier.predict`; it learns from all at once.

        A class that nothing was trained on gets 1 / (M + J) after M items.
        """
        x_nd, q_mj = self._inputs(evidence), q_nj[trained_n]
        estimator = self.make(x_nd.shape[-1])
        require_probabilities(estimator)
        row, code = np.nonzero(q_mj > LEAST)
        weight: Mapping[str, Any] = {}
        key = _weight_key(estimator)
        if key is None:
            row, code = np.arange(len(q_mj)), q_mj.argmax(axis=1)
        else:
            weight = {key: q_mj[row, code]}
        if len(np.unique(code)) < 2:
            return _constant(q_mj, len(x_nd))
        try:
            estimator.fit(x_nd[trained_n][row], code, **weight)
            own_nj, codes = self._predicted(estimator, x_nd), np.asarray(estimator.classes_)
        except Exception as error:  # user code
            raise BadInput(
                f"learn.model: {type(estimator).__name__} cannot be trained: {type(error).__name__}: {error}"
            ) from error
        there_n = np.ones(len(x_nd), np.bool_) if self.input_n is None else np.array([one is not None for one in x_nd])
        _require_distributions(type(estimator).__name__, own_nj, there_n, codes, np.unique(code))
        return _over_all(np.maximum(own_nj, 0.0), codes.astype(np.intp), len(q_mj), q_nj.shape[1])

    def _inputs(self, evidence: Evidence) -> npt.NDArray[Any]:
        """(N, D) features, or (N,) inputs of its own."""
        if self.input_n is not None:
            return self.input_n
        assert evidence.features is not None
        return evidence.features

    def _predicted(self, estimator: Any, x_nd: npt.NDArray[Any]) -> Floats:
        """(N, classes) of all items; NaN where there is no input."""
        if self.input_n is None:
            return np.asarray(estimator.predict_proba(x_nd), dtype=np.float64)
        there = np.array([one is not None for one in self.input_n])
        own_nj = np.full((len(there), len(estimator.classes_)), np.nan)
        own_nj[there] = estimator.predict_proba(self.input_n[there])
        return own_nj


@dataclass
class Combining:
    """A combiner that uses features: its beliefs about items whose labels and truth it is not shown.

    Attributes:
        method: its name.
        goes_on: whether it learns first from what two folds have in common. What it was fitted to is kept then, while
            it is asked about the same evidence.
    """

    method: str
    goes_on: bool = False
    _evidence: Evidence | None = field(default=None, init=False, repr=False)
    _fits: dict[bytes, Consensus] = field(default_factory=dict, init=False, repr=False)

    def predict(self, evidence: Evidence, q_nj: Floats, trained_n: Mask, first_n: Mask | None = None) -> Floats:
        """As `Classifier.predict`; the beliefs are not used."""
        if self._evidence is not evidence:
            self._evidence, self._fits = evidence, {}
        if not self.goes_on or (first_n is not None and first_n.sum() < FEW):
            return self._fit(evidence, trained_n, None).probabilities
        first = None if first_n is None else self._kept(evidence, first_n, None)
        return self._kept(evidence, trained_n, first).probabilities

    def _kept(self, evidence: Evidence, trained_n: Mask, first: Consensus | None) -> Consensus:
        key = trained_n.tobytes()
        if key not in self._fits:
            self._fits[key] = self._fit(evidence, trained_n, first)
        return self._fits[key]

    def _fit(self, evidence: Evidence, trained_n: Mask, first: Consensus | None) -> Consensus:
        from hitl.models.registry import combiner

        return combiner(self.method).fit(shown(evidence, trained_n), start=first)


def shown(evidence: Evidence, trained_n: Mask) -> Evidence:
    """Evidence with the labels and truth of these items (N,) alone, and without models."""
    annotations, truth = evidence.annotations, evidence.truth
    assert truth is not None
    return replace(
        evidence,
        annotations=annotations.select(trained_n[annotations.item]),
        truth=np.where(trained_n, truth, -1).astype(np.int32),
        probabilities={},
    )


def classifier(name: str, input_n: npt.NDArray[np.object_] | None = None) -> Classifier:
    """The classifier of a name: "logistic", "gp", "gpc-ma", or module:name of an estimator or what makes one.

    `input_n` (N,) is for one of your own, in place of features: see `Estimating`.
    Raises BadSettings for an unknown name, MissingExtra where scikit-learn is not installed.
    """
    if not isinstance(name, str):
        raise BadSettings(
            f"learn.model is a {type(name).__name__}; expected its name: {', '.join(NAMES)}, or module:name or "
            "file.py:name of a function that makes an estimator"
        )
    if name == "logistic":
        return Estimating(_logistic)
    if name in COMBINERS:
        return Combining(COMBINERS[name], goes_on=name in GOES_ON)
    if ":" not in name:
        raise BadSettings(
            f"learn.model {name!r} is unknown; expected one of {', '.join(NAMES)}, or module:name or file.py:name of "
            "an estimator with fit and predict_proba"
        )
    make = maker(find(ModelSettings(name)))
    return Estimating(lambda n_features: make(), input_n)


COMBINERS: Mapping[str, str] = {"gp": "variational-gpc-ma", "gpc-ma": "gpc-ma"}
"""Name of a classifier -> the combiner that it is."""

FEW = 300
"""Items in common below which each fold begins anew: a fit takes moments then, and a kernel that fewer items taught
predicts worse."""

GOES_ON = ("gpc-ma",)
"""Those that learn first from what two folds have in common. "gp" saves little by it and predicts worse: its kernel
takes a fixed number of steps, of which those on fewer items lead elsewhere."""

NAMES = ("logistic", *COMBINERS)


def _logistic(n_features: int) -> Any:
    """Weights of prior variance `LOGIT_VARIANCE` / D each."""
    linear = required("sklearn.linear_model", "learn.model 'logistic'", INSTALL)
    return linear.LogisticRegression(C=LOGIT_VARIANCE / n_features, max_iter=500)


def _weight_key(estimator: Any) -> str | None:
    """What `fit` calls the weights of items; None where it takes none."""
    steps = getattr(estimator, "steps", None)
    if steps:
        inner = _weight_key(steps[-1][1])
        return None if inner is None else f"{steps[-1][0]}__{inner}"
    return "sample_weight" if "sample_weight" in inspect.signature(estimator.fit).parameters else None


def _constant(q_mj: Floats, n_items: int) -> Floats:
    """(N, J) the shares of the classes, with one item more in each."""
    share_j = (q_mj.sum(axis=0) + 1) / (len(q_mj) + q_mj.shape[1])
    return np.tile(share_j, (n_items, 1))


def _require_distributions(name: str, own_nj: Floats, there_n: Mask, codes: npt.NDArray[Any], seen: Any) -> None:
    """Raise BadInput unless an estimator gave each item that it saw a distribution over the classes it learned."""
    if codes.ndim != 1 or len({*codes.tolist()} & {*seen.tolist()}) != len(codes):
        raise BadInput(
            f"learn.model: {name}.classes_ is {codes.tolist()}; expected the labels it was fitted on: {seen.tolist()}"
        )
    if own_nj.shape != (len(there_n), len(codes)):
        raise BadInput(
            f"learn.model: {name}.predict_proba gives shape {own_nj.shape}; expected {(len(there_n), len(codes))}, a "
            "column for each class"
        )
    seen_nj = own_nj[there_n]
    if not ((seen_nj >= -ROUNDING).all() and np.allclose(seen_nj.sum(axis=1), 1, atol=1e-3)):
        raise BadInput(f"learn.model: {name}.predict_proba gives rows that are no probabilities, which sum to 1")


def _over_all(own_nj: Floats, codes: npt.NDArray[np.intp], examples: int, n_classes: int) -> Floats:
    """(N, J) over all classes: an unseen one gets 1 / (M + J), the others share the rest."""
    unseen = 1 / (examples + n_classes)
    p_nj = np.full((len(own_nj), n_classes), unseen)
    p_nj[:, codes] = own_nj * (1 - unseen * (n_classes - len(codes)))
    return p_nj
