"""The hot loops: passes over the M annotations and over the N items.

    messages   L[n, j]    = sum over labels (n, k, l) of log_pi[k, l, j]     annotator model -> items
    counts     C[k, l, j] = sum over labels (n, k, l) of q[n, j]             items -> annotator model
    beliefs    q[n, :]    = softmax(log_prior[n, :] + L[n, :]), and its log normalizer
    totals     t[j]       = sum over items of weight[n] * q[n, j]            items -> class shares

The annotations are a sparse N x KL matrix A of ones, stored by rows: item n has the columns
cell[item_start[n]:item_start[n + 1]], cell = k * L + l. Annotator parameters are a KL x J table (true classes
innermost, so that inner loops are contiguous). Hence messages = A @ log_pi and counts = A.T @ q.

Each thread takes a run of items with an equal share of the labels, however uneven items and annotators are. To count,
each thread adds into its own table, and the tables are summed at the end. That needs no atomics and no second copy of
the annotations ordered by annotator, whose random reads of q would dominate the cost. Small inputs run in the calling
thread, because waking others costs more than the work.
"""

from __future__ import annotations

from bisect import bisect_left
from math import factorial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, prange

from hitl.annotations import Annotations, Floats
from hitl.models.numerics.compiled import compiled, inlined, threaded

SERIAL_BELOW = 50_000
"""Labels (or items) below which the calling thread does the work alone."""

TABLES = 2**28
"""Maximum size, in bytes, of the count tables of all threads together. Above it, fewer threads count."""

BLOCK = 64
"""Items that `beliefs` processes at a time: few enough for the fastest cache, enough for vector instructions."""


class Labels(Protocol):
    """Labels sorted by item, as the loops read them."""

    @property
    def item_start(self) -> npt.NDArray[np.int64]:
        """(N + 1,) index of each item's first label."""
        ...

    @property
    def cell(self) -> npt.NDArray[Any]:
        """(M,) annotator * L + label."""
        ...

    @property
    def n_items(self) -> int:
        """Number of items, N."""
        ...

    @property
    def n_annotators(self) -> int:
        """Number of annotators, K."""
        ...

    @property
    def n_options(self) -> int:
        """Number of options, L."""
        ...

    @property
    def n_classes(self) -> int:
        """Number of classes, J."""
        ...

    def __len__(self) -> int: ...


def messages(annotations: Labels, log_pi_klj: Floats) -> Floats:
    """Return (N, J) sum of each item's log likelihoods; 0 for an item without labels. `log_pi_klj` is (K, L, J)."""
    return _gathered(annotations, annotations.cell, log_pi_klj)


def votes(annotations: Annotations) -> Floats:
    """Return (N, J) number of labels for each class."""
    return _gathered(annotations, annotations.label, np.eye(annotations.n_options, annotations.n_classes))


def _gathered(annotations: Labels, row_m: npt.NDArray[Any], rows: Floats) -> Floats:
    """Return (N, J) sum, over each item's labels, of the row (J,) that `row_m` selects."""
    out = np.empty((annotations.n_items, annotations.n_classes))
    table = np.ascontiguousarray(rows).reshape(-1, annotations.n_classes)
    runs = equal_runs(annotations, threads_for(len(annotations)))
    if len(runs) == 2:
        gather(0, len(out), annotations.item_start, row_m, table, out)
    else:
        _gather_threaded(runs, annotations.item_start, row_m, table, out)
    return out


def counts(annotations: Labels, q_nj: Floats, weight_n: npt.NDArray[Any] | None = None) -> Floats:
    """Return (K, L, J) expected number of times annotator k answered l for an item of class j.

    `weight_n` (N,) weights or selects items. None counts all items equally.
    """
    out = np.zeros((annotations.n_annotators, annotations.n_options, annotations.n_classes))
    table = out.reshape(-1, annotations.n_classes)
    runs = equal_runs(annotations, threads_counting(len(annotations), out.nbytes))
    weight_n = np.ones(annotations.n_items, bool) if weight_n is None else weight_n
    q_nj = np.ascontiguousarray(q_nj)
    if len(runs) == 2:
        scatter(0, len(q_nj), annotations.item_start, annotations.cell, q_nj, weight_n, table)
    else:
        others = np.zeros((len(runs) - 2, *table.shape))
        _scatter_threaded(runs, annotations.item_start, annotations.cell, q_nj, weight_n, table, others)
    return out


