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
    given = (runs, message_nj, rows, start, np.ascontiguousarray(first_j), np.ascontiguousarray(step_ij))
    (_pass if threads == 1 else _pass_threaded)(*given, q_nj, log_z_s, first_rj, pairs_rij)
    return Passed(q_nj, log_z_s, first_rj.sum(axis=0), pairs_rij.sum(axis=0) * step_ij)


@compiled
def _chain(message: Any, rows: Any, first: Any, step: Any, q: Any, own_first: Any, own_pairs: Any, e: Any) -> float:
    """One chain: beliefs into `q`, expected counts added; its log evidence. `e` (T, J) is room to work in."""
    j = first.shape[0]
    log_z = 0.0
    for t in range(len(rows)):
        top = -np.inf
        for i in range(j):
            top = max(top, message[rows[t], i])
        total = 0.0
        for i in range(j):
            e[t, i] = np.exp(message[rows[t], i] - top)
            ahead = 0.0
            if t == 0:
                ahead = first[i]
            else:
                for h in range(j):
                    ahead += q[rows[t - 1], h] * step[h, i]
            q[rows[t], i] = ahead * e[t, i]
            total += q[rows[t], i]
        for i in range(j):
            q[rows[t], i] /= total
            e[t, i] /= total
        log_z += np.log(total) + top
    back = np.ones(j)
    later = np.empty(j)
    for t in range(len(rows) - 2, -1, -1):
        for i in range(j):
            later[i] = e[t + 1, i] * back[i]
        total = 0.0
        for i in range(j):
            forward = q[rows[t], i]
            back[i] = 0.0
            for h in range(j):
                back[i] += step[i, h] * later[h]
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
    runs: Any, message: Any, rows: Any, start: Any, first: Any, step: Any, q: Any, log_z: Any, firsts: Any, pairs: Any
) -> None:
    longest = 0
    for s in range(len(start) - 1):
        longest = max(longest, start[s + 1] - start[s])
    room = np.empty((longest, first.shape[0]))
    for s in range(len(start) - 1):
        log_z[s] = _chain(message, rows[start[s] : start[s + 1]], first, step, q, firsts[0], pairs[0], room)


@threaded
def _pass_threaded(
    runs: Any, message: Any, rows: Any, start: Any, first: Any, step: Any, q: Any, log_z: Any, firsts: Any, pairs: Any
) -> None:
    longest = 0
    for s in range(len(start) - 1):
        longest = max(longest, start[s + 1] - start[s])
    for run in prange(len(runs) - 1):
        room = np.empty((longest, first.shape[0]))
        own_first, own_pairs = np.zeros(first.shape[0]), np.zeros(step.shape)
        for s in range(runs[run], runs[run + 1]):
            log_z[s] = _chain(message, rows[start[s] : start[s + 1]], first, step, q, own_first, own_pairs, room)
        firsts[run], pairs[run] = own_first, own_pairs
