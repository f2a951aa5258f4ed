"""Compiled loops: passes over the M annotations and over the N items.

    messages   L[n, j]    = sum over labels (n, k, l) of log_pi[k, l, j]     annotator model -> items
    counts     C[k, l, j] = sum over labels (n, k, l) of q[n, j]             items -> annotator model
    beliefs    q[n, :]    = softmax(log_prior[n, :] + L[n, :]), and its log normalizer
    totals     t[j]       = sum over items of weight[n] * q[n, j]            items -> class shares

The annotations are a sparse N x KL matrix A of ones, stored by rows: item n has the columns
cell[item_start[n]:item_start[n + 1]], cell = k * L + l. Annotator parameters are a KL x J table (true classes
innermost, so that inner loops are contiguous). Hence messages = A @ log_pi and counts = A.T @ q.

Each thread gets a run of items with an equal part of the labels, however uneven items and annotators are, and counts
into its own table. So neither atomic operations are needed nor a second copy of the annotations ordered by annotator,
whose random reads of q would dominate the cost.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import get_num_threads

from hitl.annotations import Annotations, Floats
from hitl.models.numerics.compiled import compiled, in_runs, inlined

SERIAL_BELOW = 50_000
"""Number of labels (or items) below which the calling thread does all the work."""

TABLES = 2**28
"""Maximum size, in bytes, of the count tables of all threads together. Above it, fewer threads count."""

BLOCK = 64
"""Items that `beliefs` processes at a time: few enough for the fastest cache, enough for vector instructions."""


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Labels of a subset of items, with the fields of `Annotations` that the loops read."""

    item_start: npt.NDArray[np.int64]
    cell: npt.NDArray[Any]
    n_annotators: int
    n_options: int
    n_classes: int

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_start) - 1

    def __len__(self) -> int:
        return len(self.cell)


Labels = Annotations | Rows


def messages(annotations: Labels, log_pi_klj: Floats) -> Floats:
    """Return (N, J) log likelihoods of each item's labels, from `log_pi_klj` (K, L, J); 0 for items without labels."""
    return _gathered(annotations, annotations.cell, log_pi_klj)


def votes(annotations: Annotations) -> Floats:
    """Return (N, J) number of labels for each class."""
    return _gathered(annotations, annotations.label, np.eye(annotations.n_options, annotations.n_classes))


def _gathered(annotations: Labels, row_m: npt.NDArray[Any], rows: Floats) -> Floats:
    """Return (N, J) sum, over each item's labels, of the row (J,) that `row_m` selects."""
    out = np.empty((annotations.n_items, annotations.n_classes))
    table = np.ascontiguousarray(rows).reshape(-1, annotations.n_classes)
    runs = equal_runs(annotations, threads_for(len(annotations)))
    in_runs(gather, runs, annotations.item_start, row_m, table, out)
    return out


def counts(annotations: Labels, q_nj: Floats, weight_n: npt.NDArray[Any] | None = None) -> Floats:
    """Return (K, L, J) expected number of times annotator k answered l for an item of class j.

    `weight_n` (N,) weights or selects items. None counts all items equally.
    """
    shape = annotations.n_annotators, annotations.n_options, annotations.n_classes
    runs = equal_runs(annotations, threads_counting(len(annotations), 8 * shape[0] * shape[1] * shape[2]))
    weight_n = np.ones(annotations.n_items, bool) if weight_n is None else weight_n
    given = annotations.item_start, annotations.cell, np.ascontiguousarray(q_nj), weight_n, shape[0] * shape[1]
    return _added(in_runs(_counted, runs, *given)).reshape(shape)


def beliefs(message_nj: Floats, log_prior_nj: Floats, out: Floats | None = None) -> tuple[Floats, Floats]:
    """Return (N, J) beliefs and (N,) log normalizers. `log_prior_nj` has one row per item, or one row for all items.

    Beliefs are written to `out`, a contiguous array. Passing `message_nj` itself as `out` saves a pass through memory.
    """
    out = np.empty(message_nj.shape) if out is None else out
    assert out.flags.c_contiguous
    log_z_n = np.empty(len(out))
    log_prior_nj = np.ascontiguousarray(np.atleast_2d(log_prior_nj))
    in_runs(softmax, even_runs(len(out)), message_nj, log_prior_nj, out, log_z_n)
    return out, log_z_n


def totals(q_nj: Floats, weight_n: npt.NDArray[Any]) -> Floats:
    """Return (J,) expected number of items of each class; `weight_n` (N,) weights or selects items."""
    return _added(in_runs(_total, even_runs(len(q_nj)), np.ascontiguousarray(q_nj), weight_n))


