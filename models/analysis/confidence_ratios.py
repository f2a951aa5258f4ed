"""Confidence ratios and what they promise of a combination (Kerrigan 2021, section 6, Theorem 1).

    r(n, j) = p[n, j] / sum_{i != j} p[n, i]                                            (eq. 4: odds of class j)

of the model (its calibrated probabilities) and of the annotators (the likelihood of their labels, prod_k pi[k, j,
l_nk]). P+L is the normalised product of the two, so where r_model(n, j) r_people(n, j) > 1 its label is j:

    sum_{i != j} m_i h_i  <=  sum_{i != j} m_i  sum_{i != j} h_i  <  m_j h_j

and the accuracy of the combination is at least P( r_model(n, z_n) r_people(n, z_n) > 1 )     (eq. 5). With two classes
the sums have one term: it is an equality. The same holds with the largest of the others in place of their sum; that
bound is never lower.

Methods that temper P+L afterwards have its labels, hence its accuracy and its bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats

TINY = 1e-300
"""Probabilities below this are read as this."""


@dataclass(frozen=True, eq=False)
class ConfidenceRatios:
    """Log confidence ratios of N items, and for which class they guarantee the label of the combination.

    Attributes:
        model, people: (N, J) natural log of the odds of each class.
        runner_up: (N, J) log of the product of p_j / max_{i != j} p_i of both.
        combined: (N,) most probable class of P+L.
    """

    model: Floats
    people: Floats
    runner_up: Floats
    combined: npt.NDArray[np.intp]

    def accuracy(self, truth_nj: Floats) -> float:
        """How often P+L is right, given (expected) truths (N, J); NaN without items."""
        right = truth_nj[np.arange(len(truth_nj)), self.combined]
        return float(right.mean()) if right.size else float("nan")

    def bound(self, truth_nj: Floats) -> float:
        """Theorem 1: a lower bound of the combination's accuracy, given (expected) truths; NaN without items."""
        return _guaranteed(self.model + self.people, truth_nj)

    def tighter_bound(self, truth_nj: Floats) -> float:
        """The same with the most probable other class in place of the sum over the others; at least `bound`."""
        return _guaranteed(self.runner_up, truth_nj)

    def above_one(self, truth_nj: Floats) -> tuple[float, float]:
        """Share of items whose true class is more probable than all others together: for model and annotators."""
        return _guaranteed(self.model, truth_nj), _guaranteed(self.people, truth_nj)

    def quantiles(self, truth_nj: Floats, at: tuple[float, ...]) -> tuple[Floats, Floats]:
        """Quantiles of the log ratio of the (expected) true class: of the model, of the annotators."""
        return _quantiles(self.model, truth_nj, at), _quantiles(self.people, truth_nj, at)


def confidence_ratios(model_nj: Floats, log_people_nj: Floats) -> ConfidenceRatios:
    """From the calibrated probabilities of the model and the log likelihood of the labels, each (N, J); J >= 2."""
    log_model = np.log(np.maximum(model_nj, TINY))
    runner_up = _against_the_next(log_model) + _against_the_next(log_people_nj)
    combined = (log_model + log_people_nj).argmax(axis=1)
    return ConfidenceRatios(_log_odds(log_model), _log_odds(log_people_nj), runner_up, combined)


def _log_odds(log_p_nj: Floats) -> Floats:
    """(N, J) log p_j - log sum_{i != j} p_i, without the cancellation of 1 - p_j."""
    rest = np.full_like(log_p_nj, -np.inf)
    rest[:, 1:] = np.logaddexp.accumulate(log_p_nj, axis=1)[:, :-1]
    after = np.logaddexp.accumulate(log_p_nj[:, ::-1], axis=1)[:, ::-1]
    rest[:, :-1] = np.logaddexp(rest[:, :-1], after[:, 1:])
    odds: Floats = log_p_nj - rest
    return odds


def _against_the_next(log_p_nj: Floats) -> Floats:
    """(N, J) log p_j - max_{i != j} log p_i."""
    rows, top = np.arange(len(log_p_nj)), log_p_nj.argmax(axis=1)
    others = log_p_nj.copy()
    others[rows, top] = -np.inf
    best = np.repeat(log_p_nj[rows, top][:, None], log_p_nj.shape[1], axis=1)
    best[rows, top] = others.max(axis=1, initial=-np.inf)
    ahead: Floats = log_p_nj - best
    return ahead


def _guaranteed(log_ratio_nj: Floats, truth_nj: Floats) -> float:
    return float(np.mean((truth_nj * (log_ratio_nj > 0)).sum(axis=1))) if len(truth_nj) else float("nan")


def _quantiles(log_ratio_nj: Floats, truth_nj: Floats, at: tuple[float, ...]) -> Floats:
    """Smallest values below which lie at least these shares of the weight."""
    if not truth_nj.any():
        return np.full(len(at), np.nan)
    value, weight = log_ratio_nj.ravel(), truth_nj.ravel()
    order = np.argsort(value, kind="stable")
    reached = np.cumsum(weight[order])
    place = np.searchsorted(reached, np.asarray(at) * reached[-1] * (1 - 1e-12), side="left")
    quantiles: Floats = value[order][np.minimum(place, value.size - 1)]
    return quantiles
