"""Where a stretch of a recording begins and ends: weighted medians of what annotators marked.

    b_c   = lower median of the borders x_m of the cluster's members, member m of annotator k weighing 1 / s_k
    s_k   = (sum_m w_c |x_m - b_c| / l_c + STRENGTH s) / (sum_m w_c + STRENGTH)       over both borders of k's members
    s     = the same mean over all annotators; l_c = length of the consensus; w_c = how probable the stretch is

A few rounds from equal weights. The median needs no guess of how errors are distributed, and one border that is far
off does not move it. A start is always before its end: whoever ends at or before the median end has begun before it.
Known borders are certain.
"""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats
from hitl.texts.matched_spans import Indices, MatchedSpans

STRENGTH = 8.0
"""Borders of the mean of all annotators that each of them is drawn by."""

ROUNDS = 10

LEAST = 1e-6
"""Of a stretch's length, added to every distance: annotators who agree exactly weigh the same."""


def segment_borders(matched: MatchedSpans, place_v: Floats, weight_c: Floats, n_annotators: int) -> Indices:
    """(C, 2) ranks of start and end of each cluster; `place_v` (V,) the places of ranks, `weight_c` (C,) as w_c."""
    known = matched.known_c3[:, 2] >= 0
    cluster_m, annotator_m = matched.member_m5[:, :2].T
    rank_m2 = matched.member_m5[:, 2:4]
    counted = weight_c[cluster_m]
    spread_k = np.ones(n_annotators)
    best_c2 = matched.known_c3[:, :2].copy()
    for _ in range(ROUNDS):
        before = best_c2.copy()
        for side in range(2):
            median_c = _lower_medians(cluster_m, rank_m2[:, side], 1 / spread_k[annotator_m], len(matched))
            best_c2[:, side] = np.where(known, matched.known_c3[:, side], median_c)
        if (best_c2 == before).all():
            break
        best_m2 = place_v[best_c2[cluster_m]]
        away_m = np.abs(place_v[rank_m2] - best_m2).sum(axis=1) / (best_m2[:, 1] - best_m2[:, 0]) + 2 * LEAST
        far_k = np.bincount(annotator_m, weights=counted * away_m, minlength=n_annotators)
        borders_k = 2 * np.bincount(annotator_m, weights=counted, minlength=n_annotators)
        mean = (far_k.sum() + LEAST) / (borders_k.sum() + 1)
        spread_k = (far_k + STRENGTH * mean) / (borders_k + STRENGTH)
    return best_c2


def _lower_medians(cluster_m: Indices, rank_m: Indices, weight_m: Floats, n_clusters: int) -> Indices:
    """(C,) the first rank up to which half of each cluster's weight lies; -1 of a cluster without a member."""
    order = np.lexsort((rank_m, cluster_m))
    cluster, total = cluster_m[order], np.cumsum(weight_m[order])
    whole_c = np.bincount(cluster_m, weights=weight_m, minlength=n_clusters)
    before_c = np.cumsum(whole_c) - whole_c
    reached = total - before_c[cluster] >= whole_c[cluster] / 2 - 1e-9 * whole_c.sum()
    median_c = np.full(n_clusters, -1, np.int64)
    there, first = np.unique(cluster[reached], return_index=True)
    median_c[there] = rank_m[order][reached][first]
    return median_c
