"""What pairs of items and annotators are worth: against Bayes' rule answer by answer, and bounds that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import xlogy

from hitl.active.acquisition import expected_gain
from hitl.active.acquisition.expected_gain import ACCURACY, INFORMATION, Gains, Measure, Question
from hitl.active.acquisition.scores import times_log
from hitl.annotations import Floats

MEASURES = pytest.mark.parametrize("measure", [INFORMATION, ACCURACY], ids=["information", "accuracy"])


def beliefs(rng: np.random.Generator, *shape: int) -> Floats:
    """Distributions from even to certain, some with zeros."""
    raw = rng.gamma(10.0 ** rng.uniform(-2, 1, (*shape[:-1], 1)), size=shape) + 1e-12
    raw = np.where(rng.random(shape) < 0.2, 0.0, raw)
    raw[..., 0] += 1e-9
    return raw / raw.sum(axis=-1, keepdims=True)


def crowd(rng: np.random.Generator, people: int, classes: int, options: int) -> Floats:
    """Confusion matrices from noise to nearly perfect."""
    skill = rng.random((people, 1, 1))
    return (1 - skill) * beliefs(rng, people, classes, options) + skill * np.eye(classes, options)


def by_bayes(measure: Measure, q_j: Floats, pi_jl: Floats) -> float:
    """Expected fall of the entropy, or rise of the largest probability, over the answers."""
    before = -xlogy(q_j, q_j).sum() if measure is INFORMATION else -q_j.max()
    after = 0.0
    for answer in range(pi_jl.shape[1]):
        joint = q_j * pi_jl[:, answer]
        if joint.sum() > 0:
            posterior = joint / joint.sum()
            left = -xlogy(posterior, posterior).sum() if measure is INFORMATION else -posterior.max()
            after += joint.sum() * left
    return float(before - after)


@MEASURES
@given(st.integers(0, 100_000), st.integers(2, 6), st.integers(0, 2), st.integers(1, 5))
def test_gains_are_those_of_bayes_rule(measure: Measure, seed: int, classes: int, extra: int, people: int) -> None:
    rng = np.random.default_rng(seed)
    q, pi = beliefs(rng, 4, classes), crowd(rng, people, classes, classes + extra)
    expected = [[by_bayes(measure, row, one) for one in pi] for row in q]
    gain = measure.gain(q, pi)
    assert np.allclose(gain, expected, atol=1e-12)
    assert (gain >= 0).all()


@MEASURES
@given(st.integers(0, 100_000), st.integers(2, 6), st.integers(0, 2), st.integers(1, 5))
def test_no_gain_exceeds_its_bound(measure: Measure, seed: int, classes: int, extra: int, people: int) -> None:
    rng = np.random.default_rng(seed)
    q, pi = beliefs(rng, 50, classes), crowd(rng, people, classes, classes + extra)
    assert (measure.gain(q, pi).max(axis=1) <= measure.bound(q, pi) + 1e-12).all()


@MEASURES
@given(st.integers(0, 100_000), st.floats(0, 1))
def test_the_bound_is_reached_by_who_knows_or_says_unsure(measure: Measure, seed: int, unsure: float) -> None:
    """With chance u "unsure", else right: u tells nothing of the truth, and the bound holds with equality."""
    q = beliefs(np.random.default_rng(seed), 20, 3)
    pi = np.hstack([(1 - unsure) * np.eye(3), np.full((3, 1), unsure)])[None]
    assert np.allclose(measure.gain(q, pi)[:, 0], measure.bound(q, pi), atol=1e-12)


def test_of_two_classes_the_bound_of_accuracy_is_reached_on_the_grid() -> None:
    rng = np.random.default_rng(0)
    odds = 2.0 ** (np.arange(0, 40) / expected_gain.STEPS) * (1 + 1e-9)  # just above: read at this point
    q = np.column_stack([odds, np.ones(40)]) / (odds + 1)[:, None]
    pi = crowd(rng, 6, 2, 2)
    pi[:, 0], pi[:, 1] = [0.9, 0.1], [0.3, 0.7]
    gain, bound = ACCURACY.gain(q, pi).max(axis=1), ACCURACY.bound(q, pi)
    assert np.allclose(gain, bound, atol=1e-8)
    assert (gain[odds > 7] < 1e-15).all()  # no answer speaks for the second class by more than 7 to 1
    assert (bound[odds > 7.001 * 2 ** (1 / expected_gain.STEPS)] == 0).all()
    assert (gain[odds < 6.9] > 0).all()


def test_with_many_classes_the_bound_does_without_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    q, pi = beliefs(rng, 200, 5), crowd(rng, 4, 5, 5)
    fine = ACCURACY.bound(q, pi)
    monkeypatch.setattr(expected_gain, "TABLED", 0)
    rough = ACCURACY.bound(q, pi)
    assert (rough >= fine).all()
    assert (rough > fine + 1e-6).any()


def test_the_logarithm_is_exact_to_the_last_bits() -> None:
    rng = np.random.default_rng(2)
    p = np.concatenate([rng.random(100_000), 10.0 ** rng.uniform(-300, 0, 100_000), 1 + rng.normal(0, 1e-6, 1000)])
    expected, found = p * np.log(p), p.copy()
    times_log(found)
    assert np.allclose(found, expected, rtol=1e-14, atol=1e-16)


@MEASURES
def test_questions_that_are_open_add_up(measure: Measure) -> None:
    rng = np.random.default_rng(4)
    first = Question(beliefs(rng, 9, 3), crowd(rng, 4, 3, 3))
    second = Question(beliefs(rng, 9, 2), crowd(rng, 4, 2, 3), np.arange(9) % 2 == 0)
    rows = np.array([8, 1, 3, 2])
    gains = Gains(measure, [first, second])
    expected = measure.gain(first.q_nj[rows], first.confusion_kjl)
    expected[[0, 3]] += measure.gain(second.q_nj[rows[[0, 3]]], second.confusion_kjl)
    assert np.allclose(gains.values(rows), expected, atol=1e-15)
    assert (gains.values(rows).max(axis=1) <= gains.bound(rows) + 1e-12).all()
    assert gains.bound(rows)[1] == measure.bound(first.q_nj[rows[1:2]], first.confusion_kjl)[0]


def test_items_are_interchangeable_if_their_beliefs_and_open_questions_are_equal() -> None:
    rng = np.random.default_rng(5)
    q, pi = beliefs(rng, 4, 3)[[0, 1, 0, 2, 1, 0]], crowd(rng, 2, 3, 3)
    opened = np.array([True, True, True, True, True, False])
    one, two = Gains(INFORMATION, [Question(q, pi)]), Gains(INFORMATION, [Question(q, pi, opened)])
    assert one.interchangeable(np.array([0, 2, 5]))
    assert not one.interchangeable(np.array([0, 1]))
    assert two.interchangeable(np.array([1, 4]))
    assert not two.interchangeable(np.array([0, 2, 5]))
