"""Isotonic calibration: against a plain pool of adjacent violators."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.models.calibration import IsotonicCalibration
from tests.miscalibrated import bent, honest


def rising(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The rising values nearest to y at the sorted x: neighbours that fall are pooled, again and again."""
    blocks = [[value, weight, [i]] for i, (value, weight) in enumerate(zip(y, w, strict=True))]
    i = 0
    while i + 1 < len(blocks):
        a, b = blocks[i], blocks[i + 1]
        if a[0] > b[0] or x[a[2][-1]] == x[b[2][0]]:
            weight = a[1] + b[1]
            blocks[i : i + 2] = [[(a[0] * a[1] + b[0] * b[1]) / weight, weight, a[2] + b[2]]]
            i = max(i - 1, 0)
        else:
            i += 1
    fitted = np.empty(len(y))
    for value, _, members in blocks:
        fitted[members] = value
    return fitted


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("doubt", [0.5, 10.0])
def test_every_class_is_pooled_by_itself_and_interpolated(seed: int, doubt: float) -> None:
    rng = np.random.default_rng(seed)
    p, truth = honest(rng, 50, 3)
    p = bent(p, 2.0)
    weight = rng.uniform(0.5, 2, size=50)
    q = (0.9 * np.eye(3)[truth] + 0.1 * rng.dirichlet(np.ones(3), size=50)) * weight[:, None]
    new, _ = honest(rng, 20, 3)
    f = np.empty((20, 3))
    for j in range(3):
        x = np.r_[p[:, j], p[:, j].min(), p[:, j].max()]
        y, w = np.r_[q[:, j] / weight, 1 / 3, 1 / 3], np.r_[weight, 1, 1]
        order = np.argsort(x, kind="stable")
        f[:, j] = np.interp(new[:, j], x[order], rising(x[order], y[order], w[order]))
    n = weight.sum()
    expected = (n * f + doubt * new) / (n + doubt)
    fitted = IsotonicCalibration(doubt).fit(p, q).apply(new)
    np.testing.assert_allclose(fitted, expected / expected.sum(axis=1, keepdims=True), atol=1e-6)


def test_nothing_is_ruled_out_and_order_within_a_class_stays() -> None:
    p, truth = honest(np.random.default_rng(5), 200, 2)
    c = IsotonicCalibration().fit(p, truth).apply(p)
    assert c.min() > 0
    order = p[:, 0].argsort()
    assert (np.diff(c[order, 0]) > 0).all()
