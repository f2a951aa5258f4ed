"""Isotonic calibration by plain pooling; I-Max by plain loops and the best partition, by dynamic programming."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from hitl.models.calibration import IMax, IsotonicCalibration
from hitl.models.calibration.rising import best_edges, informative_edges, log_odds
from tests.miscalibrated import bent, honest


def information(s: np.ndarray, w: np.ndarray, edges: np.ndarray) -> float:
    """sum_m sum_{s in m} sigma(s) ln sigma(phi_m) + sigma(-s) ln sigma(-phi_m), at the best phi, bin by bin."""
    total = 0.0
    for m in range(len(edges) + 1):
        low = -np.inf if m == 0 else edges[m - 1]
        high = np.inf if m == len(edges) else edges[m]
        inside = (s >= low) & (s < high)
        yes, no = (w * expit(s))[inside].sum(), (w * expit(-s))[inside].sum()
        total += yes * np.log(yes / (yes + no)) + no * np.log(no / (yes + no))
    return total


def best_partition(s: np.ndarray, w: np.ndarray, bins: int) -> float:
    """The most information that any `bins` bins of the sorted log-odds keep: dynamic programming over all cuts."""
    order = np.argsort(s)
    yes = np.append(0, np.cumsum((w * expit(s))[order]))
    no = np.append(0, np.cumsum((w * expit(-s))[order]))

    def kept(i: np.ndarray, j: int) -> np.ndarray:
        a, b = yes[j] - yes[i], no[j] - no[i]
        return a * np.log(a / (a + b)) + b * np.log(b / (a + b))

    n = len(s)
    best = np.r_[-np.inf, [kept(np.array([0]), j)[0] for j in range(1, n + 1)]]
    for _ in range(bins - 1):
        best = np.r_[-np.inf, -np.inf, [np.max(best[1:j] + kept(np.arange(1, j), j)) for j in range(2, n + 1)]]
    return float(best[n])


def pooled(seed: int, n: int, slope: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    s = log_odds(bent(honest(rng, n, 4)[0], slope)).ravel()
    return s, rng.uniform(0.5, 2, size=s.size)


@pytest.mark.parametrize("bins", [1, 3, 8])
@pytest.mark.parametrize("slope", [0.5, 4.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_bins_keep_nearly_all_that_any_bins_can(bins: int, slope: float, seed: int) -> None:
    s, w = pooled(seed, 60, slope)
    none, everything = information(s, w, np.empty(0)), best_partition(s, w, len(s)) if bins == 8 else None
    edges = informative_edges(s, w, bins)
    found, best = information(s, w, edges), best_partition(s, w, bins)
    assert found <= best + 1e-9
    assert found - none >= 0.97 * (best - none) - 1e-9
    if everything is not None:
        assert found - none >= 0.9 * (everything - none)


@pytest.mark.parametrize("seed", range(3))
def test_no_edge_lies_better_a_little_further(seed: int) -> None:
    """The iteration ends where neither step gains: edges between items that each bin describes better."""
    s, w = pooled(seed, 500, 3.0)
    edges = informative_edges(s, w, 6)
    phi = []
    for low, high in zip(np.r_[-np.inf, edges], np.r_[edges, np.inf], strict=True):
        inside = (s >= low) & (s < high)
        phi.append(np.log((w * expit(s))[inside].sum() / (w * expit(-s))[inside].sum()))
    told = np.array([expit(s) * np.log(expit(f)) + expit(-s) * np.log(expit(-f)) for f in phi])
    np.testing.assert_array_equal(told.argmax(axis=0), np.searchsorted(edges, s))


def test_an_edge_lies_where_its_bins_describe_an_item_equally_well() -> None:
    phi = np.array([-20.0, -3.0, 0.1, 4.0, 25.0])
    edges = best_edges(phi)
    for g, a, b in zip(edges, phi, phi[1:], strict=False):
        left = expit(g) * np.log(expit(a)) + expit(-g) * np.log(expit(-a))
        right = expit(g) * np.log(expit(b)) + expit(-g) * np.log(expit(-b))
        assert left == pytest.approx(right, rel=1e-9)
        assert a < g < b


def test_the_value_of_a_bin_is_how_often_it_was_true() -> None:
    p, truth = honest(np.random.default_rng(1), 400, 3)
    fitted = IMax(bins=4, doubt=2.0).fit(p, truth)
    edges, values = fitted.edges[0], fitted.values[0]
    s, y = log_odds(p).ravel(), np.eye(3)[truth].ravel()
    for m, value in enumerate(values):
        inside = np.searchsorted(edges, s) == m
        expected = (y[inside].sum() + 2 * expit(s[inside]).mean()) / (inside.sum() + 2)
        assert value == pytest.approx(expected)
    raw = values[np.searchsorted(edges, log_odds(p))]
    np.testing.assert_allclose(fitted.apply(p), raw / raw.sum(axis=1, keepdims=True), atol=1e-7)
    assert all(e is edges for e in fitted.edges)


def test_values_never_fall_and_stay_off_0_and_1() -> None:
    rng = np.random.default_rng(3)
    for shared in (True, False):
        p = honest(rng, 100, 4)[0]
        fitted = IMax(shared=shared).fit(bent(p, 5.0), rng.integers(4, size=100))  # truths that know nothing of p
        for values in fitted.values:
            assert (np.diff(values) >= 0).all()
            assert values.min() > 0
            assert values.max() < 1


# -- isotonic ------------------------------------------------------------------------------------------------


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
