"""Markov networks of annotators in plain loops and by enumeration, and the exact posterior of DBCC and EDBCC by
weighing draws from the prior. Nothing shares code with the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import logsumexp

from hitl.evidence import Evidence
from tests.oracles import Floats

Answer = tuple[int, ...]
Pair = tuple[int, int]


def all_pairs(size: int) -> list[Pair]:
    """Pairs first < second, ordered by second."""
    return [(a, b) for b in range(size) for a in range(b)]


def energy(v_sl: Floats, w_p: Floats, pairs: list[Pair], answer: Answer) -> float:
    """sum_i V[i, c_i] + sum_{a<b} W[a, b] [c_a = c_b] (eq. 21)."""
    own = sum(float(v_sl[i, c]) for i, c in enumerate(answer))
    return own + sum(float(w) for w, (a, b) in zip(w_p, pairs, strict=True) if answer[a] == answer[b])


def answers(size: int, n_options: int) -> list[Answer]:
    """All answers; the first annotator's changes fastest."""
    return [tuple(reversed(row)) for row in product(range(n_options), repeat=size)]


def log_table(v_sl: Floats, w_p: Floats, pairs: list[Pair]) -> tuple[Floats, float]:
    """Log probability of every answer, and log Z."""
    raw = np.array([energy(v_sl, w_p, pairs, answer) for answer in answers(*v_sl.shape)])
    log_z = float(np.logaddexp.reduce(raw))
    return raw - log_z, log_z


def log_posterior(
    v_jsl: Floats, w_p: Floats, pairs: list[Pair], counts_jt: Floats, mean_jsl: Floats, sd_v: float, sd_w: float
) -> float:
    """log p(answers | V, W) + log p(V, W), up to a constant, from counts of complete answers by class."""
    value = -0.5 * float((((v_jsl - mean_jsl) / sd_v) ** 2).sum()) - 0.5 * float(((w_p / sd_w) ** 2).sum())
    for v_sl, counts_t in zip(v_jsl, counts_jt, strict=True):
        value += float(counts_t @ log_table(v_sl, w_p, pairs)[0])
    return value


@dataclass
class Drawn:
    """D draws from the prior, and for each the tables (D, J, L^S) of every network and of the easy items (D, J, L)."""

    share_dj: Floats
    coupling_dp: list[Floats]
    tables: list[Floats]
    easy_djl: Floats


def draw_prior(
    rng: np.random.Generator,
    draws: int,
    groups: list[list[int]],
    pairs: list[list[Pair]],
    n_options: int,
    mean_jl: Floats,
    easy_mean_jl: Floats,
    sd: tuple[float, float, float],
    smoothing: float,
) -> Drawn:
    """Parameters from their priors; `sd` of V, W and U."""
    n_classes = len(mean_jl)
    couplings, tables = [], []
    for group, pairs_of in zip(groups, pairs, strict=True):
        v = mean_jl[:, None] + sd[0] * rng.normal(size=(draws, n_classes, len(group), n_options))
        w = sd[1] * rng.normal(size=(draws, len(pairs_of)))
        raw = np.zeros((draws, n_classes, n_options ** len(group)))
        for cell, answer in enumerate(answers(len(group), n_options)):
            for i, c in enumerate(answer):
                raw[:, :, cell] += v[:, :, i, c]
            for p, (a, b) in enumerate(pairs_of):
                if answer[a] == answer[b]:
                    raw[:, :, cell] += w[:, p, None]
        couplings.append(w)
        tables.append(softmax(raw))
    u = easy_mean_jl + sd[2] * rng.normal(size=(draws, *easy_mean_jl.shape))
    return Drawn(rng.dirichlet(np.full(n_classes, smoothing), size=draws), couplings, tables, softmax(u))


def softmax(raw: Floats) -> Floats:
    weight = np.exp(raw - raw.max(axis=-1, keepdims=True))
    out: Floats = weight / weight.sum(axis=-1, keepdims=True)
    return out


def item_likelihood(evidence: Evidence, n: int, groups: list[list[int]], drawn: Drawn) -> tuple[Floats, Floats]:
    """(D, J) chance of the labels of item n if it is hard, and if it is easy; who is silent is summed out."""
    a = evidence.annotations
    hard, easy = np.ones_like(drawn.share_dj), np.ones_like(drawn.share_dj)
    said = [(int(k), int(l)) for m, k, l in zip(a.item, a.annotator, a.label, strict=True) if m == n]  # noqa: E741
    for _, label in said:
        easy = easy * drawn.easy_djl[:, :, label]
    for group, table in zip(groups, drawn.tables, strict=True):
        mine = [(group.index(k), label) for k, label in said if k in group]
        if len(group) == 1:  # the pool may say several things
            for _, label in mine:
                hard = hard * table[:, :, label]
        elif mine:
            agree = [all(answer[i] == label for i, label in mine) for answer in answers(len(group), a.n_options)]
            hard = hard * table[:, :, agree].sum(axis=2)
    return hard, easy


