"""One chain over truths, difficulty, networks and class shares, compiled; shared by DBCC and EDBCC.

State (Kim & Ghahramani 2012, eqs. 21-38; DBCC is EDBCC in which every item is hard, h = 1):

    p ~ Dir(nu)    t_n ~ Cat(p)    s_n ~ Bernoulli(h)
    answers | t_n = j ~ Markov networks (V, W) where s_n = 1 (hard), else each label ~ Cat(softmax U_j)
    V ~ N(mean, sd_v^2)    W ~ N(0, sd_w^2)    U ~ N(easy mean, sd_u^2)

U is a network too, the last in the layout. It has one annotator, and each label of an easy item is one of its items. A
sweep draws the missing answers of hard items, the parameters of each network by a Hamiltonian step (`hamiltonian`),
p ~ Dir(nu + N) (eq. 11), and (t_n, s_n) from their 2J joint probabilities, with missing answers summed out (eqs. 28,
36, 37).

Each kept draw adds the following. h_j is the fraction of hard items among the items drawn in class j, with one prior
item included, and u_jj = softmax(U_j)_j:

    pi_kj = h_j p(c_k | j) + (1 - h_j) softmax(U_j)
    cov_j(a, b) = h_j p(c_a = c_b = j | j) + (1 - h_j) u_jj^2 - pi_ajj pi_bjj       right answers of two annotators

For annotators of different networks cov_j = h_j (1 - h_j) (p(c_a = j | j) - u_jj) (p(c_b = j | j) - u_jj). The
correlation is sum_j p_j cov_j(a, b) / sqrt(sum_j p_j var_j(a) sum_j p_j var_j(b)), each averaged over draws.

Axes: s is 0 for hard and 1 for easy items, u runs over patterns, i over distinct items, and c = s J + j. The layout
says where each network lies in flat arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled
from hitl.models.sampling import markov_network
from hitl.models.sampling.gibbs import draw_index
from hitl.models.sampling.hamiltonian import draw_networks
from hitl.models.sampling.network_layout import Layout, graph_of, parameters_of, table_of

ADAPTATIONS = 10
"""Number of times that burn-in learns the metrics. In between the step sizes adapt."""

APPROACH = 20
"""Number of draws of the parameters at the start of a chain, with its truths held fixed."""


class Prior(NamedTuple):
    """Mean and precision (1 / sd^2) of every parameter, network by network; h in (0, 1]; and nu of the shares."""

    mean_x: Floats
    precision_x: Floats
    hard: float
    smoothing: float


class State(NamedTuple):
    """State of a chain, written in place.

    Attributes:
        log_share_j: (J,) log class shares.
        theta_x, tables, counts: parameters, tables, and counts of complete answers, of all networks in flat arrays.
        log_suj: (2, U, J) log likelihood of each pattern.
        seen_suj: (2, U, J) number of items with this pattern, by drawn difficulty and class.
        items_sj: (2, J) number of items, by drawn difficulty and class.
        weight_ic: (I, 2J) conditional probabilities from which truths were last drawn.
    """

    log_share_j: Floats
    theta_x: Floats
    tables: Floats
    counts: Floats
    log_suj: Floats
    seen_suj: Floats
    items_sj: Floats
    weight_ic: Floats


class Sums(NamedTuple):
    """Sums over the kept draws, and monitored draws.

    Attributes:
        weight_ic: (I, 2J) conditional probabilities, over all sweeps after burn-in.
        moment_rmjl: (2, K, J, L) pi, and pi^2.
        covariance_y: (Y,) covariance of right answers, of all pairs of annotators in the same network.
        variance_m: (K,) variance of right answers.
        spread_djm: (draws, J, K) factors whose products are covariances through easy items; no draws if all are hard.
        accuracy_ad, share_jd, hard_d, coupling_pd: draws of accuracies, shares, fraction of hard items, and couplings.
        trace_r: log likelihood after every sweep.
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


