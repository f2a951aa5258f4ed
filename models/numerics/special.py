"""Digamma and log gamma of many positive numbers, some six times as fast as scipy's on one thread.

Both use Stirling's series at z = x + 8, and the recurrence from there down to x:

    psi(x)    = ln z - 1 / 2z - sum_i B_2i / (2i z^2i)  -  P'(x) / P(x)
    ln G(x)   = (z - 1/2) ln z - z + ln(2 pi) / 2 + sum_i B_2i / (2i (2i - 1) z^(2i - 1))  -  ln P(x)

with B the Bernoulli numbers and P(x) = x (x + 1) ... (x + 7) = y (y + 6) (y + 10) (y + 12), y = x (x + 7). The same
arithmetic for every x becomes vector instructions; so are numpy's logarithms.
"""

from __future__ import annotations

from math import log, pi
from typing import Any

import numpy as np
from numba import prange

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, threaded

THREADS_FROM = 50_000
"""Numbers from which threads share the work."""

CHUNK = 8192
"""Numbers a thread takes at a time."""

SHIFT = 8
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_DIGAMMA = tuple(b / (2 * i) for i, b in enumerate(_BERNOULLI, 1))[::-1]
_LOG_GAMMA = tuple(b / (2 * i * (2 * i - 1)) for i, b in enumerate(_BERNOULLI, 1))[::-1]
_HALF_LOG_2PI = 0.5 * log(2 * pi)


def digamma(x: Floats) -> Floats:
    """psi(x), for x in (1e-150, 1e30), off by at most 1e-14 * max(|psi(x)|, 1)."""
    flat = np.ravel(x)
    out = np.log(flat + SHIFT)
    loop = _digamma if flat.size < THREADS_FROM else _digamma_threaded
    loop(flat, out)
    return out.reshape(np.shape(x))


def log_gamma(x: Floats) -> Floats:
    """ln Gamma(x), for x in (1e-150, 1e30), off by at most 1e-14 * max(|ln Gamma(x)|, 10)."""
    flat = np.ravel(x)
    rising = np.empty_like(flat)
    _rising(flat, rising)
    out = np.log(flat + SHIFT)
    loop = _log_gamma if flat.size < THREADS_FROM else _log_gamma_threaded
    loop(flat, np.log(rising), out)
    return out.reshape(np.shape(x))


@compiled
def _digamma(x: Any, out: Any) -> None:
    """`out` holds ln z."""
    for i in range(x.shape[0]):
        y = x[i] * (x[i] + 7)
        product = (((y + 28) * y + 252) * y + 720) * y
        slope = (((4 * y + 84) * y + 504) * y + 720) * (2 * x[i] + 7)
        r = 1 / (x[i] + SHIFT)
        series = 0.0
        for coefficient in _DIGAMMA:
            series = series * r * r + coefficient
        out[i] -= 0.5 * r + series * r * r + slope / product


@threaded
def _digamma_threaded(x: Any, out: Any) -> None:
    for chunk in prange((x.shape[0] + CHUNK - 1) // CHUNK):
        _digamma(x[chunk * CHUNK : (chunk + 1) * CHUNK], out[chunk * CHUNK : (chunk + 1) * CHUNK])


@compiled
def _rising(x: Any, out: Any) -> None:
    """P(x)."""
    for i in range(x.shape[0]):
        y = x[i] * (x[i] + 7)
        out[i] = (((y + 28) * y + 252) * y + 720) * y


@compiled
def _log_gamma(x: Any, log_rising: Any, out: Any) -> None:
    """`out` holds ln z."""
    for i in range(x.shape[0]):
        z = x[i] + SHIFT
        r = 1 / z
        series = 0.0
        for coefficient in _LOG_GAMMA:
            series = series * r * r + coefficient
        out[i] = (z - 0.5) * out[i] - z + _HALF_LOG_2PI + series * r - log_rising[i]


@threaded
def _log_gamma_threaded(x: Any, log_rising: Any, out: Any) -> None:
    for chunk in prange((x.shape[0] + CHUNK - 1) // CHUNK):
        span = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        _log_gamma(x[span], log_rising[span], out[span])
