"""When a classifier says more than the shares of the classes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from hitl.models.learning.informative import gain, informs

Floats = np.typing.NDArray[np.float64]


def classes(rng: np.random.Generator, shares: tuple[float, ...], n_items: int) -> Floats:
    """(M, J) beliefs that are certain."""
    return np.eye(len(shares))[rng.choice(len(shares), n_items, p=shares)]


def test_the_gain_is_the_best_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        q = softmax(2 * rng.normal(size=(60, 3)), axis=1)
        p = softmax(np.log(q) + rng.normal(size=q.shape), axis=1)
        log_s = np.log((q.sum(axis=0) + 1) / (len(q) + 3))
        x = np.log(p) - log_s
        found = [
            np.sum(q * (log_s + b * x - logsumexp(log_s + b * x, axis=1, keepdims=True))) - np.sum(q * log_s)
            for b in np.linspace(0, 3, 3001)
        ]
        # log s are posterior means, not quite the shares: at b = 0 the shares are normalised all the same.
        assert gain(p, q) == pytest.approx(max(found), abs=1e-4)


def test_a_classifier_that_knows_nothing_seldom_informs() -> None:
    """Half a chi-square of one degree of freedom is above 4 in 2.3 % of cases."""
    rng, shares = np.random.default_rng(1), (0.6, 0.3, 0.1)
    found = [
        informs(softmax(np.log(shares) + 0.3 * rng.normal(size=(200, 3)), axis=1), classes(rng, shares, 200))
        for _ in range(1500)
    ]
    assert np.mean(found) == pytest.approx(0.0228, abs=3 * np.sqrt(0.0228 / 1500))


def test_one_that_knows_something_informs_however_sure_it_is() -> None:
    rng = np.random.default_rng(2)
    q = classes(rng, (0.5, 0.5), 200)
    clue = 0.7 * q + rng.normal(size=q.shape)
    for sharpness in (0.05, 1.0, 20.0):  # 20: wrong with chances of 1e-9, which no likelihood forgives as it is
        assert informs(softmax(sharpness * clue, axis=1), q)
    assert not informs(softmax(-clue, axis=1), q)


def test_one_that_is_always_right_informs() -> None:
    q = np.eye(2)[np.arange(40) % 2]
    assert informs(np.clip(q, 0, 1), q)
    assert informs(np.clip(q, 1e-9, 1 - 1e-9), q)


def test_the_shares_themselves_say_nothing_more() -> None:
    q = np.eye(2)[np.arange(40) % 4 // 3]
    assert gain(np.tile((q.sum(axis=0) + 1) / 42, (40, 1)), q) == 0
