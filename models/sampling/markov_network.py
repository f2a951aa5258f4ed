"""Markov network between annotators (Kim & Ghahramani 2012, eq. 21): answers that depend on each other.

S annotators with L options each answer an item of class j with

    p(c | j) = exp( sum_i V[j, i, c_i] + sum_{a<b} W[a, b] [c_a = c_b] ) / Z_j

p(. | j) is a table of all L^S joint answers, built annotator by annotator and scaled after each. The answer of
annotator i is digit i (base L) of the column number. Let said[i, l] be the sum of the columns whose digit i is l,
agreed[a, b] the sum of the columns whose digits a and b are equal, and N_j the number of items of class j. With
expectations E, and priors V ~ N(mean, sd_v^2), W ~ N(0, sd_w^2),

    log p(V, W | answers) = sum V said + sum W agreed - sum_j N_j log Z_j + log p(V, W)
    d/dV = said - N_j E[said] - (V - mean) / sd_v^2       d/dW = agreed - sum_j N_j E[agreed] - W / sd_w^2

which is concave; minus its second derivative is N_j Cov[said, agreed] + 1 / sd^2.

Axes: d = i L + l runs over the S L answers of a network's annotators, p over its couplings, ordered by their second
annotator, t over the L^S columns of its tables, and x over all parameters: V by class, then W.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hitl.models.numerics.compiled import compiled


class Graph(NamedTuple):
    """L, and (P,) the positions first < second of the annotators that each coupling joins, ordered by second."""

    n_options: int
    first_p: Any
    second_p: Any


class Target(NamedTuple):
    """Density of the parameters of a network.

    Attributes:
        graph: couplings of the network.
        answers_x: (X,) statistics of complete answers: said by class, then agreed.
        total_j: (J,) number of items of each class.
        mean_x, precision_x: (X,) means and precisions of the priors.
    """

    graph: Graph
    answers_x: Any
    total_j: Any
    mean_x: Any
    precision_x: Any


@compiled
def fill(graph: Any, v_d: Any, w_p: Any, table: Any) -> float:
    """Write p(c | j) of all answers into `table` (L^S); return the log of the partition function."""
    n_options, first_p, second_p = graph
    log_z = 0.0
    table[0] = 1.0
    stride = 1
    p = 0
    for member in range(v_d.shape[0] // n_options):
        v_l = v_d[member * n_options : (member + 1) * n_options]
        top = v_l.max()
        for option in range(n_options - 1, -1, -1):  # the block of option 0 holds `rest` and is written last
            factor = np.exp(v_l[option] - top)
            for rest in range(stride):
                table[option * stride + rest] = table[rest] * factor
        while p < second_p.shape[0] and second_p[p] == member:
            scale_agreement(table, n_options ** first_p[p], stride, n_options, np.exp(w_p[p]))
            p += 1
        stride *= n_options
        total = 0.0
        for answer in range(stride):
            total += table[answer]
        scale = 1.0 / max(total, 1e-300)
        for answer in range(stride):
            table[answer] *= scale
        log_z += top + np.log(total)
    return log_z


@compiled
def scale_agreement(table: Any, first: int, second: int, n_options: int, factor: float) -> None:
    """Multiply the answers in which two annotators agree; `first` < `second` are their strides, `second` the last."""
    for option in range(n_options):
        start = option * second + option * first
        for block in range(start, start + second, first * n_options):
            for answer in range(block, block + first):
                table[answer] *= factor


@compiled
def sum_agreement(table: Any, first: int, second: int, n_options: int) -> float:
    """Sum the answers in which two annotators agree; strides as in `scale_agreement`."""
    total = 0.0
    for option in range(n_options):
        start = option * second + option * first
        for block in range(start, start + second, first * n_options):
            for answer in range(block, block + first):
                total += table[answer]
    return total


@compiled
def statistics(graph: Any, table: Any, said_d: Any, agreed_p: Any) -> None:
    """Write said (S L) and agreed (P) of a table of probabilities or counts, summing annotators out, last first."""
    n_options, first_p, second_p = graph
    rest = table.copy()
    size = table.shape[0]
    p = second_p.shape[0] - 1
    for member in range(said_d.shape[0] // n_options - 1, -1, -1):
        stride = size // n_options
        for option in range(n_options):
            total = 0.0
            for answer in range(option * stride, (option + 1) * stride):
                total += rest[answer]
            said_d[member * n_options + option] = total
        while p >= 0 and second_p[p] == member:
            agreed_p[p] = sum_agreement(rest, n_options ** first_p[p], stride, n_options)
            p -= 1
        for option in range(1, n_options):
            for answer in range(stride):
                rest[answer] += rest[option * stride + answer]
        size = stride


@compiled
def log_density(target: Any, theta_x: Any, table_jt: Any, slope_x: Any) -> float:
    """Return log p(V, W | answers) up to a constant; write its slopes, and the tables (J, L^S) of p(c | j)."""
    graph, answers_x, total_j, mean_x, precision_x = target
    n_classes, n_pairs = table_jt.shape[0], graph.first_p.shape[0]
    width = (theta_x.shape[0] - n_pairs) // n_classes
    w_p = theta_x[n_classes * width :]
    expected_d, expected_p = np.empty(width), np.empty(n_pairs)
    value = 0.0
    for x in range(theta_x.shape[0]):
        away = theta_x[x] - mean_x[x]
        value += theta_x[x] * answers_x[x] - 0.5 * precision_x[x] * away * away
        slope_x[x] = answers_x[x] - precision_x[x] * away
    for j in range(n_classes):
        start = j * width
        value -= total_j[j] * fill(graph, theta_x[start : start + width], w_p, table_jt[j])
        statistics(graph, table_jt[j], expected_d, expected_p)
        slope_x[start : start + width] -= total_j[j] * expected_d
        slope_x[n_classes * width :] -= total_j[j] * expected_p
    return value


@compiled
def curvature(graph: Any, total_j: Any, precision_x: Any, table_jt: Any, out: Any) -> None:
    """Write minus the second derivatives of `log_density`: V with V of each class, V with W, W with W."""
    block_jdd, cross_jdp, square_pp = out
    n_classes, width, n_pairs = cross_jdp.shape
    square_pp[:] = np.diag(precision_x[n_classes * width :])
    for j in range(n_classes):
        covariance = covariances(graph, table_jt[j], width + n_pairs)
        block_jdd[j] = total_j[j] * covariance[:width, :width]
        block_jdd[j] += np.diag(precision_x[j * width : (j + 1) * width])
        cross_jdp[j] = total_j[j] * covariance[:width, width:]
        square_pp += total_j[j] * covariance[width:, width:]


@compiled
def covariances(graph: Any, table: Any, size: int) -> Any:
    """Return the covariances of said and agreed (S L + P of them) under one table."""
    n_options, first_p, second_p = graph
    n_pairs = first_p.shape[0]
    n_members = (size - n_pairs) // n_options
    mean, second = np.zeros(size), np.zeros((size, size))
    active = np.empty(n_members + n_pairs, np.int64)  # entries of said and agreed to which this answer adds 1
    for answer in range(table.shape[0]):
        left = answer
        for member in range(n_members):
            active[member] = member * n_options + left % n_options
            left //= n_options
        count = n_members
        for p in range(n_pairs):
            if active[first_p[p]] % n_options == active[second_p[p]] % n_options:
                active[count] = n_members * n_options + p
                count += 1
        for one in range(count):
            mean[active[one]] += table[answer]
            for other in range(count):
                second[active[one], active[other]] += table[answer]
    return second - np.outer(mean, mean)
