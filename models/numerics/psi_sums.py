"""Sums of digamma and trigamma over many counts, to maximize a Dirichlet likelihood.

    rise_c   = sum_k psi(n_kc + a_c)  - psi(a_c)
    slope_c  = sum_k psi'(n_kc + a_c) - psi'(a_c)      its derivative in a_c, <= 0

One pass, without temporary arrays of the input's size. As in `special`, with z = x + 8 and P(x) = x (x + 1) ... (x +
7),

    psi(x)  = ln z - 1 / 2z - sum_i B_2i / (2i z^2i)  -  P'/P
    psi'(x) = 1 / z + 1 / 2z^2 + sum_i B_2i / z^(2i + 1)  +  (P'^2 - P P'') / P^2
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, in_runs, inlined, runs_of
from hitl.models.numerics.kernels import log_above_one
from hitl.models.numerics.special import SHIFT, THREADS_FROM

ROWS = 256
"""Number of rows of counts summed at a time."""

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_PSI = tuple(b / (2 * i) for i, b in enumerate(_BERNOULLI, 1))[::-1]
_TRIGAMMA = _BERNOULLI[::-1]


def psi_sums(counts_kc: Floats, a_c: Floats) -> tuple[Floats, Floats]:
    """Return (C,) rises and (C,) slopes of counts (K, C) >= 0 and a (C,) > 0."""
    counts_kc, a_c = np.ascontiguousarray(counts_kc), np.ascontiguousarray(a_c, dtype=np.float64)
    sums = np.zeros(((len(counts_kc) + ROWS - 1) // ROWS, 2, a_c.size))
    chunks = np.array([0, len(sums)]) if counts_kc.size < THREADS_FROM else runs_of(len(sums), 2)
    in_runs(_sums, chunks, counts_kc, a_c, sums)
    own = np.zeros((1, 2, a_c.size))
    _sums(0, 1, np.zeros((1, a_c.size)), a_c, own)
    rise_c, slope_c = sums.sum(axis=0) - len(counts_kc) * own[0]
    return rise_c, slope_c


@inlined
def _psi(x: float) -> float:
    y = x * (x + 7)
    product = (((y + 28) * y + 252) * y + 720) * y
    slope = (((4 * y + 84) * y + 504) * y + 720) * (2 * x + 7)
    r = 1 / (x + SHIFT)
    series = 0.0
    for coefficient in _PSI:
        series = series * r * r + coefficient
    return log_above_one(x + SHIFT) - (0.5 * r + series * r * r + slope / product)


@inlined
def _trigamma(x: float) -> float:
    y = x * (x + 7)
    product = (((y + 28) * y + 252) * y + 720) * y
    by_y = ((4 * y + 84) * y + 504) * y + 720
    twice_by_y = (12 * y + 168) * y + 504
    q = 2 * x + 7
    first, second = by_y * q / product, (twice_by_y * q * q + 2 * by_y) / product
    r = 1 / (x + SHIFT)
    series = 0.0
    for coefficient in _TRIGAMMA:
        series = series * r * r + coefficient
    return r + 0.5 * r * r + series * r * r * r + (first * first - second)


@compiled
def _sums(first: int, last: int, counts: Any, a: Any, sums: Any) -> None:
    """Write the sums of each chunk of ROWS rows."""
    for chunk in range(first, last):
        for k in range(chunk * ROWS, min((chunk + 1) * ROWS, counts.shape[0])):
            row = counts[k]
            for c in range(a.shape[0]):
                sums[chunk, 0, c] += _psi(row[c] + a[c])
            for c in range(a.shape[0]):
                sums[chunk, 1, c] += _trigamma(row[c] + a[c])
