"""Expected gain of asking annotator k about item n, for many pairs at once, and an upper bound per item.

One more answer l has probability p_nk(l) = sum_j q_nj pi_kjl. It brings

    information   I_nk = H(p_nk) - sum_j q_nj H(pi_kj.)                   mutual information of truth and answer, nats
    accuracy      A_nk = sum_l max_j q_nj pi_kjl  -  max_j q_nj           gain in the probability of a right label

Bounds. Whatever the truth, annotator k answers l with probability at least e_kl = min_j pi_kjl. So with chance
E_k = sum_l e_kl the answer comes from e_k, which is independent of the truth, and

    I_nk <= (1 - E_k) H(q_n)          A_nk <= (1 - E_k) (1 - max_j q_nj)                                         (1)

A policy asks where the utility is largest, at beliefs that take every answer at face value:

    v_nk  =  b_k sum over open questions of ( A_nk + information I_nk )
    b_k   =  1 + weight sqrt( r_k / (1 + labels of k) )

r_k in [0, 1]: all labels that k has given and can give, relative to the annotator with the most. Learning about an
annotator pays off only while they can still be asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from hitl.active.acquisition.scores import entropy
from hitl.active.stopping.pool_state import PoolState
from hitl.active.stopping.rules import OPEN
from hitl.annotations import Floats
from hitl.crew import Crew
from hitl.models.dependence.design_effect import beliefs_for_gain
from hitl.tables.shared_errors import SharedErrors, share_errors

Rows = npt.NDArray[np.int64]

ANSWERS = 2**24
"""Maximum number of answer chances held at a time: about 100 MB."""

LEAST = 1e-9
"""Largest belief left out of the gain in accuracy when there are many classes."""


def information_gain(q_rj: Floats, confusion_kjl: Floats) -> Floats:
    """Return (R, K) expected information of annotator k's answer about item r, in nats, in [0, log min(J, L)]."""
    shared = share_errors(confusion_kjl)
    return _in_blocks(_information_of_shared_errors if shared else _information_of_answers, q_rj, confusion_kjl)


def _information_of_answers(q_rj: Floats, confusion_kjl: Floats) -> Floats:
    answer_rkl: Floats = np.tensordot(q_rj, confusion_kjl, (1, 1)).astype(np.float64, copy=False)
    noise_kj = -_plogp(confusion_kjl).sum(axis=2)
    return np.asarray(np.maximum(-_plogp(answer_rkl).sum(axis=2) - q_rj @ noise_kj.T, 0.0))


def accuracy_gain(q_rj: Floats, confusion_kjl: Floats) -> Floats:
    """Return (R, K) expected gain, >= 0, in the chance that item r's label is right, from annotator k's answer."""
    shared = share_errors(confusion_kjl)
    return _in_blocks(_accuracy_of_shared_errors if shared else _accuracy_of_answers, q_rj, confusion_kjl)


def _accuracy_of_answers(q_rj: Floats, confusion_kjl: Floats) -> Floats:
    best_rkl = np.zeros((len(q_rj), len(confusion_kjl), confusion_kjl.shape[2]))
    for q_r, pi_kl in zip(q_rj.T, confusion_kjl.transpose(1, 0, 2), strict=True):
        np.maximum(best_rkl, q_r[:, None, None] * pi_kl, out=best_rkl)
    return np.asarray(np.maximum(best_rkl.sum(axis=2) - q_rj.max(axis=1, keepdims=True), 0.0))


