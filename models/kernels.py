"""The hot loops: one pass over the M annotations each, and one over the N items.

    messages   L[n, j]    = sum over labels (n, k, l) of log_pi[k, l, j]     annotator model -> items
    counts     C[k, l, j] = sum over labels (n, k, l) of q[n, j]             items -> annotator model
    beliefs    q[n, :]    = softmax(log_prior[n, :] + L[n, :]), and its log normaliser

The annotations are a sparse N x KL matrix A of ones, kept by rows: item n has the columns
cell[item_start[n]:item_start[n + 1]], cell = k * L + l. What belongs to annotators is a KL x J table (true classes
innermost: the inner loops are contiguous), so messages = A @ log_pi and counts = A.T @ q.

Each thread takes a run of items with its share of the labels, however unequal items and annotators are. For counts
it adds into a table of its own; the tables are added up at the end. That needs no atomics, and no second copy of the
annotations ordered by annotator, whose random reads of q would cost more than all the rest. Small tables are left to
the calling thread: waking others costs more than the work.
"""

from __future__ import annotations

from bisect import bisect_left
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, prange

from hitl.annotations import Annotations, Floats
from hitl.models.compiled import compiled, inlined, threaded

SERIAL_BELOW = 50_000
"""Labels (or items) below which the calling thread does the work alone."""

TABLES = 2**28
"""Bytes the tables of counts of all threads may take; where they would take more, fewer threads count."""

BLOCK = 64
"""Items that `beliefs` takes at a time: few enough for the fastest cache, enough for vector instructions."""


def messages(annotations: Annotations, log_pi_klj: Floats) -> Floats:
    """(N, J) sum of each item's log likelihoods; 0 for an item without labels. `log_pi_klj` is (K, L, J)."""
    out = np.empty((annotations.n_items, annotations.n_classes))
    table = np.ascontiguousarray(log_pi_klj).reshape(-1, annotations.n_classes)
    runs = _runs(annotations, _threads(len(annotations)))
    if len(runs) == 2:
        _gather(0, len(out), annotations.item_start, annotations.cell, table, out)
    else:
        _gather_threaded(runs, annotations.item_start, annotations.cell, table, out)
    return out


