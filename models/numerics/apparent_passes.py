"""Passes over items that may mislead, each through memory once: see `priors.apparent_classes`.

    told_n[j] = ln( clear exp L_n[j] + (1 - clear) any_n )            any_n = sum_y share[y] exp L_n[y]
    by_n[z]   = truth_n[z] exp -told_n[z]
    q_n[y]    = exp L_n[y] ( clear by_n[y] + (1 - clear) share[y] sum_z by_n[z] )

An item some of whose classes are ruled out is what it seems: told_n = L_n and q_n = truth_n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, threaded
from hitl.models.numerics.field_passes import exponentials, runs_of
from hitl.models.numerics.kernels import BLOCK, log_above_one


class Seen(NamedTuple):
    """Beliefs about what items seem to be, and sums over the items that count and of whose truth nothing is known.

    q_nj: (N, J); seen_j: (J,) expected items that seem to be of each class; clear: that seem to be what they are;
    items: how many there are.
    """

    q_nj: Floats
    seen_j: Floats
    clear: float
    items: float


def told(message_nj: Floats, clear: float, share_j: Floats) -> Floats:
    """(N, J) what labels say of the true class, by what they say of what the item seems to be."""
    told_nj = np.empty_like(message_nj)
    runs = runs_of(len(message_nj))
    (_tell if len(runs) == 2 else _tell_threaded)(runs, message_nj, clear, share_j, told_nj)
    return told_nj


def seen(message_nj: Floats, truth_nj: Floats, clear: float, share_j: Floats, counted_n: npt.NDArray[np.bool_]) -> Seen:
    """What items seem to be, by their messages and the beliefs (N, J) about their truth, in whose place they are."""
    runs, q_nj = runs_of(len(message_nj)), truth_nj
    sums = np.zeros((len(runs) - 1, message_nj.shape[1] + 2))
    see = _see if len(runs) == 2 else _see_threaded
    see(runs, message_nj, clear, share_j, counted_n, q_nj, sums)
    *seen_j, clear_items, items = sums.sum(axis=0)
    return Seen(q_nj, np.array(seen_j), float(clear_items), float(items))


@compiled
def _likelihoods(message: Any, share: Any, out: Any, any_of: Any, top_of: Any) -> None:
    """exp L over its largest value, which is kept, and `any`; not a number where a class is ruled out."""
    for n in range(message.shape[0]):
        top, ruled_out = -np.inf, False
        for j in range(share.shape[0]):
            top = max(top, message[n, j])
            ruled_out = ruled_out or message[n, j] == -np.inf
        for j in range(share.shape[0]):
            out[n, j] = message[n, j] - top
        top_of[n] = np.nan if ruled_out else top
    exponentials(out.ravel())
    for n in range(message.shape[0]):
        any_of[n] = 0.0
        for j in range(share.shape[0]):
            any_of[n] += share[j] * out[n, j]


@compiled
def _tell_items(first: int, last: int, message: Any, clear: float, share: Any, out: Any) -> None:
    any_of, top_of = np.empty(BLOCK), np.empty(BLOCK)
    for begin in range(first, last, BLOCK):
        end = min(begin + BLOCK, last)
        block = out[begin:end]
        _likelihoods(message[begin:end], share, block, any_of, top_of)
        for n in range(end - begin):
            for j in range(share.shape[0]):
                block[n, j] = 1 / (clear * block[n, j] + (1 - clear) * any_of[n])
        flat = block.ravel()
        for i in range(flat.shape[0]):
            flat[i] = log_above_one(flat[i])
        for n in range(end - begin):
            for j in range(share.shape[0]):
                block[n, j] = message[begin + n, j] if np.isnan(top_of[n]) else top_of[n] - block[n, j]


@compiled
def _tell(runs: Any, message: Any, clear: float, share: Any, out: Any) -> None:
    _tell_items(0, message.shape[0], message, clear, share, out)


@threaded
def _tell_threaded(runs: Any, message: Any, clear: float, share: Any, out: Any) -> None:
    for run in prange(len(runs) - 1):
        _tell_items(runs[run], runs[run + 1], message, clear, share, out)


@compiled
def _see_items(first: int, last: int, message: Any, clear: float, share: Any, counted: Any, q: Any, sums: Any) -> None:
    """`q` has the beliefs about the truth, and gets those about what items seem to be."""
    classes = share.shape[0]
    likelihood, any_of, top_of = np.empty((BLOCK, classes)), np.empty(BLOCK), np.empty(BLOCK)
    totals = np.zeros(classes + 2)
    for begin in range(first, last, BLOCK):
        end = min(begin + BLOCK, last)
        _likelihoods(message[begin:end], share, likelihood[: end - begin], any_of, top_of)
        for n in range(begin, end):
            if np.isnan(top_of[n - begin]):
                continue
            by_all, clearly, total = 0.0, 0.0, 0.0
            by, seems = q[n], likelihood[n - begin]
            for j in range(classes):
                by[j] /= clear * seems[j] + (1 - clear) * any_of[n - begin]
                by_all += by[j]
                clearly += clear * seems[j] * by[j]
            for j in range(classes):
                q[n, j] = seems[j] * (clear * by[j] + (1 - clear) * share[j] * by_all)
                total += q[n, j]
            for j in range(classes):
                q[n, j] /= total
            if counted[n]:
                for j in range(classes):
                    totals[j] += q[n, j]
                totals[classes] += clearly
                totals[classes + 1] += 1.0
    sums[:] = totals


@compiled
def _see(runs: Any, message: Any, clear: float, share: Any, counted: Any, q: Any, sums: Any) -> None:
    _see_items(0, message.shape[0], message, clear, share, counted, q, sums[0])


@threaded
def _see_threaded(runs: Any, message: Any, clear: float, share: Any, counted: Any, q: Any, sums: Any) -> None:
    for run in prange(len(runs) - 1):
        _see_items(runs[run], runs[run + 1], message, clear, share, counted, q, sums[run])
