"""Confidence ratios and a lower bound on the accuracy of a combination (Kerrigan 2021, section 6, Theorem 1).

    r(n, j) = p[n, j] / sum_{i != j} p[n, i]                                            (eq. 4: odds of class j)

The model's ratio uses its calibrated probabilities m, the annotators' ratio the likelihood of their labels,
h = prod_k pi[k, j, l_nk]. P+L is the normalized product of m and h. Where r_model(n, j) r_people(n, j) > 1, its label
is j, because

    sum_{i != j} m_i h_i  <=  sum_{i != j} m_i  sum_{i != j} h_i  <  m_j h_j

So the accuracy of the combination is at least P( r_model(n, z_n) r_people(n, z_n) > 1 )     (eq. 5), with equality
for two classes. With max_{i != j} in place of both sums the bound also holds, and is never lower.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hitl.annotations import Floats

TINY = 1e-300
"""Smallest probability; smaller ones are raised to it."""


@dataclass(frozen=True)
class Bound:
    """Theorem 1 for some items with (expected) truths; NaN without items.

    Attributes:
        bound: lower bound on the accuracy of P+L (eq. 5).
        tighter: lower bound with the largest in place of the sum.
        accuracy: accuracy of P+L on the same items.
        model_above_one, people_above_one: share of items whose true class has a ratio above 1, for each alone.
    """

    bound: float
    tighter: float
    accuracy: float
    model_above_one: float
    people_above_one: float


def accuracy_bound(model_nj: Floats, log_people_nj: Floats, truth_nj: Floats) -> Bound:
    """Compute the bound from (N, J) calibrated probabilities, log likelihoods of the labels and truths; J >= 2."""
    log_model_nj = np.log(np.maximum(model_nj, TINY))
    runner_up_nj = _against_the_next(log_model_nj) + _against_the_next(log_people_nj)
    model_nj, people_nj = log_odds(log_model_nj), log_odds(log_people_nj)
    combined_n = (log_model_nj + log_people_nj).argmax(axis=1)
    return Bound(
        _guaranteed(model_nj + people_nj, truth_nj),
        _guaranteed(runner_up_nj, truth_nj),
        float(truth_nj[np.arange(len(truth_nj)), combined_n].mean()) if len(truth_nj) else float("nan"),
        _guaranteed(model_nj, truth_nj),
        _guaranteed(people_nj, truth_nj),
    )


def log_odds(log_p_nj: Floats) -> Floats:
    """Return (N, J) log p_j - log sum_{i != j} p_i, without the cancellation of 1 - p_j."""
    rest = np.full_like(log_p_nj, -np.inf)
    rest[:, 1:] = np.logaddexp.accumulate(log_p_nj, axis=1)[:, :-1]
    after = np.logaddexp.accumulate(log_p_nj[:, ::-1], axis=1)[:, ::-1]
    rest[:, :-1] = np.logaddexp(rest[:, :-1], after[:, 1:])
    return np.asarray(log_p_nj - rest)


def _against_the_next(log_p_nj: Floats) -> Floats:
    """Return (N, J) log p_j - max_{i != j} log p_i."""
    second, top = np.sort(log_p_nj, axis=1)[:, -2:].T
    is_top = np.arange(log_p_nj.shape[1]) == log_p_nj.argmax(axis=1)[:, None]
    return np.asarray(log_p_nj - np.where(is_top, second[:, None], top[:, None]))


def _guaranteed(log_ratio_nj: Floats, truth_nj: Floats) -> float:
    return float(np.mean((truth_nj * (log_ratio_nj > 0)).sum(axis=1))) if len(truth_nj) else float("nan")
