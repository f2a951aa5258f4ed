"""Forward and backward passes over many Markov chains (Rabiner 1989; Traganitis & Giannakis 2019, appendix A).

    forward    a_t[j]  = p(z_t = j | messages up to t)         c_t = p(messages of t | earlier messages)
    backward   b_t[i]  = sum_j step[i, j] e_{t+1}[j] b_{t+1}[j] / c_{t+1}                   e = exp messages
    beliefs    q_t     = a_t b_t        log evidence = sum_t ln c_t
    pairs      x[i, j] = step[i, j] sum_t a_t[i] e_{t+1}[j] b_{t+1}[j] / c_{t+1}

Each step is scaled by c and by the item's largest message, so chains can have any length. Items are visited in
the order of `rows`; chain s occupies its positions start[s] to start[s + 1]. Each thread processes a run of chains.

The most probable path of a chain (Viterbi 1967; Rabiner 1989, section III B) is traced back from the largest value at
its end; ties go to the first class:

    best_1[j] = first[j] + L_1[j]      best_t[j] = max_i (best_{t-1}[i] + step[i, j]) + L_t[j]          all in logs
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Ints
from hitl.models.numerics.compiled import compiled, in_runs, runs_of

Indices = npt.NDArray[np.int64]


class Passed(NamedTuple):
    """Beliefs (N, J), log evidence of each chain (S,), and expected numbers of first classes (J,) and pairs (J, J)."""

    q_nj: Floats
    log_z_s: Floats
    first_j: Floats
    pairs_ij: Floats


def forward_backward(message_nj: Floats, rows: Indices, start: Indices, first_j: Floats, step_ij: Floats) -> Passed:
    """Compute exact beliefs of chains with first-class probabilities `first_j` and transitions `step_ij`.

    `first_j` and the rows of `step_ij` sum to 1, or to less in variational Bayes. If ground truth and forbidden
    transitions make a chain impossible, its log evidence is -inf or NaN and its beliefs are NaN.
    """
    q_nj, top_n, log_z_s = np.empty_like(message_nj), np.empty(len(message_nj)), np.empty(len(start) - 1)
    in_runs(_below_top, runs_of(len(message_nj)), message_nj, top_n, q_nj)
    np.exp(q_nj, out=q_nj)  # on the array, three times as fast as item by item
    places = runs_of(len(rows))
    runs = np.array([0, *(bisect_left(start, place) for place in places[1:-1]), len(start) - 1])
    steps = np.ascontiguousarray(step_ij), np.ascontiguousarray(step_ij.T)
    sums = in_runs(_pass, runs, top_n, rows, start, np.ascontiguousarray(first_j), *steps, q_nj, log_z_s)
    firsts, pairs = zip(*sums, strict=True)
    return Passed(q_nj, log_z_s, np.sum(firsts, axis=0), np.sum(pairs, axis=0) * step_ij)


@compiled
def _below_top(first: int, last: int, message: Any, top: Any, below: Any) -> None:
    """Write each item's largest message, and its messages minus that."""
    for n in range(first, last):
        top[n] = -np.inf
        for i in range(message.shape[1]):
            top[n] = max(top[n], message[n, i])
        for i in range(message.shape[1]):
            below[n, i] = message[n, i] - top[n]


@compiled
def _chain(
    top: Any, rows: Any, first: Any, step: Any, turned: Any, q: Any, own_first: Any, own_pairs: Any, e: Any
) -> float:
    """Replace exp(messages - top) in `q` by beliefs, add expected counts, and return the log evidence of one chain.

    `turned` (J, J) is the transpose of `step`, so that inner loops read memory in order. `e` (T, J) is workspace.
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
        for i in range(j):  # the total is 1 up to rounding; a class that is the only possible one gets exactly 1
            q[rows[t], i] /= total
    for i in range(j):
        own_first[i] += q[rows[0], i]
    return log_z


@compiled
def _pass(
    begin: int, end: int, top: Any, rows: Any, start: Any, first: Any, step: Any, turned: Any, q: Any, log_z: Any
) -> Any:
    """Process chains `begin` to `end`. Return expected first classes (J,), and pairs (J, J) not yet times `step`."""
    own_first, own_pairs = np.zeros(first.shape[0]), np.zeros(step.shape)
    longest = 0
    for s in range(begin, end):
        longest = max(longest, start[s + 1] - start[s])
    room = np.empty((longest, first.shape[0]))
    for s in range(begin, end):
        log_z[s] = _chain(top, rows[start[s] : start[s + 1]], first, step, turned, q, own_first, own_pairs, room)
    return own_first, own_pairs


def most_probable(message_nj: Floats, rows: Indices, start: Indices, first_j: Floats, step_ij: Floats) -> Ints:
    """Return (N,) class codes of each chain's most probable path; `first_j` and rows of `step_ij` sum to 1."""
    path_n = np.empty(len(message_nj), np.int32)
    with np.errstate(divide="ignore"):
        log_first_j, log_step_ij = np.log(first_j), np.log(step_ij)
    _paths(message_nj, rows, start, log_first_j, log_step_ij, path_n)
    return path_n


@compiled
def _paths(message: Any, rows: Any, start: Any, first: Any, step: Any, path: Any) -> None:
    longest = 0
    for s in range(len(start) - 1):
        longest = max(longest, start[s + 1] - start[s])
    came = np.empty((longest, first.shape[0]), np.int32)
    for s in range(len(start) - 1):
        _path(message, rows[start[s] : start[s + 1]], first, step, path, came)


@compiled
def _path(message: Any, rows: Any, first: Any, step: Any, path: Any, came: Any) -> None:
    """Write the path of one chain; `came` (T, J) is workspace for the previous class."""
    classes = first.shape[0]
    best, new = np.empty(classes), np.empty(classes)
    for j in range(classes):
        best[j] = first[j] + message[rows[0], j]
    for t in range(1, len(rows)):
        for j in range(classes):
            top, from_class = best[0] + step[0, j], 0
            for i in range(1, classes):
                if best[i] + step[i, j] > top:
                    top, from_class = best[i] + step[i, j], i
            new[j] = top + message[rows[t], j]
            came[t, j] = from_class
        best[:] = new
    code = 0
    for j in range(1, classes):
        if best[j] > best[code]:
            code = j
    for t in range(len(rows) - 1, -1, -1):
        path[rows[t]] = code
        if t:
            code = came[t, code]
