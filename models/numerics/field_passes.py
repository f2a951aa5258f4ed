"""Passes over the items of a field, each through memory once: a half step of beliefs, and what is learned from them.

    half step    out_n = (q_n + p(message_n + own + strength around_n)) / 2
    judgement    p_n ∝ exp(own + field_n)      q_n ∝ p_n exp message_n      log evidence_n = ln sum_j p_n exp message_n

with own = ln share. Separate steps of NumPy would take ten times the memory, and most of the time to get it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, prange

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, threaded

SERIAL_BELOW = 10_000
"""Items below which the calling thread does the work alone."""


class Judged(NamedTuple):
    """Beliefs (N, J), their log evidence, and sums over the items that count, each (J,): see `FieldCounts`."""

    q_nj: Floats
    log_evidence: float
    believed_j: Floats
    expected_j: Floats
    gradient_j: Floats
    curvature_j: Floats


def half_step(
    message_nj: Floats, own_j: Floats, strength_j: Floats, around_nj: Floats, q_nj: Floats, out_nj: Floats
) -> float:
    """Beliefs half of the way to where the neighbours want them, into `out_nj`; the largest change."""
    runs = _runs(len(q_nj))
    changes = np.zeros(len(runs) - 1)
    given = (runs, message_nj, own_j, strength_j, around_nj, q_nj, out_nj, changes)
    (_half if len(changes) == 1 else _half_threaded)(*given)
    return float(changes.max())


def judged(
    message_nj: Floats, own_j: Floats, field_nj: Floats, slope_nj: Floats, counted_n: npt.NDArray[np.bool_]
) -> Judged:
    """Beliefs of all items by their messages and what their neighbours say."""
    n, j = message_nj.shape
    runs, q_nj = _runs(n), np.empty((n, j))
    sums = np.zeros((len(runs) - 1, 4, j))
    logs = np.zeros(len(runs) - 1)
    given = (runs, message_nj, own_j, field_nj, slope_nj, counted_n, q_nj, sums, logs)
    (_judge if len(logs) == 1 else _judge_threaded)(*given)
    return Judged(q_nj, float(logs.sum()), *sums.sum(axis=0))


def _runs(n_items: int) -> npt.NDArray[np.int64]:
    threads = 1 if n_items < SERIAL_BELOW else int(get_num_threads())
    return np.linspace(0, n_items, threads + 1).astype(np.int64)


@compiled
def _step(first: int, last: int, message: Any, own: Any, strength: Any, around: Any, q: Any, out: Any) -> float:
    change = 0.0
    for n in range(first, last):
        top = -np.inf
        for j in range(own.shape[0]):
            out[n, j] = message[n, j] + own[j] + strength[j] * around[n, j]
            top = max(top, out[n, j])
        total = 0.0
        for j in range(own.shape[0]):
            out[n, j] = np.exp(out[n, j] - top)
            total += out[n, j]
        for j in range(own.shape[0]):
            step = 0.5 * (out[n, j] / total - q[n, j])
            change = max(change, abs(step))
            out[n, j] = q[n, j] + step
    return change


@compiled
def _half(runs: Any, message: Any, own: Any, strength: Any, around: Any, q: Any, out: Any, changes: Any) -> None:
    changes[0] = _step(0, q.shape[0], message, own, strength, around, q, out)


@threaded
def _half_threaded(
    runs: Any, message: Any, own: Any, strength: Any, around: Any, q: Any, out: Any, changes: Any
) -> None:
    for run in prange(len(runs) - 1):
        changes[run] = _step(runs[run], runs[run + 1], message, own, strength, around, q, out)


@compiled
def _items(
    first: int, last: int, message: Any, own: Any, field: Any, slope: Any, counted: Any, q: Any, sums: Any
) -> float:
    classes = own.shape[0]
    p, totals = np.empty(classes), np.zeros((4, classes))
    log_evidence = 0.0
    for n in range(first, last):
        top, top_q = -np.inf, -np.inf
        for j in range(classes):
            p[j] = own[j] + field[n, j]
            q[n, j] = p[j] + message[n, j]
            top, top_q = max(top, p[j]), max(top_q, q[n, j])
        total, total_q = 0.0, 0.0
        for j in range(classes):
            p[j] = np.exp(p[j] - top)
            q[n, j] = np.exp(q[n, j] - top_q)
            total += p[j]
            total_q += q[n, j]
        for j in range(classes):
            q[n, j] /= total_q
        if counted[n]:
            log_evidence += top_q + np.log(total_q) - top - np.log(total)
            for j in range(classes):
                p_j = p[j] / total
                totals[0, j] += q[n, j]
                totals[1, j] += p_j
                totals[2, j] += slope[n, j] * (q[n, j] - p_j)
                totals[3, j] += slope[n, j] ** 2 * p_j * (1 - p_j)
    sums[:] = totals
    return log_evidence


@compiled
def _judge(
    runs: Any, message: Any, own: Any, field: Any, slope: Any, counted: Any, q: Any, sums: Any, logs: Any
) -> None:
    logs[0] = _items(0, q.shape[0], message, own, field, slope, counted, q, sums[0])


@threaded
def _judge_threaded(
    runs: Any, message: Any, own: Any, field: Any, slope: Any, counted: Any, q: Any, sums: Any, logs: Any
) -> None:
    for run in prange(len(runs) - 1):
        logs[run] = _items(runs[run], runs[run + 1], message, own, field, slope, counted, q, sums[run])
