"""Estimate which clusters of marks are spans, from how many spans each annotator misses and invents.

    N_dj ~ Poisson(rho_j n_d)        parts of item d, whose size is n_d: its spans of class j, and places that are no
                                     span but get marked (j = 0)
    p(k marks a part) = s_kj         1 - s_kj: annotator k misses a span of class j; s_k0: k marks such a place
    p(label l | class h) = pi_k[h, l] for a mark of a span, nu[l] for a mark of such a place

A part that no annotator marked leaves no cluster. It still counts, as an expected number:

    m_dj   = prod_k (1 - s_kj)       over the annotators of item d; 0 for spans of an item whose spans are known
    rho_j  = sum_c q_cj / sum_d n_d (1 - m_dj)
    s_kj   = (sum_c q_cj [k marked c] + T t_kj) / (sum_c q_cj + sum_d rho_j n_d m_dj + T)     over the items of k
    q_cj   ∝ rho_j prod_k (s_kj or 1 - s_kj) prod over marks (pi_k[h, l] or nu[l]),  normalized for each cluster

t_kj is s_j, the mean of all annotators. For spans its odds are multiplied by the odds that k marks spans of the other
classes, relative to what is usual there. T = `STRENGTH`. Each class has misses of its own: otherwise a class that is
missed more often than others is taken for inventions. In rho_j, each class has a span more; then the classes are scaled
to the sum without it. The rows of pi_k are shrunk in the same way, to the crowd's rows with f_k times the confusions,

    f_k    = (confusions of k + T e) / (confusions expected by the crowd's rows + T e)      e: their share in the crowd

A method for items sees only parts with a mark. So it overestimates how often annotators invent, and a mark by
a single annotator counts for too little. If annotators invent independently of each other, s_k0 becomes small, and the
inventions of an annotator in an item follow a Poisson distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_softmax, logit, logsumexp

from hitl.annotations import Floats
from hitl.design_effect import SMALLEST, DesignEffect
from hitl.kinds.matching import Flags, Indices, Matched

STRENGTH = 16.0
"""Number of pseudo-observations with the mean of the crowd that are added to each annotator's rates and rows."""

MARKED = (0.1, 0.7)
"""Initial s_k0 and s_k1."""

UNSURE = 0.1
"""Initial probabilities of a span, the shares of annotators who marked it, are between this and 1 - UNSURE."""

CLOSEST = 1e-4
"""Smallest distance of s_kj from 0 and 1."""

SWEEPS, TOLERANCE = 100, 1e-3
"""EM ends when no probability of a cluster changes by more than this."""


@dataclass(frozen=True, eq=False)
class LatentSpans:
    """Parts of N items: C clusters of marks, by K annotators, with H classes.

    Attributes:
        q_cj: (C, 1 + H) probability of no span, and of each class.
        marks_kj: (K, 1 + H) s_kj.
        rate_j: (1 + H,) rho_j.
        label_khl: (K, H, H) pi_k.
        invented_l: (H,) nu.
    """

    q_cj: Floats
    marks_kj: Floats
    rate_j: Floats
    label_khl: Floats
    invented_l: Floats

    @property
    def misses_k(self) -> Floats:
        """(K,) share of all spans that each annotator misses."""
        misses_k: Floats = (1 - self.marks_kj[:, 1:]) @ (self.rate_j[1:] / max(self.rate_j[1:].sum(), SMALLEST))
        return misses_k

    def tempered(self, effect: DesignEffect, labels_c: Indices, known: Flags) -> Floats:
        """Return (C, 1 + H) probabilities with (C,) answers worth as many fewer as the effect says.

        First whether there is a span is tempered, then its class, so that doubt about the class is no doubt about the
        span. (C,) `known` clusters stay certain.
        """
        factor_c = effect.temperature(labels_c, np.zeros(len(labels_c), bool))[:, None]
        log_cj = np.log(np.maximum(self.q_cj, SMALLEST)) / factor_c
        is_span_c = np.log(np.maximum(self.q_cj[:, 1:].sum(axis=1, keepdims=True), SMALLEST)) / factor_c
        log_cj[:, 1:] = is_span_c + log_softmax(log_cj[:, 1:], axis=1)
        return np.where(known[:, None], self.q_cj, np.exp(log_softmax(log_cj, axis=1)))


