"""The hot loops: one pass over the M annotations each, and one over the N items.

    messages   L[n, j]    = sum over labels (n, k, l) of log_pi[k, l, j]     annotator model -> items
    counts     C[k, l, j] = sum over labels (n, k, l) of q[n, j]             items -> annotator model
    beliefs    q[n, :]    = softmax(log_prior[n, :] + L[n, :]), and its log normaliser

Arrays that belong to annotators are laid out (K, L, J) here, so that the inner loop over true classes is
contiguous. Each loop exists twice: threads over items (CSR) or annotators (CSC), without atomics, and a serial
twin for small tables, where waking threads costs more than the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, prange

from hitl.annotations import Annotations, Floats

SERIAL_BELOW = 50_000
"""Annotations (or items) below which the serial twin is used."""

_F = TypeVar("_F", bound=Callable[..., Any])


def _compiled(function: _F) -> _F:
    return _kept(function, {"nogil": True})


def _threaded(function: _F) -> _F:
    return _kept(function, {"nogil": True, "parallel": True})


def _kept(function: _F, options: dict[str, Any]) -> _F:
    try:
        return cast(_F, njit(cache=True, **options)(function))
    except RuntimeError:  # nowhere to keep the compiled code (a read-only installation): compile in every process
        return cast(_F, njit(**options)(function))


def messages(annotations: Annotations, log_pi_klj: Floats) -> Floats:
    """(N, J) sum of each item's log likelihoods; 0 for an item without labels. `log_pi_klj` is (K, L, J)."""
    out = np.zeros((annotations.n_items, annotations.n_classes))
    loop = _messages_serial if len(annotations) < SERIAL_BELOW else _messages_threaded
    log_pi_klj = np.ascontiguousarray(log_pi_klj)
    loop(annotations.item_start, annotations.annotator, annotations.label, log_pi_klj, out)
    return out


def counts(annotations: Annotations, q_nj: Floats) -> Floats:
    """(K, L, J) expected number of times annotator k said l for an item of class j."""
    out = np.zeros((annotations.n_annotators, annotations.n_options, annotations.n_classes))
    start, rows = annotations.by_annotator
    # Threads go over annotators: a single pool of people without ids would leave all but one idle anyway.
    loop = _counts_serial if len(annotations) < SERIAL_BELOW else _counts_threaded
    loop(start, rows, annotations.item, annotations.label, np.ascontiguousarray(q_nj), out)
    return out


def beliefs(message_nj: Floats, log_prior_nj: Floats) -> tuple[Floats, Floats]:
    """(N, J) posterior rows and (N,) log normalisers. `log_prior_nj` may have one row for all items."""
    out = np.empty_like(message_nj)
    log_z_n = np.empty(message_nj.shape[0])
    loop = _beliefs_serial if message_nj.shape[0] < SERIAL_BELOW else _beliefs_threaded
    loop(message_nj, np.ascontiguousarray(np.atleast_2d(log_prior_nj)), out, log_z_n)
    return out, log_z_n


def log_normalisers(log_p_mnj: Floats, weight_nm: Floats) -> Floats:
    """(N,) log sum_j exp(sum_m weight[n, m] * log_p[m, n, j]), the normaliser of a log-linear pool."""
    out = np.empty(log_p_mnj.shape[1])
    _log_normalisers(log_p_mnj, np.ascontiguousarray(weight_nm), out)
    return out


@_compiled
def _item_message(start: Any, annotator: Any, label: Any, log_pi: Any, out: Any, n: int) -> None:
    for row in range(start[n], start[n + 1]):
        term = log_pi[annotator[row], label[row]]
        for j in range(term.shape[0]):
            out[n, j] += term[j]


@_compiled
def _messages_serial(start: Any, annotator: Any, label: Any, log_pi: Any, out: Any) -> None:
    for n in range(out.shape[0]):
        _item_message(start, annotator, label, log_pi, out, n)


@_threaded
def _messages_threaded(start: Any, annotator: Any, label: Any, log_pi: Any, out: Any) -> None:
    for n in prange(out.shape[0]):
        _item_message(start, annotator, label, log_pi, out, n)


@_compiled
def _annotator_counts(start: Any, rows: Any, item: Any, label: Any, q: Any, out: Any, k: int) -> None:
    for position in range(start[k], start[k + 1]):
        row = rows[position]
        belief = q[item[row]]
        cell = out[k, label[row]]
        for j in range(cell.shape[0]):
            cell[j] += belief[j]


@_compiled
def _counts_serial(start: Any, rows: Any, item: Any, label: Any, q: Any, out: Any) -> None:
    for k in range(out.shape[0]):
        _annotator_counts(start, rows, item, label, q, out, k)


@_threaded
def _counts_threaded(start: Any, rows: Any, item: Any, label: Any, q: Any, out: Any) -> None:
    for k in prange(out.shape[0]):
        _annotator_counts(start, rows, item, label, q, out, k)


@_compiled
def _item_belief(message: Any, log_prior: Any, out: Any, log_z: Any, n: int) -> None:
    # A threaded loop counts in unsigned integers; beside a signed 0 numba would make the index a float.
    prior = log_prior[np.int64(n) if log_prior.shape[0] > 1 else np.int64(0)]
    top = -np.inf
    for j in range(out.shape[1]):
        out[n, j] = message[n, j] + prior[j]
        top = max(top, out[n, j])
    total = 0.0
    for j in range(out.shape[1]):
        out[n, j] = np.exp(out[n, j] - top)
        total += out[n, j]
    for j in range(out.shape[1]):
        out[n, j] /= total
    log_z[n] = top + np.log(total)


@_compiled
def _beliefs_serial(message: Any, log_prior: Any, out: Any, log_z: Any) -> None:
    for n in range(out.shape[0]):
        _item_belief(message, log_prior, out, log_z, n)


@_threaded
def _beliefs_threaded(message: Any, log_prior: Any, out: Any, log_z: Any) -> None:
    for n in prange(out.shape[0]):
        _item_belief(message, log_prior, out, log_z, n)


@_compiled
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
