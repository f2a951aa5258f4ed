"""Expected gain from one more answer by annotator k about item n, for many pairs at once, and an upper bound per item.

q_nj is the probability that the true class of item n is j, and pi_kjl the probability that annotator k then answers l.
The next answer is l with probability p_nk(l) = sum_j q_nj pi_kjl. Its expected gain is

    information   I_nk = H(p_nk) - sum_j q_nj H(pi_kj.)                   mutual information of truth and answer, nats
    accuracy      A_nk = sum_l max_j q_nj pi_kjl  -  max_j q_nj           gain in the probability of a right label

Bounds. Whatever the truth, annotator k answers l with probability at least e_kl = min_j pi_kjl. So with probability
E_k = sum_l e_kl the answer can be seen as drawn from e_k, which is independent of the truth, and

    I_nk <= (1 - E_k) H(q_n)          A_nk <= (1 - E_k) (1 - max_j q_nj)                                         (1)

An answer changes the label from the most probable class b to j only if it favors j by more than the odds q_nb / q_nj:

    A_nk  =   sum_l max_j (q_nj pi_kjl - q_nb pi_kbl)
          <=  sum_{j != b} q_nj F_bj(q_nb / q_nj)        F_bj(r) = max_k sum_l max(pi_kjl - r pi_kbl, 0)          (2)

F falls with r, so its value at the next lower point of a grid of r is an upper bound too.

The policy asks where the utility v_nk is largest:

    v_nk  =  b_k sum over open questions of ( A_nk + information I_nk )
    b_k   =  1 + weight sqrt( r_k / (1 + labels of k) )

The q_nj here are `beliefs_for_gain`, which count every answer in full if there are models. r_k in [0, 1] is the number
of labels that k has given and can still give, relative to the annotator with the most: learning about an annotator pays
off only while they can still be asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from numba import prange

from hitl.active.acquisition.scores import entropy, times_log
from hitl.active.pool_state import PoolState
from hitl.active.stopping.rules import OPEN
from hitl.annotations import Floats
from hitl.crew import Crew
from hitl.models.analysis.copied_accounts import count_copies_once
from hitl.models.dependence.design_effect import beliefs_for_gain
from hitl.models.numerics.compiled import threaded
from hitl.tables.shared_errors import SharedErrors, share_errors

Rows = npt.NDArray[np.int64]

STEPS = 8
"""Number of grid points of the odds per factor of two."""

TOP = 16
"""Number of factors of two that the grid of odds covers."""

TABLED = 2**30
"""Maximum cost of the table of F, in operations. Beyond it (many classes), only bound (1) is used."""

ANSWERS = 2**24
"""Maximum number of answer probabilities in memory at a time with `SharedErrors`: about 130 MB."""

LEAST = 1e-9
"""With `SharedErrors`, `accuracy_gain` ignores the errors made on true classes of at most this probability."""


def information_gain(q_rj: Floats, confusion_kjl: Floats) -> Floats:
    """Return (R, K) expected information of annotator k's answer about item r, in nats, in [0, log min(J, L)]."""
    if share_errors(confusion_kjl):
        return _in_blocks(_information_of_shared_errors, q_rj, confusion_kjl)
    n_annotators, n_classes, n_options = confusion_kjl.shape
    noise = entropy(confusion_kjl.reshape(-1, n_options)).reshape(n_annotators, n_classes)
    gain = np.empty((len(q_rj), n_annotators))
    _information_of_answers(np.ascontiguousarray(q_rj), _by_class(confusion_kjl), np.ascontiguousarray(noise.T), gain)
    return gain


def _by_class(confusion_kjl: Floats) -> Floats:
    """Return the matrices as (J, L K), with annotators innermost so that inner loops are long."""
    return np.ascontiguousarray(confusion_kjl.transpose(1, 2, 0)).reshape(confusion_kjl.shape[1], -1)


@threaded
def _information_of_answers(q_rj: Floats, table: Floats, noise_jk: Floats, gain: Floats) -> None:
    n_classes, n_annotators = noise_jk.shape
    width = table.shape[1]
    for r in prange(len(q_rj)):
        answer = np.full(width, 1e-300)
        for j in range(n_classes):
            if q_rj[r, j] > 0:
                for x in range(width):
                    answer[x] += q_rj[r, j] * table[j, x]
        times_log(answer)
        for k in range(n_annotators):
            gain[r, k] = 0.0
        for j in range(n_classes):
            if q_rj[r, j] > 0:
                for k in range(n_annotators):
                    gain[r, k] -= q_rj[r, j] * noise_jk[j, k]
        for first in range(0, width, n_annotators):
            for k in range(n_annotators):
                gain[r, k] -= answer[first + k]
        for k in range(n_annotators):
            gain[r, k] = max(gain[r, k], 0.0)


