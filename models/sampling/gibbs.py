"""One Gibbs chain over truths and Dirichlet parameters, compiled; shared by GibbsIBCC and EBCC.

State (Kim & Ghahramani 2012, eqs. 10 and 14; IBCC is EBCC in which every item is hard, h = 1):

    p ~ Dir(nu)    t_n ~ Cat(p)    s_n ~ Bernoulli(h)    alpha_kjl ~ Exp(mean lambda_jl)    pi_kj ~ Dir(alpha_kj)
    l_nk | t_n = j ~ Cat(pi_kj) where s_n = 1 (hard), else Cat(E_j)

p and pi are summed out (eqs. 11, 12), so that chains mix faster. With C and N the counts of the labels and classes of
all other items, C of hard items only (eq. 19 corrected), and A_kj = sum_l alpha_kjl, a round draws

    alpha_kjl | t, s     ∝  G(A) / G(A + C_kj.)  G(alpha + C_kjl) / G(alpha)  exp(-alpha / lambda_jl)      once
    t_n, s_n  | others   ∝  (nu_j + N_j) h prod_k (alpha_kjl + C_kjl) / (A_kj + C_kj.)      (hard)         `thin` times
                         or (nu_j + N_j) (1 - h) prod_k E_jl                                (easy)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Ints
from hitl.models.numerics.compiled import compiled, inlined

SMALLEST = 1e-18
"""Smallest chance of an answer, so that a product of 16 does not underflow."""

LOWEST, HIGHEST = -40.0, 4.0
"""Range of log(alpha / lambda). A value outside has probability exp(-40)."""


class Table(NamedTuple):
    """Labels of all items.

    Attributes:
        item_start, annotator, label: annotators and answers, sorted by item; item n begins at item_start[n].
        known_n: (N,) known classes, or -1.
        informative: indices of the items to learn from.
        repeated_n: (N,) True for items that the anonymous pool has labeled more than once.
    """

    item_start: npt.NDArray[np.int64]
    annotator: Ints
    label: Ints
    known_n: Ints
    informative: npt.NDArray[np.int64]
    repeated_n: npt.NDArray[np.bool_]


class Prior(NamedTuple):
    """Parameters of the priors.

    Attributes:
        smoothing_j: (J,) nu of the shares.
        mean_jl: (J, L) lambda, the prior mean of every alpha.
        easy_jl: (J, L) E, the chances of answers to easy items.
        hard: h, the probability that an item is hard, in (0, 1].
    """

    smoothing_j: Floats
    mean_jl: Floats
    easy_jl: Floats
    hard: float


class State(NamedTuple):
    """State of a chain, written in place.

    Attributes:
        truth_n, is_hard_n: (N,) drawn t and s.
        alpha_klj, alpha_kj: (K, L, J) alpha, and its sums over answers.
        counts_klj, counts_kj: (K, L, J) labels of hard items by drawn class, and their sums over answers.
        items_j, easy_j: (J,) number of items, and of easy items, by drawn class.
        q_nj, hard_n: (N, J), (N,) conditional probabilities from which t and s were last drawn.
    """

    truth_n: Ints
    is_hard_n: npt.NDArray[np.bool_]
    alpha_klj: Floats
    alpha_kj: Floats
    counts_klj: Floats
    counts_kj: Floats
    items_j: Floats
    easy_j: Floats
    q_nj: Floats
    hard_n: Floats


class Sums(NamedTuple):
    """Sums over the kept draws, and monitored draws.

    Attributes:
        q_nj, hard_n: (N, J), (N,) sums of conditional probabilities.
        mean_kjl, square_kjl: (K, J, L) sums of the means of the chances of answers, and of their squares.
        accuracy_ad, share_jd, hard_d: draws of accuracies, class shares, and the fraction of hard items.
        trace_r: log joint of every round, with burn-in.
    """

    q_nj: Floats
    hard_n: Floats
    mean_kjl: Floats
    square_kjl: Floats
    accuracy_ad: Floats
    share_jd: Floats
    hard_d: Floats
    trace_r: Floats


@compiled
def run_chain(
    rng: Any, table: Any, prior: Any, start_nj: Any, weight_ak: Any, burn_in: int, draws: int, thin: int
) -> Any:
    """Run `burn_in` and then `draws` rounds of `thin` sweeps. Return the sums over the latter.

    `start_nj` (N, J): first beliefs. `weight_ak` (A, K): weights of the annotators in each monitored accuracy.
    """
    (n_items, n_classes), (accuracies, n_annotators) = start_nj.shape, weight_ak.shape
    cells, rows = (n_annotators, prior.mean_jl.shape[1], n_classes), (n_annotators, n_classes)
    truth_n, is_hard_n = np.zeros(n_items, np.int32), np.ones(n_items, np.bool_)
    items_j, easy_j, q_nj, hard_n = (
        np.zeros(n_classes),
        np.zeros(n_classes),
        np.zeros((n_items, n_classes)),
        np.ones(n_items),
    )
    state = State(
        truth_n,
        is_hard_n,
        np.ones(cells),
        np.zeros(rows),
        np.zeros(cells),
        np.zeros(rows),
        items_j,
        easy_j,
        q_nj,
        hard_n,
    )
    matrices = (n_annotators, n_classes, prior.mean_jl.shape[1])
    sums = Sums(
        np.zeros((n_items, n_classes)),
        np.zeros(n_items),
        np.zeros(matrices),
        np.zeros(matrices),
        np.zeros((accuracies, draws)),
        np.zeros((n_classes, draws)),
        np.zeros(draws),
        np.zeros(burn_in + draws),
    )
    disperse(rng, table, prior, start_nj, state)
    for round_ in range(burn_in + draws):
        draw_alphas(rng, prior, state)
        for _ in range(thin):
            draw_truths(rng, table, prior, state)
        sums.trace_r[round_] = log_joint(table, prior, state)
        if round_ >= burn_in:
            keep(table, prior, state, weight_ak, sums, round_ - burn_in)
    return sums


@compiled
def disperse(rng: Any, table: Any, prior: Any, start_nj: Any, state: Any) -> None:
    """Draw the start of a chain: truths from `start_nj`, difficulty and alpha from the prior."""
    n_annotators, n_options, n_classes = state.alpha_klj.shape
    for n in table.informative:
        known = table.known_n[n]
        state.truth_n[n] = known if known >= 0 else draw_index(rng, start_nj[n], 1.0)
        state.is_hard_n[n] = rng.random() < prior.hard
        state.q_nj[n, state.truth_n[n]] = 1.0
    for k in range(n_annotators):
        for option in range(n_options):
            for j in range(n_classes):
                state.alpha_klj[k, option, j] = draw_exponential(rng, prior.mean_jl[j, option])
    count(table, state)


@compiled
def count(table: Any, state: Any) -> None:
    """Count labels and items by the drawn truths, labels of hard items only, and add up the alphas."""
    state.counts_klj[:] = 0.0
    state.counts_kj[:] = 0.0
    state.items_j[:] = 0.0
    state.easy_j[:] = 0.0
    for n in table.informative:
        j, first, last = state.truth_n[n], table.item_start[n], table.item_start[n + 1]
        state.items_j[j] += 1.0
        if state.is_hard_n[n]:
            count_labels(first, last, table.annotator, table.label, j, 1.0, state.counts_klj, state.counts_kj)
        else:
            state.easy_j[j] += 1.0
    for k in range(state.alpha_kj.shape[0]):
        for j in range(state.alpha_kj.shape[1]):
            state.alpha_kj[k, j] = state.alpha_klj[k, :, j].sum()


@inlined
def count_labels(first: int, last: int, annotator: Any, label: Any, j: int, by: float, counts: Any, total: Any) -> None:
    """Add the labels of an item of class j to the counts `by` times; -1 removes them."""
    for row in range(first, last):
        counts[annotator[row], label[row], j] += by
        total[annotator[row], j] += by


# -- truths ----------------------------------------------------------------------------------------------------


@compiled
def draw_truths(rng: Any, table: Any, prior: Any, state: Any) -> None:
    """Draw (t, s) of every item to learn from given all others, unless both are known."""
    # Loops over plain arrays are six times as fast as compiled functions that receive the tuples.
    item_start, annotator, label, known_n, informative, repeated_n = table
    smoothing_j, _, easy_jl, hard = prior
    truth_n, is_hard_n, alpha_klj, alpha_kj, counts_klj, counts_kj, items_j, easy_j, q_nj, hard_n = state
    n_classes = q_nj.shape[1]
    weight = np.empty(2 * n_classes)  # of (j, hard), then of (j, easy)
    for n in informative:
        known, first, last = known_n[n], item_start[n], item_start[n + 1]
        if known >= 0 and hard == 1.0:
            continue
        items_j[truth_n[n]] -= 1.0
        if is_hard_n[n]:
            count_labels(first, last, annotator, label, truth_n[n], -1.0, counts_klj, counts_kj)
        else:
            easy_j[truth_n[n]] -= 1.0

        for j in range(n_classes):
            share = smoothing_j[j] + items_j[j] if known < 0 or known == j else 0.0
            weight[j] = share * hard
            weight[n_classes + j] = share * (1.0 - hard)
        for row in range(first, last):
            k, option = annotator[row], label[row]
            alpha, alpha_sum = alpha_klj[k, option], alpha_kj[k]
            counts, counts_sum = counts_klj[k, option], counts_kj[k]
            for j in range(n_classes):
                weight[j] *= max((alpha[j] + counts[j]) / (alpha_sum[j] + counts_sum[j]), SMALLEST)
            if hard < 1.0:
                for j in range(n_classes):
                    weight[n_classes + j] *= easy_jl[j, option]
            if repeated_n[n]:  # each answer of the pool makes the same answer more probable
                for j in range(n_classes):
                    counts[j] += 1.0
                    counts_sum[j] += 1.0
            if (row - first) % 16 == 15:  # products of many chances would underflow
                weight /= weight.max()
        if repeated_n[n]:
            for j in range(n_classes):
                count_labels(first, last, annotator, label, j, -1.0, counts_klj, counts_kj)

        total, total_hard = 0.0, 0.0
        for j in range(n_classes):
            total += weight[j] + weight[n_classes + j]
            total_hard += weight[j]
        for j in range(n_classes):
            q_nj[n, j] = (weight[j] + weight[n_classes + j]) / total
        hard_n[n] = total_hard / total
        drawn = draw_index(rng, weight, total)
        truth_n[n], is_hard_n[n] = drawn % n_classes, drawn < n_classes
        items_j[truth_n[n]] += 1.0
        if is_hard_n[n]:
            count_labels(first, last, annotator, label, truth_n[n], 1.0, counts_klj, counts_kj)
        else:
            easy_j[truth_n[n]] += 1.0


@inlined
def draw_index(rng: Any, weight: Any, total: float) -> int:
    """Draw an index in proportion to weights, which sum to `total`; never one of weight 0."""
    left = rng.random() * total
    last = 0
    for index in range(weight.shape[0]):
        if weight[index] > 0.0:
            left -= weight[index]
            last = index
            if left < 0.0:
                break
    return last


# -- alpha -----------------------------------------------------------------------------------------------------


@compiled
def draw_alphas(rng: Any, prior: Any, state: Any) -> None:
    """Draw the alphas of all rows once, given the counts."""
    for k in range(state.alpha_kj.shape[0]):
        for j in range(state.alpha_kj.shape[1]):
            alpha, total = state.alpha_klj[k, :, j], state.counts_kj[k, j]
            for option in range(alpha.shape[0]):
                mean = prior.mean_jl[j, option]
                if total == 0.0:
                    alpha[option] = draw_exponential(rng, mean)
                else:
                    rest, count = alpha.sum() - alpha[option], state.counts_klj[k, option, j]
                    alpha[option] = np.exp(slice_log_alpha(rng, np.log(alpha[option]), rest, count, total, mean))
            state.alpha_kj[k, j] = alpha.sum()


@compiled
def draw_exponential(rng: Any, mean: float) -> float:
    """Draw from the prior of an alpha, within the range of `slice_log_alpha`."""
    return float(mean * min(max(rng.standard_exponential(), np.exp(LOWEST)), np.exp(HIGHEST)))


@compiled
def log_alpha_density(u: float, rest: float, count: float, total: float, mean: float) -> float:
    """Return the log conditional density of u = log alpha up to a constant; rest = A - alpha, total = C_kj."""
    alpha = np.exp(u)
    return float(log_rising(alpha, count) - log_rising(alpha + rest, total) - alpha / mean + u)


@compiled
def log_rising(start: float, steps: float) -> float:
    """Return the log of start (start + 1) ... (start + steps - 1) = G(start + steps) / G(start), `steps` whole."""
    if steps > 20.0:
        return math.lgamma(start + steps) - math.lgamma(start)
    product = 1.0
    for step in range(int(steps)):
        product *= start + step
    return math.log(product)


@compiled
def slice_log_alpha(rng: Any, u: float, rest: float, count: float, total: float, mean: float) -> float:
    """Take a slice-sampling step (Neal 2003): shrink the whole range until a draw is in the slice."""
    level = log_alpha_density(u, rest, count, total, mean) - rng.standard_exponential()
    low, high = math.log(mean) + LOWEST, math.log(mean) + HIGHEST
    while True:
        proposed = low + (high - low) * rng.random()
        if log_alpha_density(proposed, rest, count, total, mean) > level:
            return float(proposed)
        if proposed < u:
            low = proposed
        else:
            high = proposed


# -- kept draws ------------------------------------------------------------------------------------------------


@compiled
def log_joint(table: Any, prior: Any, state: Any) -> float:
    """Return log p(labels, t, s | alpha), pi and p summed out."""
    n_annotators, n_options, n_classes = state.alpha_klj.shape
    value = -log_rising(prior.smoothing_j.sum(), state.items_j.sum())
    for j in range(n_classes):
        value += log_rising(prior.smoothing_j[j], state.items_j[j])
    for k in range(n_annotators):
        for j in range(n_classes):
            value -= log_rising(state.alpha_kj[k, j], state.counts_kj[k, j])
            for option in range(n_options):
                value += log_rising(state.alpha_klj[k, option, j], state.counts_klj[k, option, j])
    if prior.hard < 1.0:
        value += table.informative.shape[0] * np.log(prior.hard)
        for n in table.informative:
            if not state.is_hard_n[n]:
                value += np.log1p(-prior.hard) - np.log(prior.hard)
                for row in range(table.item_start[n], table.item_start[n + 1]):
                    value += np.log(prior.easy_jl[state.truth_n[n], table.label[row]])
    return float(value)


@compiled
def keep(table: Any, prior: Any, state: Any, weight_ak: Any, sums: Any, kept: int) -> None:
    """Add conditional probabilities, and E x and E x^2 given alpha and counts, for the chances of answers x.

    x = easy E + (1 - easy) pi are the chances over all items, easy and hard.
    """
    rows = table.informative
    sums.hard_n[:] += state.hard_n
    sums.q_nj[:] += state.q_nj
    sums.hard_d[kept] = state.hard_n[rows].sum() / max(1, rows.shape[0])
    n_annotators, n_options, n_classes = state.alpha_klj.shape
    sums.accuracy_ad[:, kept] = 0.0
    for j in range(n_classes):
        share = (prior.smoothing_j[j] + state.items_j[j]) / (prior.smoothing_j.sum() + state.items_j.sum())
        easy = (state.easy_j[j] + 1.0 - prior.hard) / (state.items_j[j] + 1.0)
        sums.share_jd[j, kept] = share
        for k in range(n_annotators):
            total = state.alpha_kj[k, j] + state.counts_kj[k, j]
            for option in range(n_options):
                mean = (state.alpha_klj[k, option, j] + state.counts_klj[k, option, j]) / total
                variance = (1.0 - easy) ** 2 * mean * (1.0 - mean) / (total + 1.0)
                mixed = easy * prior.easy_jl[j, option] + (1.0 - easy) * mean
                sums.mean_kjl[k, j, option] += mixed
                sums.square_kjl[k, j, option] += variance + mixed**2
                if option == j:
                    for a in range(weight_ak.shape[0]):
                        sums.accuracy_ad[a, kept] += share * weight_ak[a, k] * mixed
