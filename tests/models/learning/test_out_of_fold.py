"""No item is predicted by a model that has seen its labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from hitl.errors import BadInput, BadSettings
from hitl.evidence import Evidence
from hitl.models.learning.classifiers import LOGIT_VARIANCE, EstimatorClassifier, classifier
from hitl.models.learning.learned import Training, out_of_fold, plan_training, standardised
from hitl.testing.crowds import crowd, reordered


def evidence_of(seed: int = 0, n_items: int = 60, **shape: Any) -> tuple[Evidence, np.typing.NDArray[np.int32]]:
    """Items with two features that tell their class well, and two that tell nothing."""
    rng = np.random.default_rng(seed)
    evidence, truth = crowd(rng, n_items, **({"n_classes": 3} | shape))
    clue = np.array([[2, 0], [0, 2], [-2, -2]])[truth] + rng.normal(size=(n_items, 2))
    return replace(evidence, features=np.hstack([clue, rng.normal(size=(n_items, 2))])), truth


def beliefs(evidence: Evidence, truth: Any, sure: float = 0.9) -> np.typing.NDArray[np.float64]:
    n_classes = evidence.annotations.n_classes
    return np.where(np.eye(n_classes)[truth] > 0, sure, (1 - sure) / (n_classes - 1))


def trained(evidence: Evidence, q: Any, **options: Any) -> Training:
    found = plan_training(evidence, q, **({"folds": 5} | options))
    assert found is not None
    return found


class Memory:
    """Remembers every item it was trained on, by its features."""

    seen: dict[bytes, int]

    def fit(self, x: Any, y: Any) -> Memory:
        self.classes_ = np.unique(y)
        self.seen = {row.tobytes(): int(code) for row, code in zip(x, y, strict=True)}
        return self

    def predict_proba(self, x: Any) -> Any:
        known = [self.seen.get(row.tobytes(), -1) for row in x]
        return np.array(
            [
                np.where(self.classes_ == code, 1.0, 0.0)
                if code >= 0
                else np.full(len(self.classes_), 1 / len(self.classes_))
                for code in known
            ]
        )


def test_what_an_item_says_does_not_reach_its_own_prediction() -> None:
    evidence, truth = evidence_of()
    training = trained(evidence, beliefs(evidence, truth))
    p = out_of_fold(EstimatorClassifier(lambda n: Memory()), training)
    assert np.ptp(p[training.trained_n], axis=1).max() < 1e-12  # a memory knows nothing of any of them
    changed = beliefs(evidence, truth)
    row = int(np.flatnonzero(training.trained_n)[7])
    changed[row] = np.roll(changed[row], 1)
    other = replace(training, q_nj=changed)
    logistic = classifier("logistic")
    before, after = out_of_fold(logistic, training), out_of_fold(logistic, other)
    fold_n = training.fold_n
    np.testing.assert_array_equal(before[fold_n == fold_n[row]], after[fold_n == fold_n[row]])
    assert (before[fold_n != fold_n[row]] != after[fold_n != fold_n[row]]).any()


def test_items_without_labels_are_predicted_by_the_model_of_all() -> None:
    evidence, truth = evidence_of(unlabeled=20)
    training = trained(evidence, beliefs(evidence, truth))
    there = evidence.annotations.labels_per_item > 0
    assert set(training.fold_n[~there & ~evidence.known]) == {0}
    assert set(training.fold_n[there]) == {1, 2, 3, 4, 5}
    z = standardised(evidence.features)
    soft = [(n, j) for n in np.flatnonzero(training.trained_n) for j in range(3)]
    expected = LogisticRegression(C=LOGIT_VARIANCE / 4, max_iter=500).fit(
        z[[n for n, _ in soft]], [j for _, j in soft], sample_weight=[training.q_nj[n, j] for n, j in soft]
    )
    rest = training.fold_n == 0
    np.testing.assert_allclose(
        out_of_fold(classifier("logistic"), training)[rest], expected.predict_proba(z[rest]), atol=1e-9
    )


def test_logistic_minimises_the_loss_of_soft_labels() -> None:
    evidence, truth = evidence_of(3)
    training = trained(evidence, beliefs(evidence, truth, 0.8))
    z, q, rows = standardised(evidence.features), training.q_nj, np.flatnonzero(training.trained_n)
    precision = 4 / LOGIT_VARIANCE

    def loss(flat: Any) -> float:
        w = flat.reshape(5, 3)
        log_p = log_softmax(z[rows] @ w[:4] + w[4], axis=1)
        return float(-np.sum(q[rows] * log_p) + precision / 2 * np.sum(w[:4] ** 2))

    w = minimize(loss, np.zeros(15), tol=1e-12).x.reshape(5, 3)
    found = classifier("logistic").predict(training.evidence, q, training.trained_n)
    np.testing.assert_allclose(found, softmax(z @ w[:4] + w[4], axis=1), atol=2e-3)


def test_the_order_of_items_makes_no_difference() -> None:
    evidence, truth = evidence_of()
    q = beliefs(evidence, truth)
    order = np.random.default_rng(1).permutation(60)
    moved = trained(reordered(evidence, items=order), q[order])
    here = out_of_fold(classifier("logistic"), trained(evidence, q))
    np.testing.assert_allclose(out_of_fold(classifier("logistic"), moved), here[order], atol=1e-6)


def test_items_without_features_are_neither_learned_from_nor_predicted() -> None:
    evidence, truth = evidence_of()
    x = np.array(evidence.features)
    x[::4] = np.nan
    training = trained(replace(evidence, features=x), beliefs(evidence, truth))
    p = out_of_fold(classifier("logistic"), training)
    assert np.isnan(p[::4]).all()
    assert not np.isnan(np.delete(p, np.arange(0, 60, 4), axis=0)).any()
    assert not training.trained_n[::4].any()


@pytest.mark.parametrize("labeled", [0, 1, 9])
def test_too_little_is_nothing_to_learn_from(labeled: int) -> None:
    evidence, truth = evidence_of(unlabeled=60 - labeled)
    assert plan_training(evidence, beliefs(evidence, truth), 5) is None


def test_a_class_that_nobody_has_seen_is_improbable_not_impossible() -> None:
    evidence, truth = evidence_of()
    q = np.eye(3)[np.minimum(truth, 1)]
    training = trained(evidence, q)
    p = out_of_fold(classifier("logistic"), training)
    examples = [(training.trained_n & (training.fold_n != fold)).sum() for fold in range(1, 6)]
    for fold, count in enumerate(examples, start=1):
        np.testing.assert_allclose(p[training.fold_n == fold, 2], 1 / (count + 3))
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_an_estimator_of_the_user(tmp_path: Any) -> None:
    (tmp_path / "mine.py").write_text(
        "from sklearn.naive_bayes import GaussianNB\n\n\ndef make():\n    return GaussianNB()\n"
    )
    evidence, truth = evidence_of(n_items=150)
    p = out_of_fold(classifier(f"{tmp_path}/mine.py:make"), trained(evidence, beliefs(evidence, truth)))
    assert (p.argmax(axis=1) == truth).mean() > 0.75


def test_what_cannot_be_used_is_said() -> None:
    with pytest.raises(BadSettings, match=r"learn\.model 'forest' is unknown; expected one of logistic"):
        classifier("forest")

    class Broken(Memory):
        def fit(self, x: Any, y: Any) -> Memory:
            raise ValueError("no luck today")

    evidence, truth = evidence_of()
    with pytest.raises(BadInput, match=r"Broken cannot be trained: ValueError: no luck today"):
        out_of_fold(EstimatorClassifier(lambda n: Broken()), trained(evidence, beliefs(evidence, truth)))


@pytest.mark.parametrize(("name", "fold"), [("gp", 1), ("gpc-ma", 0), ("gpc-ma", 1)])
def test_a_combiner_that_uses_features_is_not_shown_the_labels_of_the_fold(name: str, fold: int) -> None:
    """A process learns from labels, not beliefs: of the items that it predicts they are withdrawn, and their truth."""
    evidence, truth = evidence_of(n_items=80, known=0.3, unlabeled=16)
    training = trained(evidence, beliefs(evidence, truth))
    rows = training.fold_n == fold
    before = training.predict(classifier(name), fold)
    annotations = training.evidence.annotations
    said = annotations.label.copy()
    said[rows[annotations.item]] = (said[rows[annotations.item]] + 1) % 3
    wrong = replace(
        training.evidence,
        annotations=replace(annotations, label=said),
        truth=np.where(rows & training.evidence.known, (truth + 1) % 3, training.evidence.truth).astype(np.int32),
    )
    after = replace(training, evidence=wrong).predict(classifier(name), fold)
    np.testing.assert_array_equal(before, after)


class Saying(Memory):
    """An estimator whose answers and classes are what it is told."""

    def __init__(self, says: Any, classes: Any = None) -> None:
        self.says, self.own = says, classes

    def fit(self, x: Any, y: Any) -> Saying:
        if self.own is not None:
            self.classes_ = self.own
        elif self.says is not None:
            self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x: Any) -> Any:
        return np.tile(0.5 if self.says is None else self.says, (len(x), 1))


@pytest.mark.parametrize(
    ("says", "classes", "message"),
    [
        (None, None, "Saying cannot be trained: AttributeError: .*'classes_'"),
        ([0.5, 0.5], ["a", "b"], r"Saying.classes_ is \['a', 'b'\]; expected the labels it was fitted on: \[0, 1, 2\]"),
        ([0.5, 0.5], [0, 7], r"Saying.classes_ is \[0, 7\]; expected the labels"),
        ([0.5], None, r"Saying.predict_proba gives shape \(\d+, 1\); expected \(\d+, 3\), a column for each class"),
        ([0.9, 0.9, 0.9], None, "Saying.predict_proba gives rows that are no probabilities, which sum to 1"),
        ([-1.0, 2.0, 0.0], None, ".* rows that are no probabilities"),
        ([np.nan, 0.5, 0.5], None, ".* rows that are no probabilities"),
    ],
)
def test_an_estimator_that_gives_no_distributions_is_said_to(says: Any, classes: Any, message: str) -> None:
    """What it says was taken as it is, and left out as a model that knows nothing, or ended in an error of numpy."""
    evidence, truth = evidence_of()
    training = trained(evidence, beliefs(evidence, truth))
    with pytest.raises(BadInput, match=f"learn.model: {message}"):
        out_of_fold(EstimatorClassifier(lambda n: Saying(says, classes)), training)


def test_a_probability_that_rounding_left_below_0_is_0() -> None:
    class Rounded:
        def fit(self, x: Any, y: Any, sample_weight: Any) -> None:
            self.classes_ = np.unique(y)

        def predict_proba(self, x: Any) -> Any:
            return np.tile([1 + 1e-9, -1e-9], (len(x), 1))

    said = {"item": ["a", "b"], "annotator": ["ann", "ann"], "label": ["x", "y"]}
    evidence = Evidence.from_tables(said, features={"item": ["a", "b"], "features": [[0.0], [1.0]]})
    p_nj = EstimatorClassifier(lambda width: Rounded()).predict(evidence, np.full((2, 2), 0.5), np.ones(2, np.bool_))
    assert p_nj[:, 1].tolist() == [0, 0]