def learn_spans(matched: Matched, size_n: Floats, tolerance: float = TOLERANCE, sweeps: int = SWEEPS) -> LatentSpans:
    """Learn the errors of annotators and the spans together, by EM.

    There is at least one cluster. `size_n` (N,): sizes of the items.
    """
    answers, votes = matched.answers, matched.votes.annotations
    n_annotators, n_classes = votes.n_annotators, len(matched.classes)
    item_a, annotator_a = answers.answer_a2.T
    cluster_v, annotator_v = votes.item.astype(np.int64), votes.annotator.astype(np.int64)
    is_mark_v = votes.label > 0
    cluster_m, annotator_m = cluster_v[is_mark_v], annotator_v[is_mark_v]
    label_m = votes.label[is_mark_v].astype(np.int64) - 1
    n_clusters = votes.n_items
    assert matched.votes.truth is not None
    truth_c = matched.votes.truth
    known = np.flatnonzero(truth_c >= 0)

    def by_cluster(value_v: Floats, cluster: Indices = cluster_v) -> Floats:
        return np.bincount(cluster, weights=value_v, minlength=n_clusters).astype(np.float64)

    def by_annotator(value: Floats, annotator: Indices) -> Floats:
        return np.bincount(annotator, weights=value, minlength=n_annotators).astype(np.float64)

    def certain(q_cj: Floats) -> Floats:
        q_cj[known] = np.eye(1 + n_classes)[truth_c[known]]
        return q_cj

    def unseen(marks_k: Floats, in_known: bool) -> Floats:
        """Return (N,) m_dj."""
        log_n = np.bincount(item_a, weights=np.log1p(-marks_k)[annotator_a], minlength=len(size_n))
        m_n: Floats = np.exp(log_n)
        return m_n if in_known else np.where(answers.known_n, 0.0, m_n)

    def learn(q_cj: Floats, marks_kj: Floats) -> LatentSpans:
        marked, every, rates = [], [], []
        spans = float(q_cj[:, 1:].sum())
        for j, q_c in enumerate(q_cj.T):
            m_n = unseen(marks_kj[:, j], in_known=j == 0)
            number = spans * (q_c.sum() + 1) / (spans + n_classes) if j else q_c.sum()
            rates.append(number / max(float((size_n * (1 - m_n)).sum()), SMALLEST))
            marked.append(by_annotator(q_c[cluster_m], annotator_m))
            unseen_k = by_annotator((rates[j] * size_n * m_n)[item_a], annotator_a)
            every.append(by_annotator(q_c[cluster_v], annotator_v) + unseen_k)
        marked_kj, all_kj = np.column_stack(marked), np.column_stack(every)
        share_kj = (marked_kj + STRENGTH * _prior_shares(marked_kj, all_kj)) / (all_kj + STRENGTH)
        cell_m, n_cells = annotator_m * n_classes + label_m, n_annotators * n_classes
        counts = [np.bincount(cell_m, weights=q_cj[cluster_m, 1 + h], minlength=n_cells) for h in range(n_classes)]
        count_khl: Floats = (
            np.stack(counts).astype(np.float64).reshape(n_classes, n_annotators, n_classes).swapaxes(0, 1)
        )
        crowd_hl = count_khl.sum(axis=0) + np.eye(n_classes) + 1 / n_classes
        label_khl = count_khl + STRENGTH * _prior_rows(crowd_hl / crowd_hl.sum(axis=1, keepdims=True), count_khl)
        label_khl /= label_khl.sum(axis=2, keepdims=True)
        invented_l = np.bincount(label_m, weights=q_cj[cluster_m, 0], minlength=n_classes) + 1
        return LatentSpans(
            q_cj,
            np.clip(share_kj, CLOSEST, 1 - CLOSEST),
            np.array(rates),
            label_khl,
            invented_l / invented_l.sum(),
        )

    def judge(learned: LatentSpans) -> Floats:
        log_cj = np.tile(np.log(np.maximum(learned.rate_j, SMALLEST)), (n_clusters, 1))
        log_vj = np.where(
            is_mark_v[:, None], np.log(learned.marks_kj)[annotator_v], np.log1p(-learned.marks_kj)[annotator_v]
        )
        label_khl = np.log(learned.label_khl)
        for j in range(1 + n_classes):
            said_m = label_khl[annotator_m, j - 1, label_m] if j else np.log(learned.invented_l)[label_m]
            log_cj[:, j] += by_cluster(log_vj[:, j]) + by_cluster(said_m, cluster_m)
        return certain(np.exp(log_cj - logsumexp(log_cj, axis=1, keepdims=True)))

    count_cl = np.stack([by_cluster((label_m == label).astype(float), cluster_m) for label in range(n_classes)], axis=1)
    share_c = count_cl.sum(axis=1) / np.maximum(by_cluster(np.ones(len(cluster_v))), 1)
    share_c = np.clip(share_c, UNSURE, 1 - UNSURE)[:, None]
    class_ch = (count_cl + 0.5) / (count_cl + 0.5).sum(axis=1, keepdims=True)
    q_cj = certain(np.column_stack((1 - share_c, share_c * class_ch)))
    learned = learn(q_cj, np.tile(MARKED[:1] + MARKED[1:] * n_classes, (n_annotators, 1)))
    for _ in range(sweeps):
        before, q_cj = q_cj, judge(learned)
        learned = learn(q_cj, learned.marks_kj)
        if np.abs(q_cj - before).max(initial=0) <= tolerance:
            break
    return learned


