"""Choose which pairs to compare next, and by whom, so that the order of all items becomes known.

Of each pair (k, l) the order is unsure: with z = E(s_k - s_l) / sd, item k is better with the chance Φ(z). An answer
about (i, j) with Fisher information w about s_i - s_j, whose variance is v, takes c² w / (1 + w v) off the variance
of s_k - s_l, with c their covariance. To first order that takes

    φ(z)² / (2 σ² Φ(z) Φ(-z))        per unit of variance, σ² = var(s_k - s_l)

off the entropy of the order of (k, l), in nats: Φ is a martingale of variance φ² / σ², times half the curvature of the
entropy. An answer's gain is the sum over all pairs, as one product of matrices: with the Laplacian L of these weights
and the covariance C, that of (i, j) is w / (1 + w v) times x' C L C x, x = e_i - e_j.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from hitl.annotations import Floats
from hitl.models.preferences.davidson import Ranking, guesses, log_outcomes


@dataclass(frozen=True, slots=True)
class Pair:
    """A comparison to ask for: codes of two items and of an annotator, and its expected gain in nats."""

    left: int
    right: int
    annotator: int
    gain: float


def next_pairs(ranking: Ranking, count: int, capacity: int, asked: Collection[tuple[int, int, int]] = ()) -> list[Pair]:
    """Return at most `count` pairs, first those of the most reliable annotators, each at most `capacity` times.

    `asked`: annotator and two items of comparisons to leave out, because they were asked before. After each choice the
    covariance becomes what it would be with the answer, so that the next one adds something else.
    """
    covariance, chosen = ranking.covariance.copy(), list[Pair]()
    d = np.subtract.outer(ranking.strengths, ranking.strengths)
    for k in np.argsort(-ranking.reliability, kind="stable"):
        w = information(ranking, d, float(ranking.reliability[k]))
        able = ~np.eye(len(d), dtype=bool)
        for _, i, j in (one for one in asked if one[0] == k):
            able[i, j] = able[j, i] = False
        for _ in range(min(capacity, count - len(chosen), int(able.sum()) // 2)):
            gain = np.where(able, order_gain(d, covariance, w), -1.0)
            i, j = map(int, np.unravel_index(np.argmax(gain), gain.shape))
            able[i, j] = able[j, i] = False
            chosen.append(Pair(i, j, int(k), float(gain[i, j])))
            c = covariance[:, i] - covariance[:, j]
            covariance -= np.outer(c, c) * w[i, j] / (1 + w[i, j] * (c[i] - c[j]))
        if len(chosen) == count:
            break
    return chosen


def information(ranking: Ranking, d: Floats, reliability: float) -> Floats:
    """Return the Fisher information that an answer of this reliability has about a difference of strengths d."""
    p = np.exp(log_outcomes(d, ranking.tie))
    x = np.array([0.5, -0.5, 0.0])[(...,) + (None,) * np.ndim(d)]
    slope = reliability * p * (x - (p[0] - p[1]) / 2)
    guess = guesses(ranking.tie_share)[(...,) + (None,) * np.ndim(d)]
    return np.asarray((slope**2 / np.maximum(reliability * p + (1 - reliability) * guess, 1e-300)).sum(axis=0))


def order_gain(d: Floats, covariance: Floats, w: Floats) -> Floats:
    """Return (N, N) expected fall of the entropy of all orders, in nats, from an answer about each pair."""
    variance = differences(covariance)
    safe = np.maximum(variance, 1e-12)
    z = np.abs(d) / np.sqrt(safe)
    log_weight = -(z**2) - np.log(2 * np.pi) - np.log(2 * safe) - log_ndtr(z) - log_ndtr(-z)
    weight = np.where(variance > 1e-12, np.exp(log_weight), 0.0)
    laplacian = np.diag(weight.sum(axis=1)) - weight
    return w / (1 + w * variance) * differences(covariance @ laplacian @ covariance)


def differences(quadratic: Floats) -> Floats:
    """Return (N, N) x' Q x for the difference x = e_i - e_j of each two items."""
    diagonal = np.diag(quadratic)
    return np.maximum(diagonal[:, None] + diagonal - quadratic - quadratic.T, 0.0)
