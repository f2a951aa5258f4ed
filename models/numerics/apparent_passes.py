"""Single passes over items whose appearance may mislead: see `priors.apparent_classes`.

    told_n[j] = ln( clear exp L_n[j] + (1 - clear) any_n )            any_n = sum_y share[y] exp L_n[y]
    by_n[z]   = truth_n[z] exp -told_n[z]
    q_n[y]    = exp L_n[y] ( clear by_n[y] + (1 - clear) share[y] sum_z by_n[z] )

If a known truth rules out some classes of an item, the item is what it appears to be: told_n = L_n and q_n = truth_n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, in_runs, runs_of
from hitl.models.numerics.kernels import BLOCK, log_above_one
from hitl.models.numerics.mean_field import exponentials


class Seen(NamedTuple):
    """Beliefs about apparent classes, and sums over the items that count and have no known truth.

    q_nj: (N, J); seen_j: (J,) expected number of items that appear to be of each class; clear: expected number that
    appear as what they are; items: number of items.
    """

    q_nj: Floats
    seen_j: Floats
    clear: float
    items: float


def told(message_nj: Floats, clear: float, share_j: Floats) -> Floats:
    """Convert messages about apparent classes to (N, J) messages about true classes."""
    told_nj = np.empty_like(message_nj)
    in_runs(_tell, runs_of(len(message_nj)), message_nj, clear, share_j, told_nj)
    return told_nj


def seen(message_nj: Floats, truth_nj: Floats, clear: float, share_j: Floats, counted_n: npt.NDArray[np.bool_]) -> Seen:
    """Replace beliefs (N, J) about true classes by beliefs about apparent classes, and sum them."""
    sums = in_runs(_see, runs_of(len(message_nj)), message_nj, clear, share_j, counted_n, truth_nj)
    *seen_j, clear_items, items = np.sum(sums, axis=0)
    return Seen(truth_nj, np.array(seen_j), float(clear_items), float(items))


@compiled
def _likelihoods(message: Any, share: Any, out: Any, any_of: Any, top_of: Any) -> None:
    """Write exp L relative to its largest value, that value (NaN if a class is ruled out), and `any`."""
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
def _tell(first: int, last: int, message: Any, clear: float, share: Any, out: Any) -> None:
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
def _see(first: int, last: int, message: Any, clear: float, share: Any, counted: Any, q: Any) -> Any:
    """Replace beliefs `q` about true classes by beliefs about apparent classes; return the sums of `Seen`."""
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
    return totals