def beliefs(message_nj: Floats, log_prior_nj: Floats, out: Floats | None = None) -> tuple[Floats, Floats]:
    """Return (N, J) posterior rows and (N,) log normalizers. `log_prior_nj` may have one row for all items.

    The posterior is written to `out` (contiguous). Passing `message_nj` itself saves a pass through memory.
    """
    out = np.empty(message_nj.shape) if out is None else out
    assert out.flags.c_contiguous
    log_z_n = np.empty(len(out))
    log_prior_nj = np.ascontiguousarray(np.atleast_2d(log_prior_nj))
    runs = even_runs(len(out))
    if len(runs) == 2:
        softmax(0, len(out), message_nj, log_prior_nj, out, log_z_n)
    else:
        _softmax_threaded(runs, message_nj, log_prior_nj, out, log_z_n)
    return out, log_z_n


def totals(q_nj: Floats, weight_n: npt.NDArray[Any]) -> Floats:
    """Return (J,) expected number of items of each class; `weight_n` (N,) weights or selects items.

    A BLAS product is no faster, and its thread keeps spinning beside these loops while it waits for the next product.
    """
    runs = even_runs(len(q_nj))
    sums = np.zeros((len(runs) - 1, q_nj.shape[1]))
    if len(runs) == 2:
        _total(0, len(q_nj), np.ascontiguousarray(q_nj), weight_n, sums[0])
    else:
        _total_threaded(runs, np.ascontiguousarray(q_nj), weight_n, sums)
    total: Floats = sums.sum(axis=0)
    return total


def expect(labels: Labels, log_pi_klj: Floats, log_prior_j: Floats, beside_klj: Floats) -> tuple[Floats, Floats, float]:
    """Compute messages, beliefs and counts in one pass.

    Return (K, L, J) counts added to `beside_klj`, (J,) totals, and the sum of log normalizers. Beliefs stay in the
    fastest cache. Every item counts, and all items have the same prior.
    """
    table = np.ascontiguousarray(log_pi_klj).reshape(-1, labels.n_classes)
    out = beside_klj.copy()
    runs = equal_runs(labels, threads_counting(len(labels), out.nbytes))
    others = np.zeros((len(runs) - 2, *table.shape))
    sums = np.zeros((len(runs) - 1, labels.n_classes + 1))
    loop = _expect_threaded if len(runs) > 2 else _expect_alone
    loop(runs, labels.item_start, labels.cell, table, log_prior_j[None], out.reshape(table.shape), others, sums)
    total: Floats = sums.sum(axis=0)
    return out, total[:-1], float(total[-1])


def log_normalisers(log_p_mnj: Floats, weight_nm: Floats) -> Floats:
    """Return (N,) log sum_j exp(sum_m weight[n, m] * log_p[m, n, j]), the normalizer of a log-linear pool."""
    out = np.empty(log_p_mnj.shape[1])
    _log_normalisers(log_p_mnj, np.ascontiguousarray(weight_nm), out)
    return out


def pooled(log_p_mnj: Floats, weight_nm: Floats) -> Floats:
    """Return (N, J) log probabilities of a log-linear pool: sum_m weight[n, m] * log_p[m, n, j], normalized."""
    out = np.empty(log_p_mnj.shape[1:])
    _pooled(log_p_mnj, np.ascontiguousarray(weight_nm), out)
    return out


def threads_for(size: int) -> int:
    """Return the number of threads that share this many labels or items."""
    return 1 if size < SERIAL_BELOW else int(get_num_threads())


