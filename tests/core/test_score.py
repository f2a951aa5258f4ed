"""Scores against figures worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hitl
from hitl import score
from hitl.errors import BadInput

P = np.array([[0.8, 0.2, 0.0], [0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]])
TRUTH = np.array([0, 1, 0, 2])


def test_accuracy_shares_the_credit_among_equals() -> None:
    assert score.accuracy(P, TRUTH) == pytest.approx((1 + 1 / 2 + 0 + 1 / 3) / 4)


def test_log_loss_is_the_mean_negative_log_of_the_truth() -> None:
    expected = -(np.log(0.8) + np.log(0.5) + np.log(0.1) + np.log(1 / 3)) / 4
    assert score.log_loss(P, TRUTH) == pytest.approx(expected)


def test_log_loss_is_floored_where_the_truth_was_ruled_out() -> None:
    assert score.log_loss(P[:1], np.array([2]), floor=1e-6) == pytest.approx(-np.log(1e-6))


def test_calibration_error_of_two_bins_by_hand() -> None:
    p = np.array([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [0.1, 0.9]])
    truth = np.array([0, 1, 1, 1])  # right, wrong | right, right
    expected = 0.5 * abs(0.65 - 0.5) + 0.5 * abs(0.85 - 1.0)
    assert score.calibration_error(p, truth, bins=2) == pytest.approx(expected)
    # Class 0: predicted .1 .2 | .6 .7, happened 0 0 | 1 0; class 1 mirrors it.
    assert score.classwise_calibration_error(p, truth, bins=2) == pytest.approx(0.5 * 0.15 + 0.5 * 0.15)


def test_without_items_there_is_no_error_and_no_bin() -> None:
    p, truth = np.empty((0, 2)), np.empty(0, int)
    assert np.isnan(score.calibration_error(p, truth))
    assert np.isnan(score.classwise_calibration_error(p, truth))
    assert np.isnan([score.accuracy(p, truth), score.log_loss(p, truth)]).all()
    assert np.isnan(score.bootstrap_interval(score.accuracy, p, truth)).all()
    assert len(score.reliability(p, truth).count) == 0


def test_bins_are_of_equal_mass_also_when_they_do_not_divide() -> None:
    confidence, right = np.linspace(0.5, 1, 7), np.array([1, 0, 1, 1, 0, 1, 1.0])
    p = np.stack([confidence, 1 - confidence], axis=1)
    truth = (1 - right).astype(int)
    parts = (slice(0, 3), slice(3, 5), slice(5, 7))
    expected = sum(abs(confidence[part].mean() - right[part].mean()) * len(right[part]) for part in parts) / 7
    assert score.calibration_error(p, truth, bins=3) == pytest.approx(expected)


def test_bins_are_by_confidence_not_by_the_order_of_the_items() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=60)
    truth = rng.integers(3, size=60)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == truth
    parts = np.argsort(confidence).reshape(5, 12)
    expected = np.mean([abs(confidence[part].mean() - right[part].mean()) for part in parts])
    assert score.calibration_error(p, truth, bins=5) == pytest.approx(expected)


def test_tied_classes_share_the_credit_in_calibration_too() -> None:
    p = np.full((4, 2), 0.5)
    assert score.calibration_error(p, np.zeros(4, int), bins=1) == pytest.approx(0)


# -- reliability diagrams and intervals ------------------------------------------------------------------------


def test_reliability_of_two_bins_by_hand() -> None:
    p = np.array([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]])
    truth = np.array([0, 1, 1, 1, 0])  # right, wrong, right | right, wrong
    diagram = score.reliability(p, truth, bins=2)
    np.testing.assert_allclose(diagram.confidence, [0.7, 0.925])
    np.testing.assert_allclose(diagram.accuracy, [2 / 3, 1 / 2])
    np.testing.assert_array_equal(diagram.count, [3, 2])


@pytest.mark.parametrize("bins", [1, 7, 15, 500])
def test_the_gaps_of_the_diagram_are_the_calibration_error(bins: int) -> None:
    rng = np.random.default_rng(2)
    p, truth = rng.dirichlet(np.ones(4), size=100).round(2), rng.integers(4, size=100)
    p /= p.sum(axis=1, keepdims=True)
    diagram = score.reliability(p, truth, bins)
    assert diagram.count.sum() == 100
    assert diagram.count.size == min(bins, 100)
    gap = (diagram.count * np.abs(diagram.accuracy - diagram.confidence)).sum() / 100
    assert gap == pytest.approx(score.calibration_error(p, truth, bins))
    assert diagram.accuracy @ diagram.count / 100 == pytest.approx(score.accuracy(p, truth))


def test_wilsons_interval_against_scipy_and_its_definition() -> None:
    from scipy.stats import binomtest

    for hits, n in ((0, 5), (3, 7), (50, 50), (400, 1000)):
        low, high = score.wilson_interval(np.array([hits / n]), np.array([n]), 0.9)
        theirs = binomtest(hits, n).proportion_ci(0.9, "wilson")
        assert (low[0], high[0]) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    low, high = score.wilson_interval(np.array([0.3]), np.array([40]))
    for end in (low[0], high[0]):  # where the share lies 1.96 standard errors away
        assert abs(0.3 - end) == pytest.approx(1.959964 * np.sqrt(end * (1 - end) / 40), rel=1e-5)


@pytest.mark.parametrize("measure", [score.accuracy, score.log_loss, score.calibration_error])
def test_the_bootstrap_against_scipys(measure: Callable[[np.ndarray, np.ndarray], float]) -> None:
    from scipy.stats import bootstrap

    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.ones(3), size=150)
    truth = (rng.random(150)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    ours = score.bootstrap_interval(measure, p, truth, draws=2000, level=0.9)
    theirs = bootstrap(
        (np.arange(150),),
        lambda rows: measure(p[rows], truth[rows]),
        n_resamples=2000,
        vectorized=False,
        method="percentile",
        confidence_level=0.9,
        rng=np.random.default_rng(5),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.1 * width)


def test_the_bootstrap_interval_of_the_accuracy_covers_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(6)
    covered = 0
    for seed in range(200):
        p = np.tile([0.7, 0.3], (80, 1))
        truth = (rng.random(80) > 0.7).astype(int)
        low, high = score.bootstrap_interval(score.accuracy, p, truth, draws=200, seed=seed, level=0.9)
        covered += low <= 0.7 <= high
    assert 0.82 <= covered / 200 <= 0.97


def test_the_bootstrap_is_seeded_and_leaves_out_what_is_not_a_number() -> None:
    rng = np.random.default_rng(7)
    p, truth = rng.dirichlet(np.ones(2), size=6), np.array([0, 0, 0, 0, 0, 1])

    def of_rare(p_nj: np.ndarray, truth_n: np.ndarray) -> float:  # some draws hold one class only
        return float(p_nj[truth_n == 1, 1].mean()) if truth_n.any() else float("nan")

    first = score.bootstrap_interval(of_rare, p, truth, draws=100, seed=1)
    assert np.isfinite(first).all()
    assert first == score.bootstrap_interval(of_rare, p, truth, draws=100, seed=1)
    assert score.bootstrap_interval(score.log_loss, p, truth, 50, 1) != score.bootstrap_interval(
        score.log_loss, p, truth, 50, 2
    )
    one = score.bootstrap_interval(score.log_loss, p[:1], truth[:1], draws=10)
    assert one == pytest.approx((score.log_loss(p[:1], truth[:1]),) * 2)


LABELS = {"item": [7, 7, 8, 9], "annotator": list("abab"), "label": ["cat", "cat", "dog", "dog"]}
NAMED = {7: "cat", 8: "dog", 9: "cat"}


@pytest.mark.parametrize(
    "truth",
    [
        NAMED,
        NAMED | {10: "dog"},  # an item without labels
        pd.Series(NAMED),
        pd.DataFrame({"item": [*NAMED], "label": [*NAMED.values()]}),
        {str(item): label for item, label in NAMED.items()},
        np.array([0, 1, 0]),
    ],
    ids=["dict", "other-items", "series", "frame", "text", "codes"],
)
@pytest.mark.parametrize(
    "measure", [score.accuracy, score.log_loss, score.calibration_error, score.classwise_calibration_error]
)
def test_a_consensus_is_scored_by_names(truth: Any, measure: Callable[[Any, Any], float]) -> None:
    found = hitl.combine(LABELS, method="majority")
    assert measure(found, truth) == measure(found.probabilities, np.array([0, 1, 0]))
    assert score.accuracy(found, truth) == pytest.approx(2 / 3)


def test_an_unknown_truth_does_not_count() -> None:
    part = np.array([0, -1, -1, 2])
    assert score.accuracy(P, part) == score.accuracy(P[[0, 3]], TRUTH[[0, 3]])
    assert score.log_loss(P, part) == score.log_loss(P[[0, 3]], TRUTH[[0, 3]])
    assert score.reliability(P, part).count.sum() == 2
    assert score.accuracy(hitl.combine(LABELS), {7: "cat", 8: None}) == 1


@pytest.mark.parametrize(
    ("truth", "words"),
    [
        ({7: "bird"}, "'bird' is none of the classes cat, dog"),
        ({1: "cat"}, "none of its 1 items is in the consensus"),
        ({"item": [7, 7], "label": ["cat", "dog"]}, "item '7' appears twice"),
        ({"item": [7], "genre": ["cat"], "x": [1]}, "no column 'label'"),
        (np.array([0, 1]), "the code of a class for each of 3 items, from 0 to 1"),
        (np.array([0, 1, 2]), "from 0 to 1, or -1 where unknown"),
        (["cat", "cat", "dog"], "truth: got list"),
    ],
)
def test_truth_that_cannot_be_matched_gets_a_sentence(truth: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        score.accuracy(hitl.combine(LABELS), truth)
    with pytest.raises(BadInput, match="truth: expected the code of a class"):
        score.accuracy(P, pd.Series(["cat"] * len(P)))
