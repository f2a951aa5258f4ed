"""The interface of crowd-kit: the same tables in, the same shapes out. Compared with crowd-kit 1.4.1, see below."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import hitl
from hitl.errors import BadSettings, BadTable

ANSWERS = pd.DataFrame(
    {
        "task": ["t2", "t2", "t1", "t1", "t1", "t3"],
        "worker": ["w1", "w2", "w1", "w2", "w3", "w3"],
        "label": ["b", "b", "a", "a", "b", "b"],
        "seconds": 3,
    }
)


def test_shapes_are_those_of_crowd_kit() -> None:
    """`MajorityVote` and `DawidSkene` of crowd-kit 1.4.1 give these indexes and names for ANSWERS."""
    found = hitl.Aggregator("majority").fit(ANSWERS)
    expected = pd.Series(list("bab"), pd.Index(["t2", "t1", "t3"], name="task"), name="agg_label")
    pd.testing.assert_series_equal(found.labels_, expected)
    assert (found.probas_.index.name, found.probas_.columns.name) == ("task", "label")
    assert set(found.probas_.columns) == {"a", "b"}
    assert (found.skills_.name, found.skills_.index.name, list(found.skills_.index)) == (
        "skill",
        "worker",
        ["w1", "w2", "w3"],
    )
    assert (found.priors_.name, found.priors_.index.name) == ("prior", "label")


@pytest.mark.parametrize(
    "data", [ANSWERS, pl.from_pandas(ANSWERS), ANSWERS.to_dict("list")], ids=["pandas", "polars", "dict"]
)
def test_it_is_what_combine_gives(data: Any) -> None:
    expected = hitl.combine(ANSWERS, item="task", annotator="worker")
    found = hitl.Aggregator()
    assert found.fit_predict(data).to_dict() == dict(zip(expected.items, expected.labels, strict=True))
    np.testing.assert_array_equal(found.fit_predict_proba(data), expected.probabilities)
    np.testing.assert_array_equal(found.skills_, expected.annotators.accuracy)


def test_methods_settings_known_labels_and_numbers() -> None:
    known = pd.Series({"t3": "a"})
    found = hitl.Aggregator("dawid-skene", smoothing=0.1).fit(ANSWERS, known)
    assert found.labels_["t3"] == "a"
    assert found.consensus_.fit.settings["smoothing"] == 0.1
    assert hitl.Aggregator(hitl.models.OneCoin()).fit(ANSWERS).consensus_.fit.method == "one-coin"
    numbers = hitl.Aggregator().fit_predict(ANSWERS.assign(label=[1, 1, 0, 0, 1, 1]))
    assert numbers.dtype == np.int64


def test_errors_say_what_was_expected() -> None:
    with pytest.raises(BadTable, match=r"no column 'worker'; found task, label"):
        hitl.Aggregator().fit(ANSWERS[["task", "label"]])
    with pytest.raises(BadSettings, match=r"did you mean 'majority'\?"):
        hitl.Aggregator("MajorityVote").fit(ANSWERS)


def test_it_has_a_repr_a_clone_and_an_error_in_its_own_words() -> None:
    made = hitl.Aggregator("dawid-skene", smoothing=0.1)
    assert repr(made) == repr(clone(made)) == "Aggregator('dawid-skene', smoothing=0.1)"
    with pytest.raises(BadTable, match=r"data: no column 'worker'; found task, who, label\. Rename the columns as in"):
        made.fit(ANSWERS[["task", "worker", "label"]].rename(columns={"worker": "who"}))