def _information_of_shared_errors(q_rj: Floats, table: SharedErrors) -> Floats:
    """Return H(p) - sum_j q_j H(pi_kj), with p_kl = c_k q_l + (1 - c_k) e_l and e_l = sum over j of q_j error_jl."""
    right_k, wrong_k = table.right_k, 1 - table.right_k
    error_rl = q_rj @ table.seen + (q_rj @ table.even_j)[:, None]
    error_rl[:, : q_rj.shape[1]] -= q_rj * table.even_j
    even_j, others = table.even_j, table.shape[2] - 1
    seen = table.seen.tocoo()
    raised = _plogp(even_j[seen.row] + seen.data) - _plogp(even_j[seen.row])
    errors_j = -others * _plogp(even_j) - np.bincount(seen.row, raised, len(even_j))  # entropy of each row of errors
    noise_k = -_plogp(right_k) - _plogp(wrong_k)
    answer_rkl = np.multiply(wrong_k[:, None], error_rl[:, None], order="C")  # changed in place below
    answer_rkl[..., : q_rj.shape[1]] += right_k[:, None] * q_rj[:, None]
    gain_rk = -_plogp(answer_rkl).sum(axis=2) - noise_k - np.multiply.outer(q_rj @ errors_j, wrong_k)
    return np.asarray(np.maximum(gain_rk, 0.0))


def _accuracy_of_shared_errors(q_rj: Floats, table: SharedErrors) -> Floats:
    """Return sum_l max(c_k q_l, (1 - c_k) max over j != l of q_j error_jl)  -  max_j q_j."""
    classes, (right_k, even_j) = q_rj.shape[1], (table.right_k, table.even_j)
    gain = np.empty((len(q_rj), len(table)))
    for r, q_j in enumerate(q_rj):
        best_l = np.zeros(table.shape[2])
        for j in np.flatnonzero(q_j > LEAST):
            error_l = np.full(table.shape[2], even_j[j])
            own = slice(*table.seen.indptr[j : j + 2])
            error_l[table.seen.indices[own]] += table.seen.data[own]
            error_l[j] = 0.0
            np.maximum(best_l, q_j[j] * error_l, out=best_l)
        joint_kl = (1 - right_k)[:, None] * best_l
        np.maximum(joint_kl[:, :classes], right_k[:, None] * q_j, out=joint_kl[:, :classes])
        gain[r] = joint_kl.sum(axis=1) - q_j.max()
    return np.maximum(gain, 0.0)


def _plogp(p: Floats) -> Floats:
    return np.asarray(xlogy(p, p))


