"""Ratings: what the default makes of classes in order, at the doors users go through."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hitl
from hitl import Annotations, Consensus, Evidence
from hitl.consensus import TIE
from hitl.models import DefaultCombiner, MajorityVote, MeanScore, Ordinal
from hitl.models.dependence.replicas import BEFOREHAND
from tests.bench.honesty.scales import SCALES, scale


@pytest.mark.parametrize("kind", SCALES)
def test_ratings_are_closer_to_the_truth_than_by_methods_that_know_no_order(kind: str) -> None:
    evidence = scale(kind, seed=0, items=400)
    blind = Evidence(evidence.annotations)
    truth = evidence.truth
    assert truth is not None
    ours, default, scores = (method.fit(blind) for method in (Ordinal(), DefaultCombiner(), MeanScore()))

    def measures(found: Consensus) -> tuple[float, float]:
        own = found.probabilities[np.arange(400), truth]
        return float(np.abs(found.codes - truth).mean()), float(-np.log(own).mean())

    assert np.less(measures(ours), measures(default)).all()
    assert np.less(measures(ours), np.add(measures(scores), (0, 0.04))).all(), "bench_ordinal has the means over seeds"
    low_n, high_n = ours.interval.T
    assert ((low_n <= truth) & (truth <= high_n)).mean() > 0.85


def test_the_label_has_the_least_expected_error() -> None:
    found = Ordinal().fit(Evidence(scale("biased", seed=1, items=200).annotations))
    away_ij = np.abs(np.arange(5)[:, None] - np.arange(5))
    for q_j, code, (low, high) in zip(found.probabilities, found.codes, found.interval, strict=True):
        expected_j = away_ij @ q_j
        assert expected_j[code] <= expected_j.min() + 10 * TIE
        assert q_j[:low].sum() < 0.05 <= q_j[: low + 1].sum() + TIE
        assert q_j[: high + 1].sum() + TIE >= 0.95 > q_j[:high].sum()
    np.testing.assert_allclose(found.confidence, found.probabilities[np.arange(200), found.codes])


def test_votes_around_a_class_are_for_that_class() -> None:
    """Three, four and five stars used to be five; one, two and three used to be one."""
    rows = [(n, k, stars) for n, votes in enumerate([(3, 4, 5), (1, 2, 3)] * 20) for k, stars in enumerate(votes)]
    frame = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    frame["annotator"] = [(k + n) % 7 for n, k, _ in rows]
    frame["label"] = pd.Categorical(frame["label"], range(1, 6), ordered=True)
    assert hitl.combine(frame).labels[:2].tolist() == [4, 2]


def test_an_ordered_column_of_pandas_says_that_the_classes_are_in_order() -> None:
    grades = ["mild", "moderate", "severe"]
    labels = scale("five", seed=2, items=60).annotations.frame()
    labels["label"] = labels["label"].astype(int).clip(0, 2).map(dict(enumerate(grades)))
    plain = labels.assign(label=pd.Categorical(labels["label"], grades))
    ordered = labels.assign(label=pd.Categorical(labels["label"], grades, ordered=True))
    found = hitl.combine(ordered)
    assert list(found.frame().columns[:5]) == ["item", "label", "confidence", "low", "high"]
    by_name = hitl.combine(plain, method="ordinal", classes=grades)
    np.testing.assert_allclose(found.probabilities, by_name.probabilities)
    assert "low" not in hitl.combine(plain).frame()
    assert hitl.combine(ordered, method=MajorityVote()).ordered, "of any method the label is the median"


def test_a_saved_consensus_stays_in_order(tmp_path: Path) -> None:
    evidence = scale("five", seed=3, items=50)
    found = Ordinal().fit(evidence)
    found.save(tmp_path / "stars.npz")
    again = Consensus.load(tmp_path / "stars.npz")
    assert again.ordered
    np.testing.assert_array_equal(again.codes, found.codes)
    new = Ordinal().apply(again, Evidence(evidence.annotations))
    np.testing.assert_array_equal(new.interval, Ordinal().apply(found, Evidence(evidence.annotations)).interval)


def test_two_classes_in_order_are_two_classes() -> None:
    matrix = list(itertools.product([0, 1], repeat=3))
    evidence = Evidence(Annotations.from_matrix(matrix))
    np.testing.assert_allclose(
        Ordinal().fit(evidence).probabilities, DefaultCombiner().fit(evidence).probabilities, atol=1e-12
    )


def test_errors_towards_neighbors_are_no_sign_of_shared_errors() -> None:
    """They are uneven in any crowd that rates. Nothing else raises the probability of shared errors here."""
    annotations = scale("five", seed=7).annotations
    chance, _, _ = Ordinal().fit(Evidence(annotations)).parameters["dependence"]
    as_if_unordered, _, _ = DefaultCombiner().fit(Evidence(annotations)).parameters["dependence"]
    assert chance <= BEFOREHAND < as_if_unordered
