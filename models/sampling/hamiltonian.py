"""Hamiltonian Metropolis steps for the parameters of a Markov network, in whitened coordinates (Duane et al. 1987).

V and W of annotators who copy each other are strongly correlated. With the curvature

    A = | B_1        C_1 |
        |      ...   ... |  = R R^T        B_j: V of class j,  C_j: V with W,  D: W
        | C_1^T ...   D  |

the density is nearly round in the coordinates R^T (V, W). A has no entries between classes, so its root is

    R_j = chol(B_j)    X_j = R_j^-1 C_j    R_w = chol(D - sum_j X_j^T X_j)

    a step x in the new coordinates:   W = R_w^-T x_w,        V_j = R_j^-T (x_j - X_j W)
    the slope in x:                    x_j' = R_j^-1 V_j',    x_w' = R_w^-1 (W' - sum_j X_j^T x_j')

Metric and step size are learned during burn-in only, so that the posterior stays invariant afterwards.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled
from hitl.models.sampling.markov_network import Target, curvature, log_density, statistics
from hitl.models.sampling.network_layout import Networks, graph_of, parameters_of, table_of

LEAPS = 5
"""Leapfrog moves per draw. With the usual step size they make about a quarter turn around a round density, the least
after which a draw does not depend on its start."""

ACCEPTED = 0.8
"""Acceptance rate for which burn-in adapts the step size."""


class Metric(NamedTuple):
    """R_j^-1 (J, d, d), X_j (J, d, P) and R_w^-1 (P, P); or, in the same fields, the curvature B_j, C_j and D."""

    block_jdd: Any
    cross_jdp: Any
    square_pp: Any


class Tuning(NamedTuple):
    """Log step size of each network (G,), and their curvatures and roots in flat arrays."""

    log_size_g: Floats
    curvature: Floats
    root: Floats


def blank_tuning(networks: Networks) -> Tuning:
    """Return initial step sizes and empty metrics, which are learned from the first sweep on."""
    size = int(networks.metric_start[-1])
    return Tuning(np.full(networks.member_start.size - 1, np.log(0.5)), np.zeros(size), np.zeros(size))


@compiled
def draw(rng: Any, metric: Any, size: float, target: Any, theta_x: Any, table_jt: Any) -> float:
    """Draw (V, W) and its tables given complete answers, in place. Return the proposal's acceptance probability."""
    there_x, momentum_x, there_jt = theta_x.copy(), np.empty_like(theta_x), np.empty_like(table_jt)
    for x in range(momentum_x.shape[0]):
        momentum_x[x] = rng.standard_normal()
    size *= 0.8 + 0.4 * rng.random()  # steps of constant size could go round in circles
    gain = leapfrog(metric, size, LEAPS, target, there_x, there_jt, momentum_x)
    accepted = np.exp(min(gain, 0.0)) if np.isfinite(gain) else 0.0
    if rng.random() < accepted:
        theta_x[:] = there_x
        table_jt[:] = there_jt
    return float(accepted)


@compiled
def leapfrog(metric: Any, size: float, leaps: int, target: Any, theta_x: Any, table_jt: Any, momentum_x: Any) -> float:
    """Move (V, W) and the momentum. Return the change of log density - |momentum|^2 / 2, near 0 for small moves."""
    slope_x = np.empty_like(theta_x)
    gain = 0.5 * np.sum(momentum_x**2) - log_density(target, theta_x, table_jt, slope_x)
    after = 0.0
    push(metric, 0.5 * size, slope_x, momentum_x)
    for leap in range(leaps):
        move(metric, size, momentum_x, theta_x)
        after = log_density(target, theta_x, table_jt, slope_x)
        push(metric, size if leap < leaps - 1 else 0.5 * size, slope_x, momentum_x)
    return float(gain + after - 0.5 * np.sum(momentum_x**2))


@compiled
def move(metric: Any, size: float, step_x: Any, theta_x: Any) -> None:
    """Add to (V, W) `size` times a step in the new coordinates."""
    n_classes, width, _ = metric.cross_jdp.shape
    w = n_classes * width
    moved_p = product(metric.square_pp.T, step_x[w:])
    theta_x[w:] += size * moved_p
    for j in range(n_classes):
        here = slice(j * width, (j + 1) * width)
        left_d = step_x[here].copy()
        for p in range(moved_p.shape[0]):
            left_d -= metric.cross_jdp[j, :, p] * moved_p[p]
        theta_x[here] += size * product(metric.block_jdd[j].T, left_d)


