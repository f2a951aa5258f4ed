"""A combiner beside a classifier that learns from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hitl import score
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner, Learned
from hitl.models.learning.learned import NAME
from hitl.testing.crowds import crowd


def thin(seed: int, clue: float, n_items: int = 400) -> tuple[Evidence, np.typing.NDArray[np.int32]]:
    """One label or two an item, and ten features; `clue`: how much the first three tell of the class."""
    rng = np.random.default_rng(seed)
    evidence, truth = crowd(rng, n_items, n_classes=3, n_annotators=8, asked=0.15)
    x = rng.normal(size=(n_items, 10))
    x[:, :3] += clue * np.eye(3)[truth]
    return replace(evidence, features=x), truth


def accuracy(evidence: Evidence, truth: np.typing.NDArray[np.int32], method: DefaultCombiner | Learned) -> float:
    used = evidence if isinstance(method, Learned) else replace(evidence, features=None)
    return score.accuracy(method.fit(used).probabilities, truth)


def test_it_is_better_than_annotators_alone_where_features_tell_the_class() -> None:
    gain = [accuracy(*thin(seed, 2.0), Learned()) - accuracy(*thin(seed, 2.0), DefaultCombiner()) for seed in range(3)]
    assert min(gain) > 0.1


def test_features_that_tell_nothing_leave_annotators_alone() -> None:
    evidence, _ = thin(0, 0.0)
    found = Learned().fit(evidence)
    expected = DefaultCombiner().fit(replace(evidence, features=None))
    assert found.temperatures == {}
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)


@pytest.mark.parametrize("labels", [0, 1, 5])
def test_it_begins_without_labels(labels: int) -> None:
    evidence, _ = thin(0, 2.0)
    few = replace(evidence, annotations=evidence.annotations.select(np.arange(len(evidence.annotations)) < labels))
    found = Learned().fit(few)
    np.testing.assert_array_equal(found.probabilities, DefaultCombiner().fit(replace(few, features=None)).probabilities)


def test_other_models_stay() -> None:
    rng = np.random.default_rng(0)
    evidence, truth = crowd(rng, 200, n_classes=3, models=2)
    found = Learned().fit(replace(evidence, features=np.eye(3)[truth] + rng.normal(size=(200, 3))))
    assert sorted(found.temperatures) == sorted([*evidence.probabilities, NAME])


def test_near_duplicates_of_a_group_do_not_tell_of_one_another() -> None:
    """Pairs of items look alike and like no other: only by its twin could a model tell anything of an item."""
    rng = np.random.default_rng(5)
    evidence, _ = crowd(rng, 240, n_classes=2, n_annotators=6)
    twins = np.repeat(np.arange(120), 2)
    annotations = evidence.annotations
    first = annotations.select(annotations.item % 2 == 0)
    both = np.concatenate((first.item, first.item + 1))
    alike = replace(first, item=both, annotator=np.tile(first.annotator, 2), label=np.tile(first.label, 2))
    given = Evidence(alike, features=rng.normal(size=(120, 400))[twins])
    groups = {item: f"pair {twin}" for item, twin in zip(alike.items, twins, strict=True)}
    assert Learned().fit(given).temperatures, "without groups it tells its twin's label"
    apart = Learned(groups=groups).fit(given)
    assert apart.temperatures == {}
    assert "pair" not in str(apart.fit.settings)


def test_settings_are_checked() -> None:
    with pytest.raises(BadSettings, match="folds"):
        Learned(folds=1)
    with pytest.raises(BadSettings, match="unknown"):
        Learned(model="nothing").fit(thin(0, 1.0)[0])
    with pytest.raises(BadSettings, match=r"learn\.model is a LogisticRegression; expected its name: logistic"):
        Learned(model=LogisticRegression()).fit(thin(0, 1.0)[0])  # type: ignore[arg-type]
