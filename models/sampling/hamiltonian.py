"""Hamiltonian Metropolis steps for the parameters of a Markov network, in coordinates in which they are alike.

V and W of annotators who copy hang together closely: moved one at a time they hardly move at all. With the curvature

    A = | B_1        C_1 |
        |      ...   ... |  = R R^T        B_j: V of class j,  C_j: V with W,  D: W
        | C_1^T ...   D  |

the coordinates R^T (V, W) make the density nearly round. A has no entries between classes, so its root is

    R_j = chol(B_j)    X_j = R_j^-1 C_j    R_w = chol(D - sum_j X_j^T X_j)

    a step x of the new coordinates:   W = R_w^-T x_w,        V_j = R_j^-T (x_j - X_j W)
    the slope in them:                 x_j' = R_j^-1 V_j',    x_w' = R_w^-1 (W' - sum_j X_j^T x_j')

One draw (Duane et al. 1987): a momentum r ~ N(0, I), some leapfrog moves of (V, W) and r, and the Metropolis question
whether to go there, with probability min(1, exp(change of the log density - change of |r|^2 / 2)). The leapfrog is
reversible and keeps volume, so the posterior is left as it is whatever the metric and the size of the moves; these may
not depend on where the chain is, and are therefore learned during burn-in only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hitl.models.numerics.compiled import compiled
from hitl.models.sampling.markov_network import log_density

LEAPS = 5
"""Leapfrog moves of a draw: with moves of the usual size about a quarter turn of a round density, the least that
forgets where it began."""

ACCEPTED = 0.8
"""Share of draws that burn-in aims to accept, by the size of the moves."""


class Metric(NamedTuple):
    """R_j^-1 (J, d, d), X_j (J, d, P) and R_w^-1 (P, P); or the curvature B_j, C_j, D."""

    block_jdd: Any
    cross_jdp: Any
    square_pp: Any


@compiled
def draw(rng: Any, metric: Any, size: float, target: Any, theta_x: Any, table_jt: Any) -> float:
    """One draw of (V, W) given complete answers, in place; the probability with which the proposal was accepted."""
    there_x, momentum_x, there_jt = theta_x.copy(), np.empty_like(theta_x), np.empty_like(table_jt)
    for x in range(momentum_x.shape[0]):
        momentum_x[x] = rng.standard_normal()
    size *= 0.8 + 0.4 * rng.random()  # moves of one size could go round in circles
    gain = leapfrog(metric, size, LEAPS, target, there_x, there_jt, momentum_x)
    accepted = np.exp(min(gain, 0.0)) if np.isfinite(gain) else 0.0
    if rng.random() < accepted:
        for x in range(theta_x.shape[0]):
            theta_x[x] = there_x[x]
        for j in range(table_jt.shape[0]):
            for t in range(table_jt.shape[1]):
                table_jt[j, t] = there_jt[j, t]
    return float(accepted)


@compiled
def leapfrog(metric: Any, size: float, leaps: int, target: Any, theta_x: Any, table_jt: Any, momentum_x: Any) -> float:
    """Move (V, W) and the momentum; the change of log density - |r|^2 / 2, which small moves leave at 0."""
    slope_x = np.empty_like(theta_x)
    gain = half_square(momentum_x) - log_density(target, theta_x, table_jt, slope_x)
    after = 0.0
    push(metric, 0.5 * size, slope_x, momentum_x)
    for leap in range(leaps):
        move(metric, size, momentum_x, theta_x)
        after = log_density(target, theta_x, table_jt, slope_x)
        push(metric, size if leap < leaps - 1 else 0.5 * size, slope_x, momentum_x)
    return float(gain + after - half_square(momentum_x))


@compiled
def half_square(momentum_x: Any) -> float:
    """|r|^2 / 2."""
    total = 0.0
    for x in range(momentum_x.shape[0]):
        total += momentum_x[x] * momentum_x[x]
    return 0.5 * total


@compiled
def move(metric: Any, size: float, step_x: Any, theta_x: Any) -> None:
    """Add to (V, W) `size` times a step of the new coordinates."""
    n_classes, width, n_pairs = metric.cross_jdp.shape
    w = n_classes * width
    moved_p, left = np.empty(n_pairs), np.empty(width)
    for p in range(n_pairs):
        value = 0.0
        for q in range(p, n_pairs):
            value += metric.square_pp[q, p] * step_x[w + q]
        moved_p[p] = value
        theta_x[w + p] += size * value
    for j in range(n_classes):
        for a in range(width):
            left[a] = step_x[j * width + a]
            for p in range(n_pairs):
                left[a] -= metric.cross_jdp[j, a, p] * moved_p[p]
        for a in range(width):
            value = 0.0
            for b in range(a, width):
                value += metric.block_jdd[j, b, a] * left[b]
            theta_x[j * width + a] += size * value


@compiled
def push(metric: Any, size: float, slope_x: Any, momentum_x: Any) -> None:
    """Add to the momentum `size` times the slope in the new coordinates; the slope of W is used up."""
    n_classes, width, n_pairs = metric.cross_jdp.shape
    w = n_classes * width
    for j in range(n_classes):
        for a in range(width):
            value = 0.0
            for b in range(a + 1):
                value += metric.block_jdd[j, a, b] * slope_x[j * width + b]
            momentum_x[j * width + a] += size * value
            for p in range(n_pairs):
                slope_x[w + p] -= metric.cross_jdp[j, a, p] * value
    for p in range(n_pairs):
        value = 0.0
        for q in range(p + 1):
            value += metric.square_pp[p, q] * slope_x[w + q]
        momentum_x[w + p] += size * value


@compiled
def take_root(curvature: Any, metric: Any) -> None:
    """Write the root of a curvature into `metric`."""
    n_classes, width, n_pairs = metric.cross_jdp.shape
    left = curvature.square_pp.copy()
    for j in range(n_classes):
        invert_root(curvature.block_jdd[j], metric.block_jdd[j])
        for a in range(width):
            for p in range(n_pairs):
                value = 0.0
                for b in range(a + 1):
                    value += metric.block_jdd[j, a, b] * curvature.cross_jdp[j, b, p]
                metric.cross_jdp[j, a, p] = value
        for p in range(n_pairs):
            for q in range(n_pairs):
                for a in range(width):
                    left[p, q] -= metric.cross_jdp[j, a, p] * metric.cross_jdp[j, a, q]
    invert_root(left, metric.square_pp)


@compiled
def invert_root(square: Any, out: Any) -> None:
    """Write the inverse of the Cholesky factor of a positive definite matrix."""
    size = square.shape[0]
    root = np.zeros((size, size))
    for a in range(size):
        for b in range(a + 1):
            value = square[a, b]
            for c in range(b):
                value -= root[a, c] * root[b, c]
            root[a, b] = np.sqrt(max(value, 1e-12 * square[a, a])) if a == b else value / root[b, b]
    for b in range(size):
        for a in range(size):
            value = 1.0 if a == b else 0.0
            for c in range(b, a):
                value -= root[a, c] * out[c, b]
            out[a, b] = value / root[a, a] if a >= b else 0.0
