"""A classifier that learns from several annotators' labels is an estimator as any other of scikit-learn."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

import hitl
from hitl.errors import BadSettings
from hitl.sklearn import CrowdClassifier

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(3, size=300)
X = np.eye(3)[TRUTH] + RNG.normal(scale=0.5, size=(300, 3))
RIGHT = np.array([0.9, 0.8, 0.7, 0.6, 0.34])
Y = np.where(RNG.random((300, 5)) < RIGHT, TRUTH[:, None], RNG.integers(3, size=(300, 5)))
Y[RNG.random(Y.shape) < 0.5] = -1
NAMES = np.array(["ant", "bee", "cat"], dtype=object)

EXEMPT = {"check_supervised_y_2d": "a column (N, 1) is one annotator, who may be wrong, and no 1-D y in disguise"}


@parametrize_with_checks([CrowdClassifier()], expected_failed_checks=lambda _: EXEMPT)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_it_learns_from_annotators_as_from_the_method_learned() -> None:
    model = CrowdClassifier().fit(X, Y)
    alone = hitl.models.DefaultCombiner().fit(hitl.Evidence(hitl.Annotations.from_matrix(Y)))
    assert model.consensus_ is not None
    assert (model.consensus_.codes == TRUTH).mean() > (alone.codes == TRUTH).mean() + 0.02
    evidence = hitl.Evidence(hitl.Annotations.from_matrix(Y), features=X)
    learned = hitl.models.Learned().fit(evidence)
    assert (model.consensus_.codes == learned.codes).mean() > 0.98
    assert model.consensus_.annotators.accuracy.argmin() == 4
    new = np.eye(3)
    assert model.predict(new).tolist() == [0, 1, 2]
    np.testing.assert_allclose(model.predict_proba(new).sum(axis=1), 1)


@pytest.mark.parametrize(
    "y",
    [
        np.where(Y < 0, None, NAMES[Y]),
        np.where(Y < 0, "", NAMES[Y].astype(str)),
        pd.DataFrame(np.where(Y < 0, None, NAMES[Y]), columns=["ann", "bob", "cy", "di", "ed"]),
        np.where(Y < 0, np.nan, Y),
        Y.tolist(),
        pd.DataFrame(Y, columns=["ann", "bob", "cy", "di", "ed"]).astype("Int64").where(Y >= 0),
    ],
    ids=["None", "empty", "frame", "nan", "list", "NA"],
)
def test_a_missing_answer_has_many_faces(y: Any) -> None:
    expected, found = CrowdClassifier().fit(X, Y), CrowdClassifier().fit(X, y)
    codes = np.searchsorted(found.classes_, found.predict(X))
    np.testing.assert_array_equal(codes, expected.predict(X))
    assert found.classes_.tolist() in (NAMES.tolist(), [0, 1, 2])
    if isinstance(y, pd.DataFrame):
        assert found.consensus_.annotators.names == ("ann", "bob", "cy", "di", "ed")


@pytest.mark.parametrize(
    "inputs", [X, sparse.csr_array(X), pd.DataFrame(X, columns=list("uvw"))], ids=["array", "sparse", "frame"]
)
def test_any_estimator_and_its_inputs(inputs: Any) -> None:
    model = CrowdClassifier(LogisticRegression()).fit(inputs, Y)
    assert (model.predict(inputs) == TRUTH).mean() > 0.8
    texts = [f"{NAMES[code]} {word}" for code, word in zip(TRUTH, RNG.integers(9, size=300), strict=True)]
    reader = CrowdClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression())).fit(texts, Y)
    assert (reader.predict(texts) == TRUTH).mean() > 0.95


def test_pipelines_and_searches() -> None:
    grid = {"estimator__C": [0.1, 1.0], "method": ["majority", "default"]}
    search = GridSearchCV(CrowdClassifier(LogisticRegression()), grid, cv=3, error_score="raise").fit(X, Y)
    assert 0.5 < search.best_score_ < 1
    pipe = make_pipeline(StandardScaler(), CrowdClassifier()).fit(X, Y)
    assert (pipe.predict(X) == TRUTH).mean() > 0.8
    assert cross_val_score(CrowdClassifier(), X, np.where(Y < 0, np.nan, Y), cv=KFold(3)).min() > 0.5
    assert CrowdClassifier().fit(X, TRUTH).score(X, TRUTH) > 0.8
    assert CrowdClassifier().fit(X, TRUTH).consensus_ is None


def test_few_rows_and_unlabeled_items() -> None:
    model = CrowdClassifier().fit([[0.0], [1.0], [2.0]], [[0, 0], [1, 1], [-1, -1]])
    assert model.predict([[0.0], [1.0]]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([[0, 0], [0, -1]], r"found one class, 0 \(-1 means no answer\)"),
        ([["a", 1], ["b", None]], "labels are text and numbers"),
        ([[None, None], [np.nan, -1]], "no labels"),
        ([[0.5, 0.2], [0.1, 0.3]], "Unknown label type: continuous"),
        ([[0, 1]], "inconsistent numbers of samples"),
    ],
)
def test_labels_that_cannot_be_learned_from(y: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CrowdClassifier().fit([[1.0], [2.0]], y)
    with pytest.raises(BadSettings, match=r"did you mean 'vb-ibcc'\?"):
        CrowdClassifier(method="vbibcc").fit(X, Y)
    with pytest.raises(BadSettings, match="setting folds is 1; expected a whole number of at least 2"):
        CrowdClassifier(folds=1).fit(X, Y)


def test_rows_in_different_orders_are_refused() -> None:
    inputs, answers = pd.DataFrame(X), pd.DataFrame(Y)
    with pytest.raises(ValueError, match=r"the same index in different orders; expected one order: y\.loc\[X\.index\]"):
        CrowdClassifier().fit(inputs.sample(frac=1, random_state=0), answers)
    rows = inputs.index[::-1]
    CrowdClassifier().fit(inputs.loc[rows], answers.loc[rows])
    CrowdClassifier().fit(inputs, answers.set_axis(range(300, 600)))  # other names are matched by place


def test_items_of_the_consensus_are_the_index_of_the_labels() -> None:
    names = [f"song {n}" for n in range(len(Y))]
    model = CrowdClassifier().fit(pd.DataFrame(X, names), pd.DataFrame(Y, names, list("abcde")))
    assert model.consensus_ is not None
    assert list(model.consensus_.items) == names


class Counting(LogisticRegression):  # type: ignore[misc]
    """Notes how many threads BLAS has when it is trained."""

    threads: ClassVar[set[int]] = set()

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.threads.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return super().fit(X, y, sample_weight)


def test_no_training_waits_for_threads_of_a_busy_machine() -> None:
    with threadpool_limits(2, user_api="blas"):
        Counting().fit(X, TRUTH)
        assert 2 in Counting.threads
        Counting.threads.clear()
        CrowdClassifier(Counting()).fit(X, Y)
    assert Counting.threads == {1}


def test_frames_of_polars_are_features_and_labels_too() -> None:
    model = CrowdClassifier().fit(pl.DataFrame(X), pl.DataFrame(Y))
    expected = CrowdClassifier().fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(pl.DataFrame(X)), expected)