@dataclass
class Exact:
    """Posterior expectations."""

    q_nj: Floats
    hard_n: Floats
    share_j: Floats
    mean_kjl: Floats
    square_kjl: Floats
    correlation_kk: Floats
    coupling: list[Floats]
    effective: float


def weighed_prior(
    rng: np.random.Generator, evidence: Evidence, groups: list[list[int]], drawn: Drawn, hard: float
) -> Exact:
    """Expectations under weights p(labels, known truths | draw); (t, s) are drawn once for each draw."""
    a = evidence.annotations
    draws, n_classes = drawn.share_dj.shape
    log_weight = np.zeros(draws)
    q_dnj, hard_dn = np.zeros((draws, a.n_items, n_classes)), np.zeros((draws, a.n_items))
    count_dsj = np.zeros((draws, 2, n_classes))
    for n, known in enumerate(evidence.truth):
        like_hard, like_easy = item_likelihood(evidence, n, groups, drawn)
        joint = np.stack((hard * like_hard, (1 - hard) * like_easy), axis=1) * drawn.share_dj[:, None]
        if known >= 0:
            joint[:, :, np.arange(n_classes) != known] = 0
        total = joint.sum(axis=(1, 2))
        log_weight += np.log(total)
        joint /= total[:, None, None]
        q_dnj[:, n], hard_dn[:, n] = joint.sum(axis=1), joint[:, 0].sum(axis=1)
        if a.labels_per_item[n] or known >= 0:
            flat = joint.reshape(draws, -1)
            cell = np.minimum((rng.random((draws, 1)) > flat.cumsum(axis=1)).sum(axis=1), 2 * n_classes - 1)
            count_dsj[np.arange(draws), cell // n_classes, cell % n_classes] += 1
    weight = np.exp(log_weight - logsumexp(log_weight))
    part_dj = (count_dsj[:, 0] + hard) / (count_dsj.sum(axis=1) + 1)
    pi = mixed_confusions(groups, a.n_options, drawn, part_dj)
    return Exact(
        np.einsum("d,dnj->nj", weight, q_dnj),
        weight @ hard_dn,
        weight @ drawn.share_dj,
        np.einsum("d,dkjl->kjl", weight, pi),
        np.einsum("d,dkjl->kjl", weight, pi**2),
        right_correlation(weight, groups, a.n_options, drawn, part_dj, pi),
        [weight @ coupling for coupling in drawn.coupling_dp],
        float(1 / (weight**2).sum()),
    )


def mixed_confusions(groups: list[list[int]], n_options: int, drawn: Drawn, part_dj: Floats) -> Floats:
    """(D, K, J, L) what each annotator says on all items, hard and easy."""
    n_people = sum(len(group) for group in groups)
    pi = np.zeros((*part_dj.shape[:1], n_people, *drawn.easy_djl.shape[1:]))
    for group, table in zip(groups, drawn.tables, strict=True):
        for cell, answer in enumerate(answers(len(group), n_options)):
            for i, c in enumerate(answer):
                pi[:, group[i], :, c] += table[:, :, cell]
    return part_dj[:, None, :, None] * pi + (1 - part_dj)[:, None, :, None] * drawn.easy_djl[:, None]


def right_correlation(
    weight: Floats, groups: list[list[int]], n_options: int, drawn: Drawn, part_dj: Floats, pi: Floats
) -> Floats:
    """(K, K) pooled over classes: mean covariance of right answers over the root of the product of mean variances."""
    draws, n_people, n_classes, _ = pi.shape
    both = np.zeros((draws, n_people, n_people, n_classes))
    hard_right = np.zeros((draws, n_people, n_classes))
    home = {k: g for g, group in enumerate(groups) for k in group}
    for group, table in zip(groups, drawn.tables, strict=True):
        for cell, answer in enumerate(answers(len(group), n_options)):
            for j in range(n_classes):
                right = [k for k, c in zip(group, answer, strict=True) if c == j]
                hard_right[:, right, j] += table[:, j, cell, None]
                for k, other in product(right, right):
                    both[:, k, other, j] += table[:, j, cell]
    for k, other in product(range(n_people), repeat=2):
        if home[k] != home[other]:
            both[:, k, other] = hard_right[:, k] * hard_right[:, other]
    easy = drawn.easy_djl[:, np.arange(n_classes), np.arange(n_classes)]
    right = pi[:, :, np.arange(n_classes), np.arange(n_classes)]
    joint = part_dj[:, None, None] * both + ((1 - part_dj) * easy**2)[:, None, None]
    covariance = np.einsum("d,dj,dabj->ab", weight, drawn.share_dj, joint - right[:, :, None] * right[:, None])
    variance = np.einsum("d,dj,daj->a", weight, drawn.share_dj, right * (1 - right))
    out: Floats = covariance / np.sqrt(np.outer(variance, variance))
    np.fill_diagonal(out, 1)
    return out
