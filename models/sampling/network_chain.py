"""One chain over truths, difficulty, networks and class shares, compiled; shared by DBCC and EDBCC.

State (Kim & Ghahramani 2012, eqs. 21-38; DBCC is EDBCC in which every item is hard, h = 1):

    p ~ Dir(nu)    t_n ~ Cat(p)    s_n ~ Bernoulli(h)
    answers | t_n = j ~ Markov networks (V, W) where s_n = 1 (hard), else each label ~ Cat(softmax U_j)
    V ~ N(mean, sd_v^2)    W ~ N(0, sd_w^2)    U ~ N(easy mean, sd_u^2)

U is a network too, of one annotator to whom each label of an easy item is an item: the last in the layout. A sweep
draws

    answers not given | t, V, W     of hard items, so that the networks have complete answers
    V, W, U | complete answers      a Hamiltonian Metropolis step for each network          (see `hamiltonian`)
    p | t                           Dir(nu + N)                                             (eq. 11)
    t_n, s_n | V, W, U, p           together, from their 2J joint probabilities, the answers not given summed out
                                                                                            (eqs. 28, 36, 37)

(t, s) and the answers not given are one block, which leaves the posterior as it is and mixes faster. Items of which
nothing is known are left out: they would only slow the shares down.

Axes: s = 0 hard, 1 easy; u patterns, i distinct items, c = s J + j; flat arrays are cut by the layout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled
from hitl.models.sampling import hamiltonian, markov_network
from hitl.models.sampling.gibbs import draw_index
from hitl.models.sampling.hamiltonian import Metric
from hitl.models.sampling.markov_network import Target
from hitl.models.sampling.network_draws import add_weights, keep_parameters, keep_truths
from hitl.models.sampling.network_layout import Layout, Networks, graph_of, parameters_of, table_of

ADAPTATIONS = 10
"""Times that the metrics are learned during burn-in, evenly spread; between them the size of the moves settles."""

APPROACH = 20
"""Draws of the parameters with which a chain begins, its truths held."""


class Prior(NamedTuple):
    """Mean and precision (1 / sd^2) of every parameter, as the networks hold them; h in (0, 1]; nu of the shares."""

    mean_x: Floats
    precision_x: Floats
    hard: float
    smoothing: float


class State(NamedTuple):
    """Where a chain is; every array is written in place.

    Log shares (J,); parameters and tables of the networks, and the counts of complete answers, shaped as the tables;
    log likelihood of the patterns (2, U, J); how often each was drawn, and the items (2, J); conditional probabilities
    (I, 2J) of the last draw of truths.
    """

    log_share_j: Floats
    theta_x: Floats
    tables: Floats
    counts: Floats
    log_suj: Floats
    seen_suj: Floats
    items_sj: Floats
    weight_ic: Floats


class Tuning(NamedTuple):
    """Log sizes of the Hamiltonian moves of each network, and the curvatures and their roots, flat."""

    log_size_g: Floats
    curvature: Floats
    root: Floats


def blank_state(layout: Layout, prior: Prior) -> State:
    """A state of zeros with the parameters at their prior means."""
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


def blank_tuning(networks: Networks) -> Tuning:
    """Room for the metrics; they are learned from the first sweep on."""
    size = int(networks.metric_start[-1])
    return Tuning(np.full(networks.member_start.size - 1, np.log(0.5)), np.zeros(size), np.zeros(size))


@compiled
def run_chain(
    rng: Any, layout: Any, prior: Any, start_ij: Any, weight_am: Any, burn_in: int, thin: int, chain: Any, sums: Any
) -> None:
    """Start `chain` (state and tuning) from truths drawn from `start_ij`; sweep, and after `burn_in` add to `sums`.

    Probabilities of the items are added after every sweep, everything else after every `thin`-th.
    `weight_am` (A, K) weighs the annotators into the accuracies that are monitored.
    """
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
            add_weights(state.weight_ic, sums.weight_ic)
        if keep:
            keep_truths(state, sums, kept)
            kept += 1


@compiled
def disperse(rng: Any, networks: Any, items: Any, prior: Any, start_ij: Any, state: Any) -> None:
    """Where a chain starts: truths drawn from `start_ij`, difficulty from the prior, parameters about their means."""
    for x in range(state.theta_x.shape[0]):
        state.theta_x[x] += 0.5 * rng.standard_normal()
    for i in range(items.weight_i.shape[0]):
        for _ in range(items.weight_i[i]):
            j = draw_index(rng, start_ij[i], 1.0) if items.known_i[i] < 0 else items.known_i[i]
            count_item(items, i, j, 0 if rng.random() < prior.hard else 1, state.seen_suj, state.items_sj)
    fill_tables(networks, state.theta_x, state.tables)


@compiled
def approach(rng: Any, networks: Any, patterns: Any, prior: Any, state: Any, tuning: Any) -> None:
    """Draw parameters alone, until they fit the first truths.

    Truths drawn from parameters that are still at the prior could leave the votes for a mirror image.
    """
    for turn in range(APPROACH):
        complete(rng, networks, patterns, state)
        draw_networks(rng, networks, prior, state, tuning, 1.0, (1.0 + turn) ** -0.6)
    draw_shares(rng, prior.smoothing, state.items_sj, state.log_share_j)


@compiled
def fill_tables(networks: Any, theta_x: Any, tables: Any) -> None:
    """Write the tables that belong to the parameters."""
    for g in range(networks.member_start.shape[0] - 1):
        graph, theta = graph_of(networks, g), parameters_of(networks, g, theta_x)
        table_jt = table_of(networks, g, tables)
        width = (theta.shape[0] - graph.first_p.shape[0]) // networks.n_classes
        for j in range(networks.n_classes):
            w_p = theta[networks.n_classes * width :]
            markov_network.fill(graph, theta[j * width : (j + 1) * width], w_p, table_jt[j])


# -- truths and answers not given ----------------------------------------------------------------------------


@compiled
def count_item(items: Any, i: int, j: int, s: int, seen_suj: Any, items_sj: Any) -> None:
    """Add one item of class j to the counts."""
    items_sj[s, j] += 1.0
    for place in range(items.start[i], items.start[i + 1]):
        seen_suj[s, items.pattern[place], j] += 1.0


@compiled
def weigh_patterns(patterns: Any, n_options: int, tables: Any, hard: float, log_suj: Any) -> None:
    """Write the log likelihood of every pattern for hard and easy items; answers not given are summed out."""
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
    """Write the joint probabilities of class and difficulty of one item, which sum to 1; the log of their sum."""
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
    """Draw (t, s) of all items and count them; the log likelihood, (t, s) and answers not given summed out."""
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
    """Count the answers of hard items by cell of the tables; those not given are drawn from p(c | answers, t).

    The labels of easy items say nothing about the networks but the last.
    """
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


# -- parameters ----------------------------------------------------------------------------------------------


@compiled
def draw_shares(rng: Any, smoothing: float, items_sj: Any, log_share_j: Any) -> None:
    """Class shares from their Dirichlet."""
    total = 0.0
    for j in range(log_share_j.shape[0]):
        weight = max(rng.standard_gamma(smoothing + items_sj[0, j] + items_sj[1, j]), 1e-300)
        log_share_j[j] = np.log(weight)
        total += weight
    for j in range(log_share_j.shape[0]):
        log_share_j[j] -= np.log(total)


@compiled
def draw_networks(rng: Any, networks: Any, prior: Any, state: Any, tuning: Any, learning: float, gain: float) -> None:
    """The parameters of each network; with `learning` and `gain` > 0 metric and size of the moves are learned too."""
    total_j = np.empty(networks.n_classes)
    for g in range(networks.member_start.shape[0] - 1):
        graph = graph_of(networks, g)
        theta, table_jt = parameters_of(networks, g, state.theta_x), table_of(networks, g, state.tables)
        mean_x, precision_x = parameters_of(networks, g, prior.mean_x), parameters_of(networks, g, prior.precision_x)
        target = Target(graph, np.zeros(theta.shape[0]), total_j, mean_x, precision_x)
        add_answers(graph, table_of(networks, g, state.counts), target.answers_x, total_j)
        if learning > 0.0:
            learn_metric(networks, g, target, table_jt, learning, tuning)
        metric = metric_of(networks, g, tuning.root)
        accepted = hamiltonian.draw(rng, metric, np.exp(tuning.log_size_g[g]), target, theta, table_jt)
        tuning.log_size_g[g] += gain * (accepted - hamiltonian.ACCEPTED)


@compiled
def add_answers(graph: Any, counts_jt: Any, answers_x: Any, total_j: Any) -> None:
    """Add what complete answers tell of V and W, and write the number of items of each class."""
    n_pairs = graph.first_p.shape[0]
    n_classes, width = counts_jt.shape[0], (answers_x.shape[0] - n_pairs) // counts_jt.shape[0]
    rest, agreed_p = np.empty(counts_jt.shape[1]), np.empty(n_pairs)
    for j in range(n_classes):
        said_d = answers_x[j * width : (j + 1) * width]
        markov_network.statistics(graph, counts_jt[j], rest, said_d, agreed_p)
        total_j[j] = 0.0
        for option in range(graph.n_options):
            total_j[j] += said_d[option]  # the first annotator's answers are as many as the items
        for p in range(n_pairs):
            answers_x[n_classes * width + p] += agreed_p[p]


@compiled
def metric_of(networks: Any, g: int, flat: Any) -> Any:
    """The metric or the curvature of network g."""
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


@compiled
def learn_metric(networks: Any, g: int, target: Any, table_jt: Any, learning: float, tuning: Any) -> None:
    """Move the average curvature of network g by `learning` of the way to the present one, and take its root."""
    here = np.empty_like(tuning.curvature)
    blocks, cross, square = metric_of(networks, g, here)
    markov_network.curvature(target.graph, target.total_j, target.precision_x, table_jt, blocks, cross, square)
    for place in range(networks.metric_start[g], networks.metric_start[g + 1]):
        tuning.curvature[place] += learning * (here[place] - tuning.curvature[place])
    hamiltonian.take_root(metric_of(networks, g, tuning.curvature), metric_of(networks, g, tuning.root))