def _in_blocks(gain: Callable[[Floats, Any], Floats], q_rj: Floats, table: Floats) -> Floats:
    """Return (R, K) gains, computed in blocks of items to limit memory."""
    size = max(1, ANSWERS // (table.shape[2] * max(len(table), 1)))
    parts = [gain(q_rj[begin : begin + size], table) for begin in range(0, len(q_rj), size)]
    return np.concatenate([np.empty((0, len(table))), *parts])


def information_bound(q_nj: Floats, confusion_kjl: Floats) -> Floats:
    """Return (N,) upper bound, in nats, on the expected information of an answer by any of the K annotators (1)."""
    return entropy(q_nj) * _dependent(confusion_kjl)


def accuracy_bound(q_nj: Floats, confusion_kjl: Floats) -> Floats:
    """Return (N,) upper bound on the gain in the chance of a right label from any of the K annotators (1)."""
    return np.asarray((1 - q_nj.max(axis=1)) * _dependent(confusion_kjl))


def _dependent(confusion_kjl: Floats) -> float:
    """Return 1 - E_k of the annotator whose answers depend most on the truth."""
    if share_errors(confusion_kjl):  # every option has at least the chance (1 - c_k) min even_j, or c_k if it is right
        right_k = confusion_kjl.right_k
        least_k = np.minimum((1 - right_k) * confusion_kjl.even_j.min(), right_k)
        return 1.0 - confusion_kjl.shape[2] * float(least_k.min(initial=1.0))
    return 1.0 - float(confusion_kjl.min(axis=1).sum(axis=1).min(initial=1.0))


@dataclass(frozen=True)
class Measure:
    """Gain of an answer: `gain(q_rj, confusion_kjl)` (R, K), and its upper bound `bound` (N,)."""

    gain: Callable[[Floats, Floats], Floats]
    bound: Callable[[Floats, Floats], Floats]


INFORMATION = Measure(information_gain, information_bound)
ACCURACY = Measure(accuracy_gain, accuracy_bound)


@dataclass(frozen=True, eq=False)
class Question:
    """Question about N items: beliefs (N, J), confusion matrices of the crew (K', J, L), and which items are open."""

    q_nj: Floats
    confusion_kjl: Floats
    open_n: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class Gains:
    """Gain of an answer to all open questions about an item: their sum, times a factor per annotator.

    Attributes:
        measure: the gain of one answer to one question.
        questions: the questions about the same N items, to the same K' annotators.
        factor_k: (K',) weight of each annotator, or 1.
    """

    measure: Measure
    questions: Sequence[Question]
    factor_k: Floats | float = 1.0

    def times(self, factor_k: Floats) -> Gains:
        """Multiply the gains of each annotator (K',)."""
        return replace(self, factor_k=self.factor_k * factor_k)

    def per_cost(self, cost_k: Floats) -> Gains:
        """Divide the gains by cost, relative to the average cost."""
        return self.times(cost_k.mean() / cost_k)

    def values(self, rows: Rows) -> Floats:
        """Return (R, K') gain from each of the crew about these items."""
        return self._sum(rows, self.measure.gain) * self.factor_k

    def bound(self, rows: Rows) -> Floats:
        """Return (R,) upper bound on the gain from any of the crew."""
        return self._sum(rows, self.measure.bound) * np.max(self.factor_k, initial=0.0)

    def interchangeable(self, rows: Rows) -> bool:
        """Return True if these items have equal beliefs (to nine digits), so that every annotator's gain is equal."""
        for question in self.questions:
            q_rj = question.q_nj[rows]
            alike = bool((np.abs(q_rj - q_rj[:1]) < 1e-9).all())
            if not alike or (question.open_n is not None and np.unique(question.open_n[rows]).size > 1):
                return False
        return True

    def _sum(self, rows: Rows, of: Callable[[Floats, Floats], Floats]) -> Floats:
        parts = []
        for question in self.questions:
            parts.append(of(question.q_nj[rows], question.confusion_kjl))
            if question.open_n is not None:
                parts[-1][~question.open_n[rows]] = 0.0
        return functools.reduce(np.add, parts)


def utility(pool: PoolState, matrices: Sequence[Floats], information: float) -> Gains:
    """Build the gains by these confusion matrices (K', J, L), one per question; closed questions bring nothing."""
    parts = [
        Question(beliefs_for_gain(evidence, consensus), pi_kjl, state == OPEN)
        for (evidence, consensus), state, pi_kjl in zip(pool, pool.states, matrices, strict=True)
    ]
    measure = Measure(
        lambda q, pi: ACCURACY.gain(q, pi) + information * INFORMATION.gain(q, pi),
        lambda q, pi: ACCURACY.bound(q, pi) + information * INFORMATION.bound(q, pi),
    )
    return Gains(measure, parts)


def exploration(given_k: Floats, able_k: Floats, weight: float) -> Floats:
    """Return (K',) b_k, the bonus for little-known annotators.

    `given_k` labels of each so far, `able_k` open items that each can be asked about; inf: a pool, which never runs
    out.
    """
    all_k = given_k + able_k
    reach_k = np.minimum(all_k / max(all_k[np.isfinite(all_k)].max(initial=0), 1), 1)
    b_k: Floats = 1 + weight * np.sqrt(reach_k / (1 + given_k))
    return b_k


def labels_of(pool: PoolState, crew: Crew) -> Floats:
    """Return (K',) how many labels each of the crew has given, averaged over the questions."""
    labels = np.zeros(len(crew.names))
    for _, consensus in pool:
        labels_by_name = dict(zip(consensus.annotators.names, consensus.annotators.labels.tolist(), strict=True))
        labels += [labels_by_name.get(name, 0) for name in crew.names]
    return labels / len(pool)
