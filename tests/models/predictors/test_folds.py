"""No model judges an item whose label, or whose near-duplicate's label, it was trained on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

from hitl.errors import BadInput, BadSettings
from hitl.models.predictors.folds import ALL, Examples, OutOfFold, labeled, split, train
from hitl.models.predictors.inputs import Batch, Inputs


class Memory(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Knows the label of every row it has seen by heart, and nothing of any other row."""

    def fit(self, inputs: Any, labels: Any) -> Memory:
        self.classes_ = np.unique(labels)
        rows = np.asarray(inputs).tolist()
        self.seen_ = {tuple(np.atleast_1d(row)): label for row, label in zip(rows, labels, strict=True)}
        return self

    def predict_proba(self, inputs: Any) -> Any:
        flat = np.full(len(self.classes_), 1 / len(self.classes_))
        sure = {name: np.eye(len(self.classes_))[code] for code, name in enumerate(self.classes_)}
        rows = np.asarray(inputs).tolist()
        return np.array([sure.get(self.seen_.get(tuple(np.atleast_1d(row))), flat) for row in rows])


class Witness(Memory):
    """Says how it was trained: the chance of class "b" is 1 for a row it has seen."""

    def predict_proba(self, inputs: Any) -> Any:
        seen = np.array([tuple(row) in self.seen_ for row in np.asarray(inputs).tolist()], dtype=float)
        return np.column_stack([1 - seen, seen])


def examples(n: int, labels: list[str], groups: list[str | None] | None = None, inputs: Any = None) -> Examples:
    inputs = np.arange(n, dtype=float)[:, None] if inputs is None else inputs
    return Examples([f"i{k}" for k in range(n)], inputs, ("x",), labels, groups or [None] * n)


def batch_of(said: Examples) -> Batch:
    return Batch(0, said.items, "features", said.inputs, ("x",), said.groups)


def accuracy(predictor: OutOfFold, said: Examples) -> float:
    values = predictor.predict(batch_of(said))
    right = np.array([predictor.classes.index(label) for label in said.labels])
    top = values == values.max(axis=1, keepdims=True)
    return float((top[np.arange(len(right)), right] / top.sum(axis=1)).mean())  # ties count as a guess


def test_a_model_that_memorises_is_at_chance() -> None:
    rng = np.random.default_rng(3)
    said = examples(600, rng.choice(["a", "b", "c"], 600).tolist())
    by_heart = Memory().fit(said.inputs, said.labels)
    assert (by_heart.predict_proba(said.inputs).max(axis=1) == 1).all()
    predictor = train(Memory, said, 5)
    assert accuracy(predictor, said) == pytest.approx(1 / 3, abs=1e-9)


def test_every_item_is_judged_by_a_model_that_has_not_seen_it_and_has_seen_all_others() -> None:
    said = examples(50, ["a", "b"] * 25)
    predictor = train(Witness, said, 5)
    batch = batch_of(said)
    assert (predictor.predict(batch)[:, 1] == 0).all()
    folds = np.array(predictor.folds(batch))
    assert set(folds) == {1, 2, 3, 4, 5}
    for fold in range(1, 6):
        seen = {row[0] for row in predictor.models[fold].estimator.seen_}
        assert seen == {float(n) for n in range(50) if folds[n] != fold}
        assert predictor.models[fold].examples == 40
    assert len(predictor.models[ALL].estimator.seen_) == 50


def test_folds_are_stratified() -> None:
    said = examples(100, ["a"] * 80 + ["b"] * 20)
    fold_m = split(said, 5, seed=0)
    assert np.bincount(fold_m[:80])[1:].tolist() == [16] * 5
    assert np.bincount(fold_m[80:])[1:].tolist() == [4] * 5
    assert (split(said, 5, seed=0) == fold_m).all()
    assert (split(said, 5, seed=1) != fold_m).any()


def test_a_group_shares_a_fold_and_takes_unlabeled_members_along() -> None:
    rng = np.random.default_rng(0)
    groups = [f"g{n // 4}" if n < 80 else None for n in range(100)]
    said = examples(100, rng.choice(["a", "b"], 100).tolist(), groups)
    predictor = train(Witness, said, 5)
    batch = batch_of(said)
    folds = predictor.folds(batch)
    for group in {name for name in groups if name}:
        members = {fold for fold, name in zip(folds, groups, strict=True) if name == group}
        assert len(members) == 1
    assert (predictor.predict(batch)[:, 1] == 0).all()
    # New items with the very inputs of labeled ones: only the group tells that they are the same thing.
    twins = Batch(0, [f"twin{n}" for n in range(80)], "features", said.inputs[:80], ("x",), groups[:80])
    assert predictor.folds(twins) == folds[:80]
    assert (predictor.predict(twins)[:, 1] == 0).all()
    alone = Batch(0, [f"twin{n}" for n in range(80)], "features", said.inputs[:80], ("x",), [None] * 80)
    assert (predictor.predict(alone)[:, 1] == 1).all()