@compiled
def push(metric: Any, size: float, slope_x: Any, momentum_x: Any) -> None:
    """Add to the momentum `size` times the slope in the new coordinates."""
    n_classes, width, _ = metric.cross_jdp.shape
    w = n_classes * width
    slope_p = slope_x[w:].copy()
    for j in range(n_classes):
        here = slice(j * width, (j + 1) * width)
        slope_d = product(metric.block_jdd[j], slope_x[here])
        momentum_x[here] += size * slope_d
        for a in range(width):
            slope_p -= metric.cross_jdp[j, a] * slope_d[a]
    momentum_x[w:] += size * product(metric.square_pp, slope_p)


@compiled
def product(matrix: Any, vector: Any) -> Any:
    """Return matrix @ vector. The matrices are small: threads of a linear algebra library would cost more."""
    out = np.zeros(matrix.shape[0])
    for a in range(matrix.shape[0]):
        for b in range(matrix.shape[1]):
            out[a] += matrix[a, b] * vector[b]
    return out


@compiled
def take_root(bend: Any, metric: Any) -> None:
    """Write the root of the curvature `bend` into `metric`."""
    left_pp = bend.square_pp.copy()
    for j in range(bend.block_jdd.shape[0]):
        invert_root(bend.block_jdd[j], metric.block_jdd[j])
        for p in range(left_pp.shape[0]):
            metric.cross_jdp[j, :, p] = product(metric.block_jdd[j], bend.cross_jdp[j, :, p])
        for a in range(metric.cross_jdp.shape[1]):
            left_pp -= np.outer(metric.cross_jdp[j, a], metric.cross_jdp[j, a])
    invert_root(left_pp, metric.square_pp)


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


# -- networks of a layout, with adaptation -------------------------------------------------------------------------


@compiled
def draw_networks(rng: Any, networks: Any, prior: Any, state: Any, tuning: Any, learning: float, gain: float) -> None:
    """Draw the parameters of each network. If > 0, `learning` adapts the metric and `gain` the step size."""
    total_j = np.empty(networks.n_classes)
    for g in range(networks.member_start.shape[0] - 1):
        graph = graph_of(networks, g)
        theta, table_jt = parameters_of(networks, g, state.theta_x), table_of(networks, g, state.tables)
        mean_x, precision_x = parameters_of(networks, g, prior.mean_x), parameters_of(networks, g, prior.precision_x)
        target = Target(graph, np.zeros(theta.shape[0]), total_j, mean_x, precision_x)
        add_answers(graph, table_of(networks, g, state.counts), target.answers_x, total_j)
        metric = metric_of(networks, g, tuning.root)
        if learning > 0.0:
            here = np.empty_like(tuning.curvature)
            curvature(graph, total_j, precision_x, table_jt, metric_of(networks, g, here))
            for place in range(networks.metric_start[g], networks.metric_start[g + 1]):
                tuning.curvature[place] += learning * (here[place] - tuning.curvature[place])
            take_root(metric_of(networks, g, tuning.curvature), metric)
        accepted = draw(rng, metric, np.exp(tuning.log_size_g[g]), target, theta, table_jt)
        tuning.log_size_g[g] += gain * (accepted - ACCEPTED)


@compiled
def add_answers(graph: Any, counts_jt: Any, answers_x: Any, total_j: Any) -> None:
    """Add the statistics of complete answers for V and W, and write the number of items of each class."""
    n_pairs = graph.first_p.shape[0]
    n_classes, width = counts_jt.shape[0], (answers_x.shape[0] - n_pairs) // counts_jt.shape[0]
    agreed_p = np.empty(n_pairs)
    for j in range(n_classes):
        said_d = answers_x[j * width : (j + 1) * width]
        statistics(graph, counts_jt[j], said_d, agreed_p)
        total_j[j] = 0.0
        for option in range(graph.n_options):
            total_j[j] += said_d[option]  # every item has one answer of the first annotator
        answers_x[n_classes * width :] += agreed_p


@compiled
def metric_of(networks: Any, g: int, flat: Any) -> Any:
    """Return the metric or the curvature of network g."""
    n_classes, start = networks.n_classes, networks.metric_start[g]
    width = networks.n_options * (networks.member_start[g + 1] - networks.member_start[g])
    n_pairs = networks.pair_start[g + 1] - networks.pair_start[g]
    cross = start + n_classes * width * width
    square = cross + n_classes * width * n_pairs
    return Metric(
        flat[start:cross].reshape((n_classes, width, width)),
        flat[cross:square].reshape((n_classes, width, n_pairs)),
        flat[square : square + n_pairs * n_pairs].reshape((n_pairs, n_pairs)),
    )