def counts(annotations: Annotations, q_nj: Floats, among_n: npt.NDArray[np.bool_] | None = None) -> Floats:
    """(K, L, J) expected number of times annotator k said l for an item of class j, among some items or all."""
    shape = annotations.n_annotators, annotations.n_options, annotations.n_classes
    size = 8 * int(np.prod(shape))
    runs = _runs(annotations, min(_threads(len(annotations)), max(1, TABLES // max(1, size))))
    tables = np.zeros((len(runs) - 1, shape[0] * shape[1], shape[2]))
    among = np.ones(annotations.n_items, bool) if among_n is None else among_n
    q_nj = np.ascontiguousarray(q_nj)
    if len(runs) == 2:
        _scatter(0, len(q_nj), annotations.item_start, annotations.cell, q_nj, among, tables[0])
    else:
        _scatter_threaded(runs, annotations.item_start, annotations.cell, q_nj, among, tables)
    return tables[0].reshape(shape)


def beliefs(message_nj: Floats, log_prior_nj: Floats, out: Floats | None = None) -> tuple[Floats, Floats]:
    """(N, J) posterior rows and (N,) log normalisers. `log_prior_nj` may have one row for all items.

    `out` takes the posterior; it may be `message_nj` itself, which saves a pass through memory.
    """
    out = np.empty_like(message_nj) if out is None else out
    log_z_n = np.empty(len(out))
    log_prior_nj = np.ascontiguousarray(np.atleast_2d(log_prior_nj))
    threads = _threads(len(out))
    if threads == 1:
        _softmax(0, len(out), message_nj, log_prior_nj, out, log_z_n)
    else:
        _softmax_threaded(np.linspace(0, len(out), threads + 1).astype(np.int64), message_nj, log_prior_nj, out, log_z_n)
    return out, log_z_n


def log_normalisers(log_p_mnj: Floats, weight_nm: Floats) -> Floats:
    """(N,) log sum_j exp(sum_m weight[n, m] * log_p[m, n, j]), the normaliser of a log-linear pool."""
    out = np.empty(log_p_mnj.shape[1])
    _log_normalisers(log_p_mnj, np.ascontiguousarray(weight_nm), out)
    return out


def _threads(size: int) -> int:
    return 1 if size < SERIAL_BELOW else int(get_num_threads())


def _runs(annotations: Annotations, threads: int) -> npt.NDArray[np.int64]:
    """(threads + 1,) bounds of runs of items with equal numbers of labels and items together."""
    start, n = annotations.item_start, annotations.n_items
    work = (len(annotations) + n) / threads
    inner = [bisect_left(range(n), part * work, key=lambda item: start[item] + item) for part in range(1, threads)]
    return np.array([0, *inner, n])


@compiled
def _gather(first: int, last: int, start: Any, cell: Any, table: Any, out: Any) -> None:
    for n in range(first, last):
        row = out[n]
        row[:] = 0.0
        for m in range(start[n], start[n + 1]):
            term = table[cell[m]]
            for j in range(row.shape[0]):
                row[j] += term[j]


@threaded
def _gather_threaded(runs: Any, start: Any, cell: Any, table: Any, out: Any) -> None:
    for run in prange(len(runs) - 1):
        _gather(runs[run], runs[run + 1], start, cell, table, out)


@compiled
def _scatter(first: int, last: int, start: Any, cell: Any, q: Any, among: Any, out: Any) -> None:
    for n in range(first, last):
        if among[n]:
            row = q[n]
            for m in range(start[n], start[n + 1]):
                sums = out[cell[m]]
                for j in range(row.shape[0]):
                    sums[j] += row[j]


@threaded
def _scatter_threaded(runs: Any, start: Any, cell: Any, q: Any, among: Any, tables: Any) -> None:
    for run in prange(len(runs) - 1):
        _scatter(runs[run], runs[run + 1], start, cell, q, among, tables[run])
    for c in prange(tables.shape[1]):
        for run in range(1, tables.shape[0]):
            for j in range(tables.shape[2]):
                tables[0, c, j] += tables[run, c, j]


@compiled
def _softmax(first: int, last: int, message: Any, log_prior: Any, out: Any, log_z: Any) -> None:
    for begin in range(first, last, BLOCK):
        end = min(begin + BLOCK, last)
        for n in range(begin, end):
            prior = log_prior[n if log_prior.shape[0] > 1 else 0]
            top = -np.inf
            for j in range(out.shape[1]):
                out[n, j] = message[n, j] + prior[j]
                top = max(top, out[n, j])
            for j in range(out.shape[1]):
                out[n, j] -= top
            log_z[n] = top
        block = out[begin:end].ravel()
        for i in range(block.shape[0]):
            block[i] = _exp(block[i])
        for n in range(begin, end):
            total = 0.0
            for j in range(out.shape[1]):
                total += out[n, j]
            for j in range(out.shape[1]):
                out[n, j] /= total
            log_z[n] += np.log(total)


@threaded
def _softmax_threaded(runs: Any, message: Any, log_prior: Any, out: Any, log_z: Any) -> None:
    for run in prange(len(runs) - 1):
        _softmax(runs[run], runs[run + 1], message, log_prior, out, log_z)


_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # k * high is exact
_TAYLOR = tuple(1 / factorial(i) for i in range(13, -1, -1))


@inlined
def _exp(x: float) -> float:
    """e**x for x <= 0 to the last two bits; 0 below e**-708.

    With x = k ln 2 + r and |r| < 0.35, k goes to the exponent's bits and the rest is a short Taylor series. Plain
    arithmetic, unlike a call of the mathematical library, becomes vector instructions: ten times as fast.
    """
    k = np.floor(x * _LOG2_E + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = 0.0
    for coefficient in _TAYLOR:
        series = series * r + coefficient
    exponent = np.int64(np.int64(k) + 1023 << 52)
    return 0.0 if x < -708.0 else series * exponent.view(np.float64)


@compiled
def _log_normalisers(log_p: Any, weight: Any, out: Any) -> None:
    logits = np.empty(log_p.shape[2])
    for n in range(out.shape[0]):
        top = -np.inf
        for j in range(logits.shape[0]):
            value = 0.0
            for m in range(log_p.shape[0]):
                value += weight[n, m] * log_p[m, n, j]
            logits[j] = value
            top = max(top, value)
        total = 0.0
        for j in range(logits.shape[0]):
            total += np.exp(logits[j] - top)
        out[n] = top + np.log(total)