def threads_counting(labels: int, table: int) -> int:
    """Return the number of threads when each needs its own table of `table` bytes."""
    return min(threads_for(labels), max(1, TABLES // max(1, table)))


def even_runs(size: int) -> npt.NDArray[np.int64]:
    """Return (threads + 1,) bounds of runs with equal numbers of items."""
    threads = threads_for(size)
    bounds: npt.NDArray[np.int64] = np.arange(threads + 1) * size // threads  # np.linspace takes ten times as long
    return bounds


def equal_runs(annotations: Labels, threads: int) -> npt.NDArray[np.int64]:
    """Return (threads + 1,) bounds of runs of items with equal numbers of labels plus items."""
    start, n = annotations.item_start, annotations.n_items
    work = (len(annotations) + n) / threads
    inner = [bisect_left(range(n), part * work, key=lambda item: start[item] + item) for part in range(1, threads)]
    return np.array([0, *inner, n])


@compiled
def gather(first: int, last: int, start: Any, cell: Any, table: Any, out: Any) -> None:
    """Compute messages of items `first` to `last`: the sum of each item's rows of the table."""
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


@threaded
def _gather_threaded(runs: Any, start: Any, cell: Any, table: Any, out: Any) -> None:
    for run in prange(len(runs) - 1):
        gather(runs[run], runs[run + 1], start, cell, table, out)


@compiled
def scatter(first: int, last: int, start: Any, cell: Any, q: Any, weight: Any, out: Any) -> None:
    """Add the rows of items, times their weights, into the table."""
    for n in range(first, last):
        times = weight[n]
        if times:
            row = q[n]
            for m in range(start[n], start[n + 1]):
                sums = out[cell[m]]
                for j in range(row.shape[0]):
                    sums[j] += times * row[j]


@threaded
def _scatter_threaded(runs: Any, start: Any, cell: Any, q: Any, weight: Any, out: Any, others: Any) -> None:
    for run in prange(len(runs) - 1):
        # Threaded loops use unsigned indices; subtracting a signed 1 would give a float.
        scatter(runs[run], runs[run + 1], start, cell, q, weight, others[np.int64(run) - 1] if run else out)
    for c in prange(out.shape[0]):
        for other in range(others.shape[0]):
            for j in range(out.shape[1]):
                out[c, j] += others[other, c, j]


@compiled
def _total(first: int, last: int, q: Any, weight: Any, out: Any) -> None:
    own = np.zeros_like(out)  # on a cache line that no other thread writes to
    for n in range(first, last):
        times = weight[n]
        if times:
            for j in range(own.shape[0]):
                own[j] += times * q[n, j]
    out[:] = own


@threaded
def _total_threaded(runs: Any, q: Any, weight: Any, sums: Any) -> None:
    for run in prange(len(runs) - 1):
        _total(runs[run], runs[run + 1], q, weight, sums[run])


@compiled
def softmax(first: int, last: int, message: Any, log_prior: Any, out: Any, log_z: Any) -> None:
    """Compute beliefs of items `first` to `last` and their log normalizers; `log_prior` has one row or one per item."""
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
def _expect(first: int, last: int, start: Any, cell: Any, table: Any, log_prior: Any, out: Any, sums: Any) -> None:
    classes = table.shape[1]
    rows, log_z, among = np.empty((BLOCK, classes)), np.empty(BLOCK), np.ones(BLOCK, dtype=np.bool_)
    own = np.zeros(classes + 1)  # on a cache line that no other thread writes to
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
    sums[:] = own


@compiled
def _expect_alone(
    runs: Any, start: Any, cell: Any, table: Any, log_prior: Any, out: Any, others: Any, sums: Any
) -> None:
    _expect(runs[0], runs[1], start, cell, table, log_prior, out, sums[0])


@threaded
def _expect_threaded(
    runs: Any, start: Any, cell: Any, table: Any, log_prior: Any, out: Any, others: Any, sums: Any
) -> None:
    for run in prange(len(runs) - 1):
        mine = others[np.int64(run) - 1] if run else out
        _expect(runs[run], runs[run + 1], start, cell, table, log_prior, mine, sums[run])
    for c in prange(out.shape[0]):
        for other in range(others.shape[0]):
            for j in range(out.shape[1]):
                out[c, j] += others[other, c, j]


@threaded
def _softmax_threaded(runs: Any, message: Any, log_prior: Any, out: Any, log_z: Any) -> None:
    for run in prange(len(runs) - 1):
        softmax(runs[run], runs[run + 1], message, log_prior, out, log_z)


# Written as plain arithmetic, the exponential and the logarithm compile to vector instructions, several times as fast
# as calls into the math library. Integers and floats are converted through the last bits of _SHIFT + number, because
# few processors can convert whole vectors otherwise.
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


@compiled
def _pooled(log_p: Any, weight: Any, out: Any) -> None:
    for n in range(out.shape[0]):
        top = -np.inf
        for j in range(out.shape[1]):
            value = 0.0
            for m in range(log_p.shape[0]):
                value += weight[n, m] * log_p[m, n, j]
            out[n, j] = value
            top = max(top, value)
        total = 0.0
        for j in range(out.shape[1]):
            total += np.exp(out[n, j] - top)
        top += np.log(total)
        for j in range(out.shape[1]):
            out[n, j] -= top


@compiled
def add_pool_moments(feature: Any, q: Any, weight: Any, gradient: Any, curvature: Any) -> None:
    """Add gradient (M,) and curvature (M, M) of sum_nj q_nj ln p_nj in u, where p_nj ∝ exp sum_m u_m feature_mnj."""
    models, items, classes = feature.shape
    p, mean = np.empty(classes), np.empty(models)
    for n in range(items):
        top = -np.inf
        for j in range(classes):
            p[j] = 0.0
            for m in range(models):
                p[j] += weight[m] * feature[m, n, j]
            top = max(top, p[j])
        total = 0.0
        for j in range(classes):
            p[j] = np.exp(p[j] - top)
            total += p[j]
        for m in range(models):
            mean[m] = 0.0
            expected = 0.0
            for j in range(classes):
                mean[m] += p[j] / total * feature[m, n, j]
                expected += q[n, j] * feature[m, n, j]
            gradient[m] += expected - mean[m]
        for m in range(models):
            for other in range(models):
                both = 0.0
                for j in range(classes):
                    both += p[j] / total * feature[m, n, j] * feature[other, n, j]
                curvature[m, other] += both - mean[m] * mean[other]
