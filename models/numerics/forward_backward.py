"""Forward and backward through many Markov chains at once (Rabiner 1989; Traganitis & Giannakis 2019, appendix A).

    forward    a_t[j]  = p(z_t = j | messages up to t)         c_t = p(messages of t | those before)
    backward   b_t[i]  = sum_j step[i, j] e_{t+1}[j] b_{t+1}[j] / c_{t+1}                   e = exp messages
    beliefs    q_t     = a_t b_t        log evidence = sum_t ln c_t
    pairs      x[i, j] = step[i, j] sum_t a_t[i] e_{t+1}[j] b_{t+1}[j] / c_{t+1}

Scaled by c at each step, so that no chain is too long, and by the largest message of each item. Items are visited in
the order of `rows`; chain s has the places start[s] to start[s + 1]. Each thread takes a run of chains.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, prange

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, threaded

Indices = npt.NDArray[np.int64]

SERIAL_BELOW = 10_000
"""Items below which the calling thread does the work alone."""


class Passed(NamedTuple):
    """Beliefs (N, J), the log evidence of each chain (S,), expected first classes (J,) and pairs of classes (J, J)."""

    q_nj: Floats
    log_z_s: Floats
    first_j: Floats
    pairs_ij: Floats


def forward_backward(message_nj: Floats, rows: Indices, start: Indices, first_j: Floats, step_ij: Floats) -> Passed:
    """Exact beliefs of chains that begin with `first_j` and go on by `step_ij`, rows of which sum to 1.

    A chain that is impossible, as known truth and forbidden steps may make one, has log evidence -inf, and beliefs NaN.
    """
    n_chains, j = len(start) - 1, len(first_j)
    threads = 1 if len(rows) < SERIAL_BELOW else int(get_num_threads())
    runs = np.array([0, *(bisect_left(start, part * len(rows) / threads) for part in range(1, threads)), n_chains])
    q_nj, log_z_s = np.empty_like(message_nj), np.empty(n_chains)
    first_rj, pairs_rij = np.zeros((len(runs) - 1, j)), np.zeros((len(runs) - 1, j, j))
    steps = np.ascontiguousarray(step_ij), np.ascontiguousarray(step_ij.T)
    top_n = np.empty(len(message_nj))
    (_below_top if threads == 1 else _below_top_threaded)(message_nj, top_n, q_nj)
    np.exp(q_nj, out=q_nj)  # many at once: a third of the time of one by one
    longest = int(np.diff(start).max(initial=0))
    given = (runs, longest, top_n, rows, start, np.ascontiguousarray(first_j), *steps)
    (_pass if threads == 1 else _pass_threaded)(*given, q_nj, log_z_s, first_rj, pairs_rij)
    return Passed(q_nj, log_z_s, first_rj.sum(axis=0), pairs_rij.sum(axis=0) * step_ij)


@compiled
def _row_below_top(message: Any, top: Any, below: Any, n: int) -> None:
    top[n] = -np.inf
    for i in range(message.shape[1]):
        top[n] = max(top[n], message[n, i])
    for i in range(message.shape[1]):
        below[n, i] = message[n, i] - top[n]


@compiled
def _below_top(message: Any, top: Any, below: Any) -> None:
    """The largest message of each item, and all of them less it."""
    for n in range(len(message)):
        _row_below_top(message, top, below, n)


@threaded
def _below_top_threaded(message: Any, top: Any, below: Any) -> None:
    for n in prange(len(message)):
        _row_below_top(message, top, below, n)


@compiled
def _chain(
    top: Any, rows: Any, first: Any, step: Any, turned: Any, q: Any, own_first: Any, own_pairs: Any, e: Any
) -> float:
    """One chain: exp(messages - top) in `q` become beliefs, expected counts are added; its log evidence.

    `turned` (J, J) is `step` by columns: the inner loops then go through memory in its order, so that several classes
    are added at once. `e` (T, J) is room to work in.
    """
    j = first.shape[0]
    log_z = 0.0
    ahead, back, later = np.empty(j), np.ones(j), np.empty(j)
    for t in range(len(rows)):
        if t == 0:
            ahead[:] = first
        else:
            ahead[:] = 0.0
            for h in range(j):
                before = q[rows[t - 1], h]
                for i in range(j):
                    ahead[i] += before * step[h, i]
        total = 0.0
        for i in range(j):
            e[t, i] = q[rows[t], i]
            q[rows[t], i] = ahead[i] * e[t, i]
            total += q[rows[t], i]
        for i in range(j):
            q[rows[t], i] /= total
            e[t, i] /= total
        log_z += np.log(total) + top[rows[t]]
    for t in range(len(rows) - 2, -1, -1):
        for i in range(j):
            later[i] = e[t + 1, i] * back[i]
        back[:] = 0.0
        for h in range(j):
            after = later[h]
            for i in range(j):
                back[i] += turned[h, i] * after
        total = 0.0
        for i in range(j):
            forward = q[rows[t], i]
            for h in range(j):
                own_pairs[i, h] += forward * later[h]
            q[rows[t], i] = forward * back[i]
            total += q[rows[t], i]
        for i in range(j):  # 1 to rounding; a class that alone is possible has exactly 1
            q[rows[t], i] /= total
    for i in range(j):
        own_first[i] += q[rows[0], i]
    return log_z


@compiled
def _pass(
    runs: Any,
    longest: int,
    top: Any,
    rows: Any,
    start: Any,
    first: Any,
    step: Any,
    turned: Any,
    q: Any,
    log_z: Any,
    firsts: Any,
    pairs: Any,
) -> None:
    room = np.empty((longest, first.shape[0]))
    for s in range(len(start) - 1):
        log_z[s] = _chain(top, rows[start[s] : start[s + 1]], first, step, turned, q, firsts[0], pairs[0], room)


@threaded
def _pass_threaded(
    runs: Any,
    longest: int,
    top: Any,
    rows: Any,
    start: Any,
    first: Any,
    step: Any,
    turned: Any,
    q: Any,
    log_z: Any,
    firsts: Any,
    pairs: Any,
) -> None:
    for run in prange(len(runs) - 1):
        room = np.empty((longest, first.shape[0]))
        own_first, own_pairs = np.zeros(first.shape[0]), np.zeros(step.shape)
        for s in range(runs[run], runs[run + 1]):
            log_z[s] = _chain(top, rows[start[s] : start[s + 1]], first, step, turned, q, own_first, own_pairs, room)
        firsts[run], pairs[run] = own_first, own_pairs