def accuracy_gain(q_rj: Floats, confusion_kjl: Floats) -> Floats:
    """Return (R, K) expected gain, >= 0, in the chance that item r's label is right, from annotator k's answer."""
    if share_errors(confusion_kjl):
        return _in_blocks(_accuracy_of_shared_errors, q_rj, confusion_kjl)
    n_annotators, _, n_options = confusion_kjl.shape
    gain = np.empty((len(q_rj), n_annotators))
    _most_right(np.ascontiguousarray(q_rj), _by_class(confusion_kjl), n_options, gain)
    return gain


@threaded
def _most_right(q_rj: Floats, table: Floats, n_options: int, gain: Floats) -> None:
    n_annotators = gain.shape[1]
    for r in prange(len(q_rj)):
        best = table[0] * q_rj[r, 0]
        for j in range(1, q_rj.shape[1]):
            share = q_rj[r, j]
            if share > 0:
                for x in range(len(best)):
                    best[x] = max(best[x], share * table[j, x])
        gain[r] = -q_rj[r].max()
        for option in range(n_options):
            for k in range(n_annotators):
                gain[r, k] += best[option * n_annotators + k]
        for k in range(n_annotators):
            gain[r, k] = max(gain[r, k], 0.0)


def _information_of_shared_errors(q_rj: Floats, table: SharedErrors) -> Floats:
    """Return H(p_k) - sum_j q_j H(pi_kj), with p_kl = c_k q_l + (1 - c_k) sum over j of q_j error_jl, c_k = right_k."""
    right_k, wrong_k = table.right_k, 1 - table.right_k
    error_rl = q_rj @ table.seen + (q_rj @ table.even_j)[:, None]
    error_rl[:, : q_rj.shape[1]] -= q_rj * table.even_j
    even_j, others = table.even_j, table.shape[2] - 1
    seen = table.seen.tocoo()
    raised = _x_log_x(even_j[seen.row] + seen.data) - _x_log_x(even_j[seen.row])
    errors_j = -others * _x_log_x(even_j) - np.bincount(seen.row, raised, len(even_j))  # entropy of each row of errors
    noise_k = -_x_log_x(right_k) - _x_log_x(wrong_k)
    answer_rkl = np.multiply(wrong_k[:, None], error_rl[:, None], order="C")  # changed in place below
    answer_rkl[..., : q_rj.shape[1]] += right_k[:, None] * q_rj[:, None]
    times_log(np.maximum(answer_rkl, 1e-300, out=answer_rkl).ravel())
    gain_rk = -answer_rkl.sum(axis=2) - noise_k - np.multiply.outer(q_rj @ errors_j, wrong_k)
    return np.asarray(np.maximum(gain_rk, 0.0))


def _accuracy_of_shared_errors(q_rj: Floats, table: SharedErrors) -> Floats:
    """Return sum_l max(c_k q_l, (1 - c_k) max over j != l of q_j error_jl)  -  max_j q_j, with c_k = right_k."""
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


def _x_log_x(x: Floats) -> Floats:
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))


