"""Where a span begins and ends, by the borders of those who marked it.

    p(x | b) = a_k                                          x = b: annotator k marks the right border
             = (1 - a_k) (1 - r) / 2  r^(|x - b| - 1)       |x - b| tokens away from it

The true border b is any of the marked ones, or lies up to `NEAR` tokens from one, all as likely before. a_k and r are
learned by EM; a_k is drawn to the mean of all annotators by `STRENGTH` borders of that mean. Beginnings and ends have
parameters of their own. A span weighs as the probability that it is one. Known borders are certain.

A vote would be the case in which all a_k are equal and r is 1; where r is small the median wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats

Indices = npt.NDArray[np.int64]

NEAR = 3
"""Tokens from a marked border within which the true one may lie unmarked."""

STRENGTH = 4.0
"""Borders that the mean of all annotators counts as, for each of them."""

SWEEPS = 50
TOLERANCE = 1e-4
"""An EM sweep that moves no parameter by more is the last."""


@dataclass(frozen=True, eq=False)
class Borders:
    """Posterior over the borders of C spans on one side.

    Attributes:
        cluster_b, place_b: (B,) candidates: the span, and the place in tokens; in order.
        probability_b: (B,) of each; sums to 1 for each span.
        right_k: (K,) chance that an annotator marks the right border, in (0, 1).
        decay: r, how fast a border that is further away gets less likely, in (0, 1).
    """

    cluster_b: Indices
    place_b: Indices
    probability_b: Floats
    right_k: Floats
    decay: float

    def of(self, cluster_e: Indices, place_e: Indices) -> Floats:
        """(E,) probability that the border of a span is at a place; 0 where it is no candidate."""
        far = int(self.place_b.max(initial=0)) + 1
        key_b = self.cluster_b * far + self.place_b
        key_e = cluster_e * far + np.minimum(place_e, far - 1)
        at = np.minimum(np.searchsorted(key_b, key_e), max(len(key_b) - 1, 0))
        return np.where((key_b[at] == key_e) & (place_e < far), self.probability_b[at], 0.0)


def borders(member_m3: Indices, weight_c: Floats, known_c: Indices, n_annotators: int) -> Borders:
    """Learn annotators and borders together.

    `member_m3` (M, 3): cluster, annotator and place of each marked border, clusters in order; `weight_c` (C,) how
    probable each span is; `known_c` (C,) known borders, -1 where unknown.
    """
    cluster_b, place_b = _candidates(member_m3, known_c)
    # Every candidate meets every member of its cluster: one row a pair.
    first = np.searchsorted(member_m3[:, 0], cluster_b, "left")
    count = np.searchsorted(member_m3[:, 0], cluster_b, "right") - first
    candidate = np.repeat(np.arange(len(cluster_b)), count)
    member = np.arange(len(candidate)) - np.repeat(np.cumsum(count) - count - first, count)
    annotator = member_m3[member, 1]
    away = np.abs(member_m3[member, 2] - place_b[candidate])
    fixed_b = (known_c[cluster_b] >= 0) & (known_c[cluster_b] != place_b)
    begins = np.flatnonzero(np.diff(cluster_b, prepend=-1))
    right_k: Floats = np.full(n_annotators, 0.8)
    decay = 0.5
    for _ in range(SWEEPS):
        p_b = _posterior(candidate, annotator, away, begins, fixed_b, right_k, decay)
        weight = (p_b * weight_c[cluster_b])[candidate]
        learned_k, learned = _learned(weight, annotator, away, n_annotators)
        moved = max(np.abs(learned_k - right_k).max(initial=0), abs(learned - decay))
        right_k, decay = learned_k, learned
        if moved < TOLERANCE:
            break
    p_b = _posterior(candidate, annotator, away, begins, fixed_b, right_k, decay)
    return Borders(cluster_b, place_b, p_b, right_k, decay)


def _candidates(member_m3: Indices, known_c: Indices) -> tuple[Indices, Indices]:
    """Cluster and place of the candidates: marked and known borders, and the places near them."""
    known = np.flatnonzero(known_c >= 0)
    marked = np.concatenate((member_m3[:, [0, 2]], np.column_stack((known, known_c[known]))))
    near = np.arange(-NEAR, NEAR + 1)
    every = np.column_stack((np.repeat(marked[:, 0], len(near)), (marked[:, 1:] + near).ravel()))
    cluster_b, place_b = np.unique(every[every[:, 1] >= 0], axis=0).T
    return cluster_b, place_b


def _posterior(
    candidate: Indices,
    annotator: Indices,
    away: Indices,
    begins: Indices,
    fixed_b: npt.NDArray[np.bool_],
    right_k: Floats,
    decay: float,
) -> Floats:
    """(B,) posterior of the candidates of each cluster."""
    wrong = np.log1p(-right_k) + np.log((1 - decay) / 2)
    log = np.where(away == 0, np.log(right_k)[annotator], wrong[annotator] + (away - 1) * np.log(decay))
    log_b: Floats = np.bincount(candidate, weights=log, minlength=len(fixed_b)).astype(np.float64)
    log_b[fixed_b] = -np.inf
    if not len(begins):
        return log_b
    length = np.diff(np.append(begins, len(log_b)))
    p_b = np.exp(log_b - np.repeat(np.maximum.reduceat(log_b, begins), length))
    normal: Floats = p_b / np.repeat(np.add.reduceat(p_b, begins), length)
    return normal


def _learned(weight: Floats, annotator: Indices, away: Indices, n_annotators: int) -> tuple[Floats, float]:
    """(K,) a_k and r from weighted pairs; one right and one wrong border of the crowd are known beforehand."""
    hit_k = np.bincount(annotator, weights=weight * (away == 0), minlength=n_annotators)
    all_k = np.bincount(annotator, weights=weight, minlength=n_annotators)
    mean = (hit_k.sum() + 1) / (all_k.sum() + 2)
    missed = weight * (away > 0)
    further = float((missed * (away - 1)).sum())
    return (hit_k + STRENGTH * mean) / (all_k + STRENGTH), (further + 1) / (further + float(missed.sum()) + 2)


def without_overlap(start: Sequence[int], end: Sequence[int], gain: Sequence[float]) -> list[int]:
    """Which of these intervals to keep so that none overlap and the gains (> 0) sum to the most; numbers in order.

    Example:
        >>> without_overlap([0, 2, 5], [3, 6, 8], [1.0, 1.5, 1.0])
        [0, 2]
    """
    order = sorted(range(len(start)), key=lambda number: (end[number], start[number]))
    ends = [end[number] for number in order]
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for place, number in enumerate(order):
        before = int(np.searchsorted(ends[:place], start[number], side="right"))
        taken = best[before][0] + gain[number]
        best.append((taken, [*best[before][1], number]) if taken > best[-1][0] else best[-1])
    return sorted(best[-1][1])
