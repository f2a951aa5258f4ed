"""When a classifier says more than the shares of the classes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from hitl.models.learning.learned import gain, is_informative

Floats = np.typing.NDArray[np.float64]


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
        for _ in range(1500)
    ]
    assert np.mean(found) == pytest.approx(0.0228, abs=3 * np.sqrt(0.0228 / 1500))


def test_one_that_knows_something_informs_however_sure_it_is() -> None:
    rng = np.random.default_rng(2)
    q = classes(rng, (0.5, 0.5), 200)
    clue = 0.7 * q + rng.normal(size=q.shape)
    for sharpness in (0.05, 1.0, 20.0):  # 20: wrong with chances of 1e-9, which no likelihood forgives as it is
        assert is_informative(softmax(sharpness * clue, axis=1), q)
    assert not is_informative(softmax(-clue, axis=1), q)


def test_one_that_is_always_right_informs() -> None:
    q = np.eye(2)[np.arange(40) % 2]
    assert is_informative(np.clip(q, 0, 1), q)
    assert is_informative(np.clip(q, 1e-9, 1 - 1e-9), q)


def test_the_shares_themselves_say_nothing_more() -> None:
    q = np.eye(2)[np.arange(40) % 4 // 3]
    assert gain(np.tile((q.sum(axis=0) + 1) / 42, (40, 1)), q) == 0