def _prior_shares(marked_kj: Floats, all_kj: Floats) -> Floats:
    """Return (K, 1 + H) t_kj from expected numbers of parts (K, 1 + H): those that k marked, and all in k's items."""
    mean_j = (marked_kj.sum(axis=0) + 0.5) / (all_kj.sum(axis=0) + 1)
    marked_kh, all_kh, mean_h = marked_kj[:, 1:], all_kj[:, 1:], mean_j[1:]
    begun = STRENGTH * (marked_kh.sum() + 0.5) / (all_kh.sum() + 1)
    own_kh, usual_kh, seen_kh = (
        few + value_kh.sum(axis=1, keepdims=True) - value_kh
        for few, value_kh in ((begun, marked_kh), (begun, all_kh * mean_h), (STRENGTH, all_kh))
    )
    prior_kh = expit(logit(mean_h) + logit(own_kh / seen_kh) - logit(usual_kh / seen_kh))
    return np.column_stack((np.full(len(prior_kh), mean_j[0]), prior_kh))


def _prior_rows(crowd_hl: Floats, count_khl: Floats) -> Floats:
    """Return (K, H, H) the crowd's rows with confusions f_k times as frequent, but no row worse than guessing."""
    confused_hl = crowd_hl * (1 - np.eye(len(crowd_hl)))
    errors_k = count_khl.sum(axis=(1, 2)) - np.einsum("khh->k", count_khl)
    expected_k = count_khl.sum(axis=2) @ confused_hl.sum(axis=1)
    usual = STRENGTH * expected_k.sum() / max(float(count_khl.sum()), SMALLEST)
    factor_k = (errors_k + usual + SMALLEST) / (expected_k + usual + SMALLEST)  # 1 if no mark can tell
    most = (1 - 1 / len(crowd_hl)) / max(float(confused_hl.sum(axis=1).max()), SMALLEST)
    rows_khl = np.minimum(factor_k, most)[:, None, None] * confused_hl
    prior_khl: Floats = rows_khl + np.eye(len(crowd_hl)) * (1 - rows_khl.sum(axis=2))[:, :, None]
    return prior_khl