def test_an_unlabeled_item_is_judged_by_the_model_trained_on_all() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(120, 1))
    labels = np.where(inputs[:, 0] + rng.normal(size=120) > 0, "b", "a").tolist()
    said = examples(80, labels[:80], inputs=inputs[:80])
    predictor = train(LogisticRegression, said, 4)
    new = Batch(0, [f"new{n}" for n in range(40)], "features", inputs[80:], ("x",), [None] * 40)
    alone = LogisticRegression().fit(inputs[:80], labels[:80])
    np.testing.assert_allclose(predictor.predict(new), alone.predict_proba(inputs[80:]), rtol=1e-9)
    assert set(predictor.folds(new)) == {ALL}
    # Labeled ones: a second, plain implementation of the split.
    folds = np.array(predictor.folds(batch_of(said)))
    for fold in range(1, 5):
        inside = folds == fold
        plain = LogisticRegression().fit(inputs[:80][~inside], np.array(labels[:80])[~inside])
        found = predictor.predict(batch_of(said))[inside]
        np.testing.assert_allclose(found, plain.predict_proba(inputs[:80][inside]), rtol=1e-9)


def test_a_class_a_fold_has_not_seen_is_unseen_and_not_impossible() -> None:
    said = examples(31, ["a", "b"] * 15 + ["rare"])
    predictor = train(Memory, said, 3, classes=["a", "b", "never", "rare"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = predictor.predict(batch_of(said))
    np.testing.assert_allclose(values.sum(axis=1), 1)
    model = predictor.models[predictor.folds(batch_of(said))[30]]
    assert predictor.classes == ("a", "b", "rare")  # of a class without any label nothing is said
    unseen = 1 / (model.examples + 3)
    np.testing.assert_allclose(values[30], [(1 - unseen) / 2, (1 - unseen) / 2, unseen])


def test_texts_are_trained_on_a_fold_at_a_time(tmp_path: Path) -> None:
    words = {"cat": ["meow", "purr"], "dog": ["woof", "bark"]}
    lines = [f"{n},{words['cat' if n % 2 else 'dog'][n % 4 // 2]} {n}" for n in range(40)]
    (tmp_path / "t.csv").write_text("item,text\n" + "\n".join(lines) + "\n40,\n41,purr\n")
    inputs = Inputs(tmp_path / "t.csv", text="text")
    labels = {str(n): "cat" if n % 2 else "dog" for n in range(41)}
    found = labeled(inputs, labels, 7)
    assert len(found) == 40  # the empty text has a label and nothing to learn from
    predictor = train(lambda: make_pipeline(CountVectorizer(), MultinomialNB()), found, 4)
    (batch,) = inputs.batches(100)
    values = predictor.predict(batch)
    top = [predictor.classes[code] for code in values[:40].argmax(axis=1)]
    assert top == [labels[str(n)] for n in range(40)]
    assert np.isnan(values[40]).all()
    assert values[41, predictor.classes.index("cat")] > 0.5


@pytest.mark.parametrize(
    ("labels", "groups", "folds", "message"),
    [
        (["a"] * 10, None, 2, "the labels name 1 class"),
        (["a", "b"], None, 3, "there are 2 labeled items; expected at least one for each fold"),
        (["a", "b"] * 4, ["x"] * 4 + ["y"] * 4, 3, "there are 2 groups"),
        (["a", "b", "c", "d"], None, 3, "--folds 3: "),
    ],
)
def test_too_little_to_split(labels: list[str], groups: list[str | None] | None, folds: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        train(Memory, examples(len(labels), labels, groups), folds)


def test_what_cannot_be_trained_says_on_which_part() -> None:
    with pytest.raises(BadInput, match="cannot be trained on all labeled items: ValueError"):
        train(lambda: MultinomialNB(), examples(4, ["a", "b"] * 2, inputs=-np.ones((4, 1))), 2)
    with pytest.raises(BadSettings, match="the label 'b' is not among a, c"):
        train(Memory, examples(4, ["a", "b"] * 2), 2, classes=["a", "c"])
    with pytest.raises(BadSettings, match="has no predict_proba"):
        train(BaseEstimator, examples(4, ["a", "b"] * 2), 2)
