"""Scores against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hitl import score

P = np.array([[0.8, 0.2, 0.0], [0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]])
TRUTH = np.array([0, 1, 0, 2])


def test_accuracy_shares_the_credit_among_equals() -> None:
    assert score.accuracy(P, TRUTH) == pytest.approx((1 + 1 / 2 + 0 + 1 / 3) / 4)


def test_log_loss_is_the_mean_negative_log_of_the_truth() -> None:
    expected = -(np.log(0.8) + np.log(0.5) + np.log(0.1) + np.log(1 / 3)) / 4
    assert score.log_loss(P, TRUTH) == pytest.approx(expected)


def test_log_loss_is_floored_where_the_truth_was_ruled_out() -> None:
    assert score.log_loss(P[:1], np.array([2]), floor=1e-6) == pytest.approx(-np.log(1e-6))


def test_brier_is_the_squared_distance_to_the_truth() -> None:
    expected = (0.04 + 0.04) + (0.25 + 0.25) + (0.81 + 0.04 + 0.49) + (1 / 9 + 1 / 9 + 4 / 9)
    assert score.brier(P, TRUTH) == pytest.approx(expected / 4)


def test_calibration_error_of_two_bins_by_hand() -> None:
    p = np.array([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [0.1, 0.9]])
    truth = np.array([0, 1, 1, 1])  # right, wrong | right, right
    expected = 0.5 * abs(0.65 - 0.5) + 0.5 * abs(0.85 - 1.0)
    assert score.calibration_error(p, truth, bins=2) == pytest.approx(expected)
    # Class 0: predicted .1 .2 | .6 .7, happened 0 0 | 1 0; class 1 mirrors it.
    assert score.classwise_calibration_error(p, truth, bins=2) == pytest.approx(0.5 * 0.15 + 0.5 * 0.15)


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


def test_a_sure_and_right_prediction_is_calibrated() -> None:
    p = np.eye(3)[TRUTH]
    assert score.calibration_error(p, TRUTH) == 0
    assert score.classwise_calibration_error(p, TRUTH) == 0
    assert (score.accuracy(p, TRUTH), score.brier(p, TRUTH), score.log_loss(p, TRUTH)) == (1, 0, 0)


def test_tied_classes_share_the_credit_in_calibration_too() -> None:
    p = np.full((4, 2), 0.5)
    assert score.calibration_error(p, np.zeros(4, int), bins=1) == pytest.approx(0)


def test_area_under_the_curve_against_scikit_learn_and_all_pairs() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    p, truth = rng.dirichlet(np.ones(3), size=80).round(1), rng.integers(3, size=80)
    ours = score.area_under_curve(p, truth)
    assert ours == pytest.approx(np.mean([roc_auc_score(truth == j, p[:, j]) for j in range(3)]))
    pairs = [np.mean([(a > b) + 0.5 * (a == b) for a in p[truth == j, j] for b in p[truth != j, j]]) for j in range(3)]
    assert ours == pytest.approx(np.mean(pairs))


def test_a_class_without_items_or_without_others_has_no_curve() -> None:
    assert score.area_under_curve(np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]), np.array([0, 1])) == 1.0
    assert np.isnan(score.area_under_curve(P, np.zeros(4, int)))
