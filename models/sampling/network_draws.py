"""What is kept of the draws of a chain over networks: sums for the averages, and the quantities that are monitored.

Of the parameters is kept what annotators do on all items, hard and easy: with h_j the share of hard items among those
drawn in class j (one prior item included),

    pi_kj = h_j p(c_k | j) + (1 - h_j) softmax(U_j)
    cov_j(a, b) = h_j p(c_a = c_b = j | j) + (1 - h_j) u_jj^2 - pi_ajj pi_bjj       right answers of two annotators

The correlation that is reported is sum_j p_j cov_j(a, b) / sqrt(sum_j p_j var_j(a) sum_j p_j var_j(b)), numerator and
denominators averaged over draws; it lies in [-1, 1]. Errors vary together as right answers do. Annotators of different
networks have answers in common only through the difficulty: cov_j = h_j (1 - h_j) (p(c_a = j | j) - u_jj) (same of b).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled
from hitl.models.sampling import markov_network
from hitl.models.sampling.network_layout import Layout, graph_of, table_of


class Sums(NamedTuple):
    """Over the kept draws (the first: over all sweeps after burn-in); y runs over all pairs of annotators in networks.

    Sums of the conditional probabilities; of pi and pi^2 over all items; of the covariance (Y) and the variance (K) of
    right answers given the class; what easy items add to all pairs (draws, J, K). Of each draw weighted accuracies,
    class shares, the share of hard items and couplings; of each sweep the log likelihood.
    """

    weight_ic: Floats
    moment_rmjl: Floats
    covariance_y: Floats
    variance_m: Floats
    spread_djm: Floats
    accuracy_ad: Floats
    share_jd: Floats
    hard_d: Floats
    coupling_pd: Floats
    trace_r: Floats


def blank_sums(layout: Layout, accuracies: int, draws: int, sweeps: int) -> Sums:
    """Sums of zeros."""
    n_classes, n_options, annotators = layout.networks.n_classes, layout.networks.n_options, layout.member.size
    size_g = np.diff(layout.networks.member_start)
    return Sums(
        np.zeros((layout.items.weight_i.size, 2 * n_classes)),
        np.zeros((2, annotators, n_classes, n_options)),
        np.zeros(int((size_g * (size_g - 1) // 2).sum())),
        np.zeros(annotators),
        np.zeros(
            (draws if layout.networks.member_start.size - 1 > layout.networks.n_groups else 0, n_classes, annotators)
        ),
        np.zeros((accuracies, draws)),
        np.zeros((n_classes, draws)),
        np.zeros(draws),
        np.zeros((layout.networks.first_p.size, draws)),
        np.zeros(sweeps),
    )


@compiled
def keep_parameters(networks: Any, hard: float, state: Any, weight_am: Any, sums: Any, kept: int) -> None:
    """Add confusion, dependence and accuracies under the present parameters and shares of hard items."""
    easy_start = networks.table_start[networks.n_groups]
    y = 0
    for g in range(networks.n_groups):
        m0 = networks.member_start[g]
        size = networks.member_start[g + 1] - m0
        graph, table_jt = graph_of(networks, g), table_of(networks, g, state.tables)
        said_d, rest = np.empty(size * networks.n_options), np.empty(table_jt.shape[1])
        agreed_p = np.empty(graph.first_p.shape[0])
        for j in range(networks.n_classes):
            share = np.exp(state.log_share_j[j])
            part = (state.items_sj[0, j] + hard) / (state.items_sj[0, j] + state.items_sj[1, j] + 1.0)
            markov_network.statistics(graph, table_jt[j], rest, said_d, agreed_p)
            easy_l = state.tables[easy_start + j * networks.n_options : easy_start + (j + 1) * networks.n_options]
            keep_confusion(said_d, easy_l, part, share, j, m0, weight_am, sums, kept)
            keep_dependence(graph, table_jt[j], said_d, easy_l, part, share, j, y, sums.covariance_y)
        y += size * (size - 1) // 2
    for g in range(networks.n_groups):
        first, last = networks.pair_start[g], networks.pair_start[g + 1]
        for p in range(first, last):
            sums.coupling_pd[p, kept] = state.theta_x[networks.theta_start[g + 1] - last + p]


@compiled
def keep_confusion(
    said_d: Any, easy_l: Any, part: float, share: float, j: int, m0: int, weight_am: Any, sums: Any, kept: int
) -> None:
    """Add the confusion rows of class j of one network's annotators, and the variance of their right answers."""
    n_options = sums.moment_rmjl.shape[3]
    for a in range(said_d.shape[0] // n_options):
        m = m0 + a
        right = 0.0
        for option in range(n_options):
            pi = part * said_d[a * n_options + option]
            if part < 1.0:
                pi += (1.0 - part) * easy_l[option]
            sums.moment_rmjl[0, m, j, option] += pi
            sums.moment_rmjl[1, m, j, option] += pi * pi
            if option == j:
                right = pi
        sums.variance_m[m] += share * right * (1.0 - right)
        for number in range(weight_am.shape[0]):
            sums.accuracy_ad[number, kept] += weight_am[number, m] * share * right
        if part < 1.0:
            away = said_d[a * n_options + j] - easy_l[j]
            sums.spread_djm[kept, j, m] = np.sqrt(share * part * (1.0 - part)) * away


@compiled
def keep_dependence(
    graph: Any, table: Any, said_d: Any, easy_l: Any, part: float, share: float, j: int, y: int, covariance_y: Any
) -> None:
    """Add the covariance of the right answers, given class j, of all pairs of one network."""
    n_options = graph.n_options
    easy_right = easy_l[j] if part < 1.0 else 0.0
    for b in range(said_d.shape[0] // n_options):
        right_b = part * said_d[b * n_options + j] + (1.0 - part) * easy_right
        for a in range(b):
            right_a = part * said_d[a * n_options + j] + (1.0 - part) * easy_right
            both = part * sum_both(table, a, b, n_options, j) + (1.0 - part) * easy_right * easy_right
            covariance_y[y] += share * (both - right_a * right_b)
            y += 1


@compiled
def sum_both(table: Any, first: int, second: int, n_options: int, option: int) -> float:
    """Sum of the answers in which two annotators (first < second) both say `option`."""
    stride_a, stride_b = n_options**first, n_options**second
    total = 0.0
    for outer in range(option * stride_b, table.shape[0], stride_b * n_options):
        for inner in range(outer + option * stride_a, outer + stride_b, stride_a * n_options):
            for answer in range(inner, inner + stride_a):
                total += table[answer]
    return total


@compiled
def add_weights(weight_ic: Any, sum_ic: Any) -> None:
    """Add the conditional probabilities of the items."""
    for i in range(weight_ic.shape[0]):
        for c in range(weight_ic.shape[1]):
            sum_ic[i, c] += weight_ic[i, c]


@compiled
def keep_truths(state: Any, sums: Any, kept: int) -> None:
    """Keep class shares and the share of hard items."""
    hard = total = 0.0
    for j in range(state.log_share_j.shape[0]):
        hard += state.items_sj[0, j]
        total += state.items_sj[0, j] + state.items_sj[1, j]
        sums.share_jd[j, kept] = np.exp(state.log_share_j[j])
    sums.hard_d[kept] = hard / max(1.0, total)