def _in_blocks(gain: Callable[[Floats, SharedErrors], Floats], q_rj: Floats, table: SharedErrors) -> Floats:
    """Return (R, K) gains, computed in blocks of items to limit memory."""
    size = max(1, ANSWERS // (table.shape[2] * max(len(table), 1)))
    parts = [gain(q_rj[begin : begin + size], table) for begin in range(0, len(q_rj), size)]
    return np.concatenate([np.empty((0, len(table))), *parts])


def information_bound(q_nj: Floats, confusion_kjl: Floats) -> Floats:
    """Return (N,) upper bound (1), in nats, on the expected information in an answer by any of the K annotators."""
    return entropy(q_nj) * _dependent(confusion_kjl)


def accuracy_bound(q_nj: Floats, confusion_kjl: Floats) -> Floats:
    """Return (N,) upper bound (the smaller of 1 and 2) on the gain in accuracy from any of the K annotators."""
    q_nj = np.ascontiguousarray(q_nj)
    bound = np.empty(len(q_nj))
    _within_reach(q_nj, _reach(confusion_kjl), _dependent(confusion_kjl), bound)
    return bound


def _dependent(confusion_kjl: Floats) -> float:
    """Return the largest 1 - E_k, that of the annotator whose answers depend most on the truth."""
    if share_errors(confusion_kjl):  # e_kl is at least (1 - c_k) min even_j if l is wrong, and c_k if it is right
        right_k = confusion_kjl.right_k
        least_k = np.minimum((1 - right_k) * confusion_kjl.even_j.min(), right_k)
        return 1.0 - confusion_kjl.shape[2] * float(least_k.min(initial=1.0))
    return 1.0 - float(confusion_kjl.min(axis=1).sum(axis=1).min(initial=1.0))


def _reach(confusion_kjl: Floats) -> Floats:
    """Return (J, J, G) F_bj at the odds 2^(g / STEPS), or with many classes (J, J, 1) its upper bound 1."""
    n_classes = confusion_kjl.shape[1]
    points = STEPS * TOP + 1
    if share_errors(confusion_kjl) or points * n_classes * confusion_kjl.size > TABLED:
        points = 1
    table = np.ones((n_classes, n_classes, points))
    if points > 1:
        _table_reach(np.ascontiguousarray(confusion_kjl), 2.0 ** (np.arange(points) / STEPS), table)
    return table


@threaded
def _table_reach(confusion_kjl: Floats, odds: Floats, table: Floats) -> None:
    n_annotators, n_classes, n_options = confusion_kjl.shape
    for b in prange(n_classes):
        for j in range(n_classes):
            for g in range(len(odds)):
                most = 0.0
                for k in range(n_annotators):
                    over = 0.0
                    for option in range(n_options):
                        over += max(confusion_kjl[k, j, option] - odds[g] * confusion_kjl[k, b, option], 0.0)
                    most = max(most, over)
                table[b, j, g] = most


@threaded
def _within_reach(q_nj: Floats, reach: Floats, dependent: float, bound: Floats) -> None:
    n_classes = q_nj.shape[1]
    last = reach.shape[2] - 1
    for n in prange(len(q_nj)):
        b = 0
        for j in range(1, n_classes):
            if q_nj[n, j] > q_nj[n, b]:
                b = j
        total = 0.0
        for j in range(n_classes):
            share = q_nj[n, j]
            if j != b and share > 0:
                steps = STEPS * np.log2(q_nj[n, b] / share) - 1e-9
                point = 0 if steps < 0 else min(int(min(steps, 1e6)), last)
                total += share * reach[b, j, point]
        bound[n] = min(total, dependent * (1.0 - q_nj[n, b]))


@dataclass(frozen=True)
class Measure:
    """A kind of gain: `gain(q_rj, confusion_kjl)` returns (R, K) gains, `bound` (R,) an upper bound for each row."""

    gain: Callable[[Floats, Floats], Floats]
    bound: Callable[[Floats, Floats], Floats]


INFORMATION = Measure(information_gain, information_bound)
ACCURACY = Measure(accuracy_gain, accuracy_bound)


@dataclass(frozen=True, eq=False)
class Question:
    """Question about N items: beliefs (N, J), the crew's confusion matrices (K', J, L), and a mask of its open items.

    Without a mask (`open_n` None) all items are open.
    """

    q_nj: Floats
    confusion_kjl: Floats
    open_n: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class Gains:
    """Gain from an annotator's answers to all open questions about an item: their sum, times the annotator's factor.

    Attributes:
        measure: gain of one answer to one question.
        questions: questions about the same N items, for the same K' annotators.
        factor_k: (K',) factor of each annotator, or one number for all.
    """

    measure: Measure
    questions: Sequence[Question]
    factor_k: Floats | float = 1.0

    def times(self, factor_k: Floats) -> Gains:
        """Multiply each annotator's gains by `factor_k` (K',)."""
        return replace(self, factor_k=self.factor_k * factor_k)

    def per_cost(self, cost_k: Floats) -> Gains:
        """Divide each annotator's gains by their cost, relative to the average cost."""
        return self.times(cost_k.mean() / cost_k)

    def values(self, rows: Rows) -> Floats:
        """Return (R, K') gains from asking each annotator of the crew about the items with these codes."""
        return self._sum(rows, self.measure.gain) * self.factor_k

    def bound(self, rows: Rows) -> Floats:
        """Return (R,) upper bounds on the gain from any annotator of the crew."""
        return self._sum(rows, self.measure.bound) * np.max(self.factor_k, initial=0.0)

    def interchangeable(self, rows: Rows) -> bool:
        """Return True if these items have equal beliefs (to nine digits) and open questions, and thus equal gains."""
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
    """Build the gains A + `information` I from confusion matrices (K', J, L) of the crew, one array per question.

    Questions that are not open add nothing.
    """
    parts = [
        Question(beliefs_for_gain(count_copies_once(evidence), consensus), pi_kjl, state == OPEN)
        for (evidence, consensus), state, pi_kjl in zip(pool, pool.states, matrices, strict=True)
    ]
    measure = Measure(
        lambda q, pi: ACCURACY.gain(q, pi) + information * INFORMATION.gain(q, pi),
        lambda q, pi: ACCURACY.bound(q, pi) + information * INFORMATION.bound(q, pi),
    )
    return Gains(measure, parts)


def exploration(given_k: Floats, able_k: Floats, weight: float) -> Floats:
    """Return (K',) b_k, the factor that favors little-known annotators.

    `given_k`: number of labels by each annotator so far. `able_k`: number of open items that each can be asked about;
    inf for an anonymous pool, which never runs out.
    """
    all_k = given_k + able_k
    reach_k = np.minimum(all_k / max(all_k[np.isfinite(all_k)].max(initial=0), 1), 1)
    b_k: Floats = 1 + weight * np.sqrt(reach_k / (1 + given_k))
    return b_k


def labels_of(pool: PoolState, crew: Crew) -> Floats:
    """Return the (K',) number of labels by each annotator of the crew, averaged over the questions."""
    labels = np.zeros(len(crew.names))
    for _, consensus in pool:
        labels_by_name = dict(zip(consensus.annotators.names, consensus.annotators.labels.tolist(), strict=True))
        labels += [labels_by_name.get(name, 0) for name in crew.names]
    return labels / len(pool)