def blank_state(layout: Layout, prior: Prior) -> State:
    """Return a state of zeros with the parameters at their prior means."""
    n_classes, n_patterns = layout.networks.n_classes, layout.patterns.stride_u.size
    cells = int(layout.networks.table_start[-1])
    return State(
        np.full(n_classes, -np.log(n_classes)),
        prior.mean_x.copy(),
        np.zeros(cells),
        np.zeros(cells),
        np.zeros((2, n_patterns, n_classes)),
        np.zeros((2, n_patterns, n_classes)),
        np.zeros((2, n_classes)),
        np.zeros((layout.items.weight_i.size, 2 * n_classes)),
    )


def blank_sums(layout: Layout, accuracies: int, draws: int, sweeps: int) -> Sums:
    """Return sums of zeros."""
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
def run_chain(
    rng: Any, layout: Any, prior: Any, start_ij: Any, weight_am: Any, burn_in: int, thin: int, chain: Any, sums: Any
) -> None:
    """Sweep from truths drawn from `start_ij`; after `burn_in` add every `thin`-th sweep to `sums`."""
    networks, patterns, items, _, _ = layout
    state, tuning = chain
    disperse(rng, networks, items, prior, start_ij, state)
    approach(rng, networks, patterns, prior, state, tuning)
    period = max(1, burn_in // ADAPTATIONS)
    kept = 0
    for sweep in range(sums.trace_r.shape[0]):
        keep = sweep >= burn_in and (sweep - burn_in) % thin == thin - 1
        complete(rng, networks, patterns, state)
        learning = 0.5 if sweep < burn_in and sweep % period == 0 else 0.0
        gain = (1.0 + sweep) ** -0.6 if sweep < burn_in else 0.0
        draw_networks(rng, networks, prior, state, tuning, learning, gain)
        draw_shares(rng, prior.smoothing, state.items_sj, state.log_share_j)
        if keep:
            keep_parameters(networks, prior.hard, state, weight_am, sums, kept)
        weigh_patterns(patterns, networks.n_options, state.tables, prior.hard, state.log_suj)
        sums.trace_r[sweep] = draw_truths(rng, items, prior.hard, state)
        if sweep >= burn_in:
            sums.weight_ic[:] += state.weight_ic
        if keep:
            sums.share_jd[:, kept] = np.exp(state.log_share_j)
            sums.hard_d[kept] = state.items_sj[0].sum() / max(1.0, state.items_sj.sum())
            kept += 1


@compiled
def disperse(rng: Any, networks: Any, items: Any, prior: Any, start_ij: Any, state: Any) -> None:
    """Draw the start of a chain: truths from `start_ij`, difficulty from the prior, parameters around their means."""
    for x in range(state.theta_x.shape[0]):
        state.theta_x[x] += 0.5 * rng.standard_normal()
    for i in range(items.weight_i.shape[0]):
        for _ in range(items.weight_i[i]):
            j = draw_index(rng, start_ij[i], 1.0) if items.known_i[i] < 0 else items.known_i[i]
            count_item(items, i, j, 0 if rng.random() < prior.hard else 1, state.seen_suj, state.items_sj)
    fill_tables(networks, state.theta_x, state.tables)


@compiled
def approach(rng: Any, networks: Any, patterns: Any, prior: Any, state: Any, tuning: Any) -> None:
    """Draw only parameters until they fit the first truths, so that classes are not swapped at the start."""
    for turn in range(APPROACH):
        complete(rng, networks, patterns, state)
        draw_networks(rng, networks, prior, state, tuning, 1.0, (1.0 + turn) ** -0.6)
    draw_shares(rng, prior.smoothing, state.items_sj, state.log_share_j)


@compiled
def fill_tables(networks: Any, theta_x: Any, tables: Any) -> None:
    """Write the tables of the parameters."""
    for g in range(networks.member_start.shape[0] - 1):
        graph, theta = graph_of(networks, g), parameters_of(networks, g, theta_x)
        table_jt = table_of(networks, g, tables)
        width = (theta.shape[0] - graph.first_p.shape[0]) // networks.n_classes
        for j in range(networks.n_classes):
            w_p = theta[networks.n_classes * width :]
            markov_network.fill(graph, theta[j * width : (j + 1) * width], w_p, table_jt[j])


# -- truths and missing answers -------------------------------------------------------------------------------


@compiled
def count_item(items: Any, i: int, j: int, s: int, seen_suj: Any, items_sj: Any) -> None:
    """Add one item of class j to the counts."""
    items_sj[s, j] += 1.0
    for place in range(items.start[i], items.start[i + 1]):
        seen_suj[s, items.pattern[place], j] += 1.0


@compiled
def weigh_patterns(patterns: Any, n_options: int, tables: Any, hard: float, log_suj: Any) -> None:
    """Write the log likelihood of every pattern for hard and easy items, missing answers summed out."""
    for u in range(log_suj.shape[1]):
        for j in range(log_suj.shape[2]):
            total = 0.0
            for place in range(patterns.cell_start[u], patterns.cell_start[u + 1]):
                total += tables[patterns.cell[place] + j * patterns.stride_u[u]]
            log_suj[0, u, j] = np.log(max(total, 1e-300))
            if hard < 1.0:
                easy = 0.0
                for place in range(patterns.said_start[u], patterns.said_start[u + 1]):
                    easy += np.log(max(tables[patterns.said[place] + j * n_options], 1e-300))
                log_suj[1, u, j] = easy


@compiled
def weigh_item(items: Any, i: int, hard: float, log_share_j: Any, log_suj: Any, weight_c: Any) -> float:
    """Write the probabilities of class and difficulty of one item, scaled to sum to 1. Return the log of their sum."""
    n_classes = log_share_j.shape[0]
    log_easy = np.log1p(-hard) if hard < 1.0 else -np.inf
    top = -np.inf
    for j in range(n_classes):
        log_share = log_share_j[j] if items.known_i[i] < 0 or items.known_i[i] == j else -np.inf
        weight_c[j], weight_c[n_classes + j] = log_share + np.log(hard), log_share + log_easy
        for place in range(items.start[i], items.start[i + 1]):
            weight_c[j] += log_suj[0, items.pattern[place], j]
            weight_c[n_classes + j] += log_suj[1, items.pattern[place], j]
        top = max(top, weight_c[j], weight_c[n_classes + j])
    total = 0.0
    for c in range(2 * n_classes):
        weight_c[c] = np.exp(weight_c[c] - top) if weight_c[c] > -np.inf else 0.0
        total += weight_c[c]
    for c in range(2 * n_classes):
        weight_c[c] /= total
    return float(top + np.log(total))


@compiled
def draw_truths(rng: Any, items: Any, hard: float, state: Any) -> float:
    """Draw (t, s) of all items and count them. Return the log likelihood with (t, s) and missing answers summed out."""
    state.seen_suj[:] = 0.0
    state.items_sj[:] = 0.0
    n_classes = state.log_share_j.shape[0]
    total = 0.0
    for i in range(items.weight_i.shape[0]):
        weight_c = state.weight_ic[i]
        total += items.weight_i[i] * weigh_item(items, i, hard, state.log_share_j, state.log_suj, weight_c)
        for _ in range(items.weight_i[i]):
            drawn = draw_index(rng, weight_c, 1.0)
            count_item(items, i, drawn % n_classes, drawn // n_classes, state.seen_suj, state.items_sj)
    return total


@compiled
def complete(rng: Any, networks: Any, patterns: Any, state: Any) -> None:
    """Count answers by cell of the tables. Missing answers of hard items are drawn given the others and t."""
    n_classes, tables, counts = networks.n_classes, state.tables, state.counts
    counts[:] = 0.0
    for u in range(patterns.stride_u.shape[0]):
        start, end = patterns.cell_start[u], patterns.cell_start[u + 1]
        for j in range(n_classes):
            shift, seen = j * patterns.stride_u[u], state.seen_suj[0, u, j]
            if end == start + 1:
                counts[patterns.cell[start] + shift] += seen
            elif seen > 0.0:
                chance = np.empty(end - start)
                total = 0.0
                for place in range(start, end):
                    chance[place - start] = max(tables[patterns.cell[place] + shift], 1e-300)
                    total += chance[place - start]
                for _ in range(int(seen)):
                    drawn = draw_index(rng, chance, total)
                    counts[patterns.cell[start + drawn] + shift] += 1.0
            if state.seen_suj[1, u, j] > 0.0:
                for place in range(patterns.said_start[u], patterns.said_start[u + 1]):
                    counts[patterns.said[place] + j * networks.n_options] += state.seen_suj[1, u, j]


@compiled
def draw_shares(rng: Any, smoothing: float, items_sj: Any, log_share_j: Any) -> None:
    """Draw the class shares from their Dirichlet."""
    total = 0.0
    for j in range(log_share_j.shape[0]):
        weight = max(rng.standard_gamma(smoothing + items_sj[0, j] + items_sj[1, j]), 1e-300)
        log_share_j[j] = np.log(weight)
        total += weight
    for j in range(log_share_j.shape[0]):
        log_share_j[j] -= np.log(total)


# -- kept draws ------------------------------------------------------------------------------------------------


@compiled
def keep_parameters(networks: Any, hard: float, state: Any, weight_am: Any, sums: Any, kept: int) -> None:
    """Add confusion, dependence and accuracies under the present parameters and fractions of hard items."""
    n_options = networks.n_options
    y = 0
    for g in range(networks.n_groups):
        m0 = networks.member_start[g]
        size = networks.member_start[g + 1] - m0
        graph, table_jt = graph_of(networks, g), table_of(networks, g, state.tables)
        said_d, agreed_p = np.empty(size * n_options), np.empty(graph.first_p.shape[0])
        for j in range(networks.n_classes):
            share = np.exp(state.log_share_j[j])
            part = (state.items_sj[0, j] + hard) / (state.items_sj[0, j] + state.items_sj[1, j] + 1.0)
            markov_network.statistics(graph, table_jt[j], said_d, agreed_p)
            easy_l = np.zeros(n_options)
            if part < 1.0:
                easy_l[:] = table_of(networks, networks.n_groups, state.tables)[j]
            said_ml = said_d.reshape((size, n_options))
            for a in range(size):
                pi_l = part * said_ml[a] + (1.0 - part) * easy_l
                sums.moment_rmjl[0, m0 + a, j] += pi_l
                sums.moment_rmjl[1, m0 + a, j] += pi_l * pi_l
                sums.variance_m[m0 + a] += share * pi_l[j] * (1.0 - pi_l[j])
                sums.accuracy_ad[:, kept] += weight_am[:, m0 + a] * share * pi_l[j]
                if part < 1.0:
                    sums.spread_djm[kept, j, m0 + a] = np.sqrt(share * part * (1.0 - part)) * (
                        said_ml[a, j] - easy_l[j]
                    )
            right_m = part * said_d[j::n_options] + (1.0 - part) * easy_l[j]
            place = y
            for b in range(size):
                for a in range(b):
                    both = part * sum_both(table_jt[j], a, b, n_options, j) + (1.0 - part) * easy_l[j] * easy_l[j]
                    sums.covariance_y[place] += share * (both - right_m[a] * right_m[b])
                    place += 1
        y += size * (size - 1) // 2
    for g in range(networks.n_groups):
        first, last = networks.pair_start[g], networks.pair_start[g + 1]
        end = networks.theta_start[g + 1]
        sums.coupling_pd[first:last, kept] = state.theta_x[end - last + first : end]


@compiled
def sum_both(table: Any, first: int, second: int, n_options: int, option: int) -> float:
    """Sum the joint answers in which two annotators (first < second) both choose `option`."""
    stride_a, stride_b = n_options**first, n_options**second
    total = 0.0
    for outer in range(option * stride_b, table.shape[0], stride_b * n_options):
        for inner in range(outer + option * stride_a, outer + stride_b, stride_a * n_options):
            for answer in range(inner, inner + stride_a):
                total += table[answer]
    return total
