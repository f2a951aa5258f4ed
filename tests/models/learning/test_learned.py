"""A combiner beside a classifier that learns from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from hitl import score
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner, Learned
from hitl.models.learning.learned import NAME, gain, is_informative
from hitl.testing.crowds import crowd

Floats = np.typing.NDArray[np.float64]


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
    better = [accuracy(*thin(s, 2.0), Learned()) - accuracy(*thin(s, 2.0), DefaultCombiner()) for s in range(2)]
    assert min(better) > 0.1


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


# -- when a classifier says more than the shares of the classes ------------------------------------------------


def classes(rng: np.random.Generator, shares: tuple[float, ...], n_items: int) -> Floats:
    """(M, J) beliefs that are certain."""
    return np.eye(len(shares))[rng.choice(len(shares), n_items, p=shares)]


def test_the_gain_is_the_evidence_of_the_labels_by_enumeration() -> None:
    """Two classes, one label each of an annotator who is right in 3 of 4 cases: p(labels) by the best r, and by s."""
    rng = np.random.default_rng(0)
    truth = np.arange(80) % 2
    said = np.where(rng.random(80) < 0.75, truth, 1 - truth)
    q = np.where(np.eye(2)[said] > 0, 0.75, 0.25)  # beliefs at even shares
    p = softmax(3 * np.eye(2)[truth] + rng.normal(size=(80, 2)), axis=1)
    s = (q.sum(axis=0) + 1) / 82
    q = q * s / (q * s).sum(axis=1, keepdims=True)  # and at these
    s = (q.sum(axis=0) + 1) / 82

    def evidence(b: float) -> float:
        r = s * (p / s) ** b
        r /= r.sum(axis=1, keepdims=True)
        right = r[np.arange(80), said]
        return float(np.log(0.75 * right + 0.25 * (1 - right)).sum())

    best = max(evidence(b) for b in np.linspace(0, 5, 5001))
    assert best - evidence(0) > 3
    assert gain(p, q) == pytest.approx(best - evidence(0), rel=0.03)  # the shares are estimated twice


def test_a_classifier_that_knows_nothing_seldom_informs() -> None:
    """Half a chi-square of one degree of freedom is above 4 in 2.3 % of cases."""
    rng, shares = np.random.default_rng(1), (0.6, 0.3, 0.1)
    found = [
        is_informative(softmax(np.log(shares) + 0.3 * rng.normal(size=(200, 3)), axis=1), classes(rng, shares, 200))
        for _ in range(600)
    ]
    assert np.mean(found) == pytest.approx(0.0228, abs=3 * np.sqrt(0.0228 / 600))


def test_one_that_knows_something_informs_however_sure_it_is() -> None:
    rng = np.random.default_rng(2)
    q = classes(rng, (0.5, 0.5), 200)
    clue = 0.7 * q + rng.normal(size=q.shape)
    for sharpness in (0.05, 1.0, 20.0):  # 20: wrong with chances of 1e-9, which no likelihood forgives as it is
        assert is_informative(softmax(sharpness * clue, axis=1), q)
    assert not is_informative(softmax(-clue, axis=1), q)