def expect(labels: Labels, log_pi_klj: Floats, log_prior_j: Floats) -> tuple[Floats, Floats, float]:
    """Compute messages, beliefs and counts in one pass, in which beliefs stay in the fastest cache.

    Return (K, L, J) counts, (J,) totals, and the sum of log normalizers. Every item counts, and all items have the same
    prior.
    """
    table = np.ascontiguousarray(log_pi_klj).reshape(-1, labels.n_classes)
    runs = equal_runs(labels, threads_counting(len(labels), table.nbytes))
    counted, sums = zip(*in_runs(_expect, runs, labels.item_start, labels.cell, table, log_prior_j[None]), strict=True)
    total = _added(list(sums))
    return _added(list(counted)).reshape(log_pi_klj.shape), total[:-1], float(total[-1])


def _added(parts: list[Floats]) -> Floats:
    """Add all parts to the first, in place."""
    for part in parts[1:]:
        parts[0] += part
    return parts[0]


def pooled(log_p_mnj: Floats, weight_nm: Floats) -> tuple[Floats, Floats]:
    """Return (N, J) log probabilities of the pool sum_m weight[n, m] log_p[m, n, j], and its (N,) normalizers."""
    logit_nj = np.einsum("mnj,nm->nj", log_p_mnj, weight_nm)
    n_classes = logit_nj.shape[1]
    _, log_z_n = beliefs(logit_nj, np.zeros((1, n_classes)))
    logit_nj -= np.repeat(log_z_n, n_classes).reshape(logit_nj.shape)  # numpy is slow at broadcasting over short rows
    return logit_nj, log_z_n


def pool_moments(feature_mnj: Floats, q_nj: Floats, weight_m: Floats) -> tuple[Floats, Floats]:
    """Return gradient (M,) and curvature (M, M) of sum_nj q_nj ln p_nj in u, where p_nj ∝ exp sum_m u_m feature_mnj."""
    logit_nj = np.einsum("m,mnj->nj", weight_m, feature_mnj)
    p_nj, _ = beliefs(logit_nj, np.zeros((1, logit_nj.shape[1])), out=logit_nj)
    gradient_m = np.einsum("nj,mnj->m", q_nj - p_nj, feature_mnj)
    mean_mn = np.einsum("nj,mnj->mn", p_nj, feature_mnj)
    both_mm = np.einsum("mnj,knj->mk", p_nj * feature_mnj, feature_mnj)  # BLAS is no faster, and its threads spin after
    return gradient_m, both_mm - np.einsum("mn,kn->mk", mean_mn, mean_mn)


def threads_for(size: int) -> int:
    """Return the number of threads that share this many labels or items."""
    return 1 if size < SERIAL_BELOW else int(get_num_threads())


