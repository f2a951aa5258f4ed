"""Estimate where a span begins and ends from the borders that annotators marked.

In a text, in tokens:

    p(x | b) = a_k                                          x = b: annotator k marks the right border
             = (1 - a_k) e_k (1 - r) r^(b - x - 1)          x is before b
             = (1 - a_k) (1 - e_k) (1 - r) r^(x - b - 1)    x is after b

x is the marked border, b the true one. b is any of the marked borders, or a place up to `NEAR` tokens from one, with
equal prior probability. a_k, e_k and r are learned by EM. a_k is shrunk towards the mean of all annotators by
`STRENGTH` pseudo-borders with this mean. e_k is shrunk in the same way, by that number out of `STRENGTHS` which makes
the misplaced borders most probable. So annotators get sides of their own only if their errors differ in direction.
Starts and ends have separate parameters. Spans are weighted by the probability that they exist. Majority vote is the
special case in which all a_k are equal, e_k is one half, and r is 1. If r is small, the median wins.

In a recording, in time:

    p(x_m | b) = exp(-|x_m - b| / (s_k l)) / (2 s_k l)     member m of annotator k, any place b, l: the span's length
    s_k        = (sum_m w_c E|x_m - b| / l + T s) / (sum_m w_c + T)     over both borders of k's members
    s          = the same mean over all annotators; w_c = probability of the span; T = `TIME_STRENGTH`

s_k is learned by EM, with the posterior of b on `PLACES` places around the members. The consensus is the most probable
b: the weighted lower median of the members' borders, with weights 1 / s_k. So each border is one that an annotator set,
and a start lies before its end. s_k uses expected distances, because distances from the median would favor the
annotators who set it.

In both models, known borders are certain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from hitl.annotations import Floats
from hitl.kinds.matching import Flags, Indices, Matched, within_groups

NEAR = 3
"""Largest distance, in tokens, of an unmarked true border from a marked one."""

STRENGTH, TIME_STRENGTH = 4.0, 8.0
"""Number of pseudo-borders with the mean of all annotators that are added to each annotator."""

STRENGTHS = 2.0 ** np.arange(1, 13)
"""Candidates for the number of pseudo-borders that are added to the misplaced borders of each annotator."""

SWEEPS, TIME_SWEEPS = 50, 30
TOLERANCE, TIME_TOLERANCE = 1e-4, 1e-3
"""EM ends when the change of each parameter in texts, or the relative change of each s_k, is at most this."""

START = 0.1
"""Initial s_k: a tenth of the length of a span."""

PLACES = 41
"""Number of places for b, from two mean s_k before the first member's border to two mean s_k after the last one's."""

LEAST = 1e-6
"""Smallest s_k."""


@dataclass(frozen=True, eq=False)
class Borders:
    """Posterior of the starts, or of the ends, of C spans of texts.

    Attributes:
        cluster_b, place_b: (B,) span and place, in tokens, of each candidate; sorted.
        probability_b: (B,) probability of each candidate; sums to 1 for each span.
        right_k: (K,) probability that an annotator marks the right border, in (0, 1).
        early_k: (K,) share of an annotator's misplaced borders that are before the right one, in (0, 1).
        decay: r, the decay of probability with distance, in (0, 1).
    """

    cluster_b: Indices
    place_b: Indices
    probability_b: Floats
    right_k: Floats
    early_k: Floats
    decay: float

    def at(self, cluster_e: Indices, place_e: Indices) -> Floats:
        """Return (E,) probability that the border of a span is at a place; 0 if the place is no candidate."""
        far = int(self.place_b.max(initial=0)) + 1
        key_b = self.cluster_b * far + self.place_b
        key_e = cluster_e * far + np.minimum(place_e, far - 1)
        row = np.minimum(np.searchsorted(key_b, key_e), max(len(key_b) - 1, 0))
        return np.where((key_b[row] == key_e) & (place_e < far), self.probability_b[row], 0.0)


def learn_borders(member_m3: Indices, weight_c: Floats, known_c: Indices, n_annotators: int) -> Borders:
    """Learn the parameters of annotators and the borders of texts together, by EM.

    `member_m3` (M, 3): cluster, annotator and place of each marked border, sorted by cluster. `weight_c` (C,):
    probability of each span. `known_c` (C,): known borders, -1 if unknown.
    """
    known = np.flatnonzero(known_c >= 0)
    marked = np.concatenate((member_m3[:, [0, 2]], np.column_stack((known, known_c[known]))))
    near = np.arange(-NEAR, NEAR + 1)
    every = np.column_stack((np.repeat(marked[:, 0], len(near)), (marked[:, 1:] + near).ravel()))
    cluster_b, place_b = np.unique(every[every[:, 1] >= 0], axis=0).T
    # Pair every candidate with every member of its cluster: one row per pair.
    first = np.searchsorted(member_m3[:, 0], cluster_b, "left")
    count = np.searchsorted(member_m3[:, 0], cluster_b, "right") - first
    candidate = np.repeat(np.arange(len(cluster_b)), count)
    member = np.repeat(first, count) + within_groups(count)
    annotator = member_m3[member, 1]
    offset = member_m3[member, 2] - place_b[candidate]
    early, away = offset < 0, np.abs(offset)
    wrong_b = (known_c[cluster_b] >= 0) & (known_c[cluster_b] != place_b)
    begins = np.flatnonzero(np.diff(cluster_b, prepend=-1))

    def posterior(right_k: Floats, early_k: Floats, decay: float) -> Floats:
        side_k2 = np.log1p(-right_k)[:, None] + np.log1p(-decay) + np.log(np.column_stack((1 - early_k, early_k)))
        wrong = side_k2[annotator, early.astype(np.intp)] + (away - 1) * np.log(decay)
        log = np.where(away == 0, np.log(right_k)[annotator], wrong)
        log_b: Floats = np.bincount(candidate, weights=log, minlength=len(wrong_b)).astype(np.float64)
        log_b[wrong_b] = -np.inf
        if not len(begins):
            return log_b
        length = np.diff(np.append(begins, len(log_b)))
        p_b = np.exp(log_b - np.repeat(np.maximum.reduceat(log_b, begins), length))
        normal: Floats = p_b / np.repeat(np.add.reduceat(p_b, begins), length)
        return normal

    def by_annotator(weight: Floats) -> Floats:
        return np.bincount(annotator, weights=weight, minlength=n_annotators).astype(np.float64)

    def learn(p_b: Floats) -> tuple[Floats, Floats, float]:
        """Return a_k, e_k and r. The means over all annotators include one border of each kind."""
        weight = (p_b * weight_c[cluster_b])[candidate]
        wrong = weight * (away > 0)
        right_k = shrink_shares(by_annotator(weight * (away == 0)), by_annotator(weight), STRENGTH)
        early_k = shrink_shares(by_annotator(weight * early), by_annotator(wrong))
        further = float((wrong * (away - 1)).sum())
        return right_k, early_k, (further + 1) / (further + float(wrong.sum()) + 2)

    parameters: tuple[Floats, Floats, float] = np.full(n_annotators, 0.8), np.full(n_annotators, 0.5), 0.5
    for _ in range(SWEEPS):
        before, parameters = np.hstack(parameters), learn(posterior(*parameters))
        if np.abs(np.hstack(parameters) - before).max() < TOLERANCE:
            break
    return Borders(cluster_b, place_b, posterior(*parameters), *parameters)


def shrink_shares(hit_k: Floats, all_k: Floats, strength: float | None = None) -> Floats:
    """Return (K,) shares of hits, shrunk towards their mean by `strength` pseudo-observations.

    By default, by as many of `STRENGTHS` as make the hits most probable if the shares have a beta distribution. The
    mean includes one hit and one other.
    """
    mean = (hit_k.sum() + 1) / (all_k.sum() + 2)
    if strength is None:
        a, b = STRENGTHS[:, None] * mean, STRENGTHS[:, None] * (1 - mean)
        log_p = (betaln(hit_k + a, all_k - hit_k + b) - betaln(a, b)).sum(axis=1)
        strength = float(STRENGTHS[log_p.argmax()])
    shares: Floats = (hit_k + strength * mean) / (all_k + strength)
    return shares


def time_borders(matched: Matched, border_v: Floats, weight_c: Floats, n_annotators: int) -> Indices:
    """Return (C, 2) ranks of start and end of each cluster. `border_v` (V,): times of ranks; `weight_c` (C,): w_c."""
    cluster_m, annotator_m, known_c2 = matched.cluster_m, matched.annotator_m, matched.known_place_cd
    even_c2 = _medians(matched, np.ones(len(cluster_m)))
    length_c = np.diff(border_v[np.where(known_c2 < 0, even_c2, known_c2)], axis=1)[:, 0]
    certain_c2 = np.where(known_c2 < 0, np.nan, border_v[known_c2])
    sides = []
    for side in range(2):
        x_m = border_v[matched.place_md[:, side]]
        middle_c = border_v[even_c2[:, side]]
        sides.append(((x_m - middle_c[cluster_m]) / length_c[cluster_m], (certain_c2[:, side] - middle_c) / length_c))
    counted_m = weight_c[cluster_m]
    borders_k = 2 * np.bincount(annotator_m, weights=counted_m, minlength=n_annotators)
    spread_k = np.full(n_annotators, START)
    for _ in range(TIME_SWEEPS):
        away_m = np.sum([expected_distances(*side, cluster_m, annotator_m, spread_k) for side in sides], axis=0)
        far_k = np.bincount(annotator_m, weights=counted_m * away_m, minlength=n_annotators)
        mean = (far_k.sum() + START) / (borders_k.sum() + 1)
        before, spread_k = spread_k, np.maximum((far_k + TIME_STRENGTH * mean) / (borders_k + TIME_STRENGTH), LEAST)
        if (np.abs(spread_k - before) <= TIME_TOLERANCE * before).all():
            break
    return np.where(known_c2 < 0, _medians(matched, 1 / spread_k[annotator_m]), known_c2)


def expected_distances(
    x_m: Floats, certain_c: Floats, cluster_m: Indices, annotator_m: Indices, spread_k: Floats
) -> Floats:
    """Return (M,) E|x_m - b| of the starts, or of the ends. `certain_c` (C,): known borders, NaN if unknown."""
    n = len(certain_c)
    low_c, high_c = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low_c, cluster_m, x_m)
    np.maximum.at(high_c, cluster_m, x_m)
    without: Flags = ~np.isfinite(low_c)
    low_c[without] = high_c[without] = 0.0
    around = 2 * float(spread_k.sum()) / max(len(spread_k), 1)
    b_cg = np.linspace(low_c - around, high_c + around, PLACES, axis=1)
    b_cg = np.where(np.isnan(certain_c), b_cg.T, certain_c).T
    away_mg = np.abs(x_m[:, None] - b_cg[cluster_m])
    log_cg = np.zeros_like(b_cg)
    np.add.at(log_cg, cluster_m, -away_mg / spread_k[annotator_m][:, None])
    p_cg = np.exp(log_cg - log_cg.max(axis=1, keepdims=True))
    p_cg /= p_cg.sum(axis=1, keepdims=True)
    expected: Floats = np.einsum("mg,mg->m", p_cg[cluster_m], away_mg)
    return expected


def _medians(matched: Matched, weight_m: Floats) -> Indices:
    """Return (C, 2) weighted lower medians of starts and ends; -1 for a cluster without a member."""
    cluster_m, n_clusters = matched.cluster_m, len(matched)
    median_c2 = np.full((n_clusters, 2), -1, np.int64)
    whole_c = np.bincount(cluster_m, weights=weight_m, minlength=n_clusters)
    for side in range(2):
        rank_m = matched.place_md[:, side]
        order = np.lexsort((rank_m, cluster_m))
        cluster = cluster_m[order]
        share = np.cumsum(weight_m[order] / whole_c[cluster])  # each cluster adds 1, so rounding loses no small one
        before = np.unique(cluster, return_inverse=True)[1].ravel() if len(cluster) else 0
        reached = share - before >= 0.5 - 1e-9
        there, first = np.unique(cluster[reached], return_index=True)
        median_c2[there, side] = rank_m[order][reached][first]
    return median_c2
