"""Where a stretch of a recording begins and ends, by the borders of those who marked it.

    p(x_m | b) = exp(-|x_m - b| / (s_k l)) / (2 s_k l)     member m of annotator k, any place b, l: the stretch's length
    s_k        = (sum_m w_c E|x_m - b| / l + STRENGTH s) / (sum_m w_c + STRENGTH)     over both borders of k's members
    s          = the same mean over all annotators; w_c = how probable the stretch is

by EM, with the posterior of b on `PLACES` places around the members. The consensus is the most probable b: the lower
median of the members' borders, member m weighing 1 / s_k, so that it is always one that somebody set. A start is
always before its end: whoever ends at or before the median end has begun before it. Known borders are certain.

Distances from the median in place of expected ones would flatter those who set it: in simulated crowds the borders
were then further off than those of a plain median, with expected ones nearer.
"""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats
from hitl.texts.matched_spans import Indices, MatchedSpans

STRENGTH = 8.0
"""Borders of the mean of all annotators that each of them is drawn by."""

START = 0.1
"""s_k to begin with: a tenth of a stretch's length."""

PLACES = 41
"""Places for b: from two mean distances before the first member's border to two behind the last one's."""

SWEEPS = 30
TOLERANCE = 1e-3
"""An EM sweep that changes no s_k by a larger share is the last."""

LEAST = 1e-6
"""The least s_k."""


def segment_borders(matched: MatchedSpans, place_v: Floats, weight_c: Floats, n_annotators: int) -> Indices:
    """(C, 2) ranks of start and end of each cluster; `place_v` (V,) the places of ranks, `weight_c` (C,) as w_c."""
    cluster_m, annotator_m = matched.member_m5[:, :2].T
    even_c2 = _medians(matched, np.ones(len(cluster_m)))
    known_c2 = matched.known_c3[:, :2]
    length_c = np.diff(place_v[np.where(known_c2 < 0, even_c2, known_c2)], axis=1)[:, 0]
    certain_c2 = np.where(known_c2 < 0, np.nan, place_v[known_c2])
    sides = []
    for side in range(2):
        x_m = place_v[matched.member_m5[:, 2 + side]]
        middle_c = place_v[even_c2[:, side]]
        sides.append(((x_m - middle_c[cluster_m]) / length_c[cluster_m], (certain_c2[:, side] - middle_c) / length_c))
    counted_m = weight_c[cluster_m]
    borders_k = 2 * np.bincount(annotator_m, weights=counted_m, minlength=n_annotators)
    spread_k = np.full(n_annotators, START)
    for _ in range(SWEEPS):
        away_m = np.sum([expected_distances(*side, cluster_m, annotator_m, spread_k) for side in sides], axis=0)
        far_k = np.bincount(annotator_m, weights=counted_m * away_m, minlength=n_annotators)
        mean = (far_k.sum() + START) / (borders_k.sum() + 1)
        before, spread_k = spread_k, np.maximum((far_k + STRENGTH * mean) / (borders_k + STRENGTH), LEAST)
        if (np.abs(spread_k - before) <= TOLERANCE * before).all():
            break
    return np.where(known_c2 < 0, _medians(matched, 1 / spread_k[annotator_m]), known_c2)


def expected_distances(
    x_m: Floats, certain_c: Floats, cluster_m: Indices, annotator_m: Indices, spread_k: Floats
) -> Floats:
    """(M,) E|x_m - b| of the borders of one side; `certain_c` (C,) known ones, NaN where unknown."""
    n = len(certain_c)
    low_c, high_c = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low_c, cluster_m, x_m)
    np.maximum.at(high_c, cluster_m, x_m)
    there = np.isfinite(low_c)
    low_c[~there] = high_c[~there] = 0.0
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


def _medians(matched: MatchedSpans, weight_m: Floats) -> Indices:
    """(C, 2) weighted lower medians of starts and ends."""
    cluster_m, n = matched.member_m5[:, 0], len(matched)
    return np.column_stack([_lower_medians(cluster_m, matched.member_m5[:, 2 + s], weight_m, n) for s in range(2)])


def _lower_medians(cluster_m: Indices, rank_m: Indices, weight_m: Floats, n_clusters: int) -> Indices:
    """(C,) the first rank up to which half of each cluster's weight lies; -1 of a cluster without a member."""
    order = np.lexsort((rank_m, cluster_m))
    cluster, weight = cluster_m[order], weight_m[order]
    whole_c = np.bincount(cluster_m, weights=weight_m, minlength=n_clusters)
    share = np.cumsum(weight / whole_c[cluster])  # each cluster adds 1, so that none is lost beside a large one
    reached = share - (np.unique(cluster, return_inverse=True)[1].ravel() if len(cluster) else 0) >= 0.5 - 1e-9
    median_c = np.full(n_clusters, -1, np.int64)
    there, first = np.unique(cluster[reached], return_index=True)
    median_c[there] = rank_m[order][reached][first]
    return median_c