def threads_counting(labels: int, table: int) -> int:
    """Return the number of threads for this many labels, if each thread needs its own table of `table` bytes."""
    return min(threads_for(labels), max(1, TABLES // max(1, table)))


def even_runs(size: int) -> npt.NDArray[np.int64]:
    """Return (threads + 1,) bounds of runs with equal numbers of items."""
    threads = threads_for(size)
    return np.asarray(np.arange(threads + 1) * size // threads)  # np.linspace takes ten times as long


def equal_runs(annotations: Labels, threads: int) -> npt.NDArray[np.int64]:
    """Return (threads + 1,) bounds of runs of items, equal in their number of labels plus items."""
    start, n = annotations.item_start, annotations.n_items
    work = (len(annotations) + n) / threads
    inner = [bisect_left(range(n), part * work, key=lambda item: start[item] + item) for part in range(1, threads)]
    return np.array([0, *inner, n])


@compiled
def gather(first: int, last: int, start: Any, cell: Any, table: Any, out: Any) -> None:
    """Write to `out` the messages of items `first` to `last`: the sum of each item's rows of the table."""
    for n in range(first, last):
        row = out[n]
        row[:] = 0.0
        m, end = start[n], start[n + 1]
        while m + 4 <= end:  # four labels at a time: a quarter of the reads and writes of the row
            a, b, c, d = table[cell[m]], table[cell[m + 1]], table[cell[m + 2]], table[cell[m + 3]]
            for j in range(row.shape[0]):
                row[j] += (a[j] + b[j]) + (c[j] + d[j])
            m += 4
        for rest in range(m, end):
            term = table[cell[rest]]
            for j in range(row.shape[0]):
                row[j] += term[j]


@compiled
def scatter(first: int, last: int, start: Any, cell: Any, q: Any, weight: Any, out: Any) -> None:
    """Add the row of each item from `first` to `last`, times its weight, to the table rows of the item's labels."""
    for n in range(first, last):
        times = weight[n]
        if times:
            row = q[n]
            for m in range(start[n], start[n + 1]):
                sums = out[cell[m]]
                for j in range(row.shape[0]):
                    sums[j] += times * row[j]


@compiled
def _counted(first: int, last: int, start: Any, cell: Any, q: Any, weight: Any, cells: int) -> Any:
    out = np.zeros((cells, q.shape[1]))
    scatter(first, last, start, cell, q, weight, out)
    return out


@compiled
def _total(first: int, last: int, q: Any, weight: Any) -> Any:
    own = np.zeros(q.shape[1])
    for n in range(first, last):
        times = weight[n]
        if times:
            for j in range(own.shape[0]):
                own[j] += times * q[n, j]
    return own


@compiled
def softmax(first: int, last: int, message: Any, log_prior: Any, out: Any, log_z: Any) -> None:
    """Write beliefs and log normalizers of items `first` to `last`; `log_prior` has one row, or one row per item."""
    totals = np.empty(BLOCK)
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
            block[i] = exp_nonpositive(block[i])
        for n in range(begin, end):
            total = 0.0
            for j in range(out.shape[1]):
                total += out[n, j]
            share = 1 / total
            for j in range(out.shape[1]):
                out[n, j] *= share
            totals[n - begin] = total
        tops = log_z[begin:end]
        for i in range(tops.shape[0]):
            tops[i] += log_above_one(totals[i])


@compiled
def _expect(first: int, last: int, start: Any, cell: Any, table: Any, log_prior: Any) -> Any:
    classes = table.shape[1]
    rows, log_z, among = np.empty((BLOCK, classes)), np.empty(BLOCK), np.ones(BLOCK, dtype=np.bool_)
    out, own = np.zeros(table.shape), np.zeros(classes + 1)
    for begin in range(first, last, BLOCK):
        size = min(begin + BLOCK, last) - begin
        block, tops = rows[:size], log_z[:size]
        gather(0, size, start[begin:], cell, table, block)
        softmax(0, size, block, log_prior, block, tops)
        scatter(0, size, start[begin:], cell, block, among, out)
        for i in range(size):
            for j in range(classes):
                own[j] += block[i, j]
            own[classes] += tops[i]
    return out, own


# Written as plain arithmetic, the exponential and the logarithm compile to vector instructions, several times as fast
# as calls into the math library. Integers and floats are converted through the last bits of _SHIFT + number, because
# few processors have an instruction that converts vectors.
_SHIFT = 1.5 * 2.0**52
_SHIFT_BITS = int(np.float64(_SHIFT).view(np.int64))
_ROOT_HALF_BITS = int(np.sqrt(0.5).view(np.int64))
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # k * high is exact
_TAYLOR = tuple(1 / factorial(i) for i in range(13, -1, -1))
_ARTANH = tuple(2 / i for i in range(21, 0, -2))


@inlined
def exp_nonpositive(x: float) -> float:
    """Return e**x for x <= 0, accurate to the last two bits; 0 below e**-708.

    With x = k ln 2 + r and |r| < 0.35, k goes to the exponent's bits and e**r is a short Taylor series.
    """
    shifted = np.float64(x * _LOG2_E + _SHIFT)
    k = shifted - _SHIFT
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = 0.0
    for coefficient in _TAYLOR:
        series = series * r + coefficient
    power = np.int64(shifted.view(np.int64) + 1023 << 52)
    return 0.0 if x < -708.0 else series * power.view(np.float64)


@inlined
def log_above_one(x: float) -> float:
    """Return ln x for x >= 1, accurate to the last two bits; NaN for anything else."""
    value = log_positive(x)
    return value if x >= 1.0 else np.nan


@inlined
def log_positive(x: float) -> float:
    """Return ln x for a normal number x > 0, accurate to the last two bits.

    With x = 2**k m and m within a factor of sqrt(2) of 1, ln m = 2 artanh((m - 1) / (m + 1)) is a short series.
    """
    bits = np.float64(x).view(np.int64)
    exponent = np.int64(bits - _ROOT_HALF_BITS >> 52)
    mantissa = np.int64(bits - (exponent << 52))
    k = np.int64(exponent + _SHIFT_BITS).view(np.float64) - _SHIFT
    m = mantissa.view(np.float64)
    s = (m - 1) / (m + 1)
    series = 0.0
    for coefficient in _ARTANH:
        series = series * s * s + coefficient
    return k * _LN2_HIGH + (k * _LN2_LOW + s * series)
