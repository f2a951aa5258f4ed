"""Mean field of a Potts model (Zhang 1992), and fused passes over the items of a field, each reading memory once.

    half step    out_n = (q_n + p(message_n + own + strength around_n)) / 2         around_n = sum_m w_nm q_m
    judgement    p_n ∝ exp(own + field_n)      q_n ∝ p_n exp message_n      log evidence_n = ln sum_j p_n exp message_n

with own = ln share. All items move at once and halfway, so the order of the items does not matter and no neighbors swap
forever. A fixed point of the half steps is a stationary point of the bound

    sum_n q_n (message_n + ln share)  +  1/2 sum_nm w_nm sum_j strength[j] q_n[j] q_m[j]  -  sum_n q_n ln q_n.

Separate NumPy steps would need ten times the memory and spend most of their time allocating it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, in_runs, runs_of
from hitl.models.numerics.graph import Graph, Heard
from hitl.models.numerics.kernels import BLOCK, exp_nonpositive

ENOUGH = 1e-5
"""Change of a belief below which sweeps end."""


class Swept(NamedTuple):
    """State from which sweeps continue: beliefs (N, J), and the sums (N, J) of the neighbors' beliefs. Read-only."""

    q_nj: Floats
    around_nj: Floats


def begin(graph: Graph, q_nj: Floats) -> Swept:
    """Start sweeps at these beliefs."""
    return Swept(q_nj, graph.sums(q_nj))


def settle(
    message_nj: Floats, log_share_j: Floats, graph: Graph, strength_j: Floats, begun: Swept, sweeps: int
) -> Heard:
    """Return the messages of neighbors after at most `sweeps` from `begun`, and the state to continue from."""
    q_nj, around_nj = begun
    next_nj, sums_nj = np.empty_like(q_nj), np.empty_like(q_nj)
    for _ in range(sweeps):
        change = half_step(message_nj, log_share_j, strength_j, around_nj, q_nj, next_nj)
        q_nj, around_nj = next_nj, graph.sums(next_nj, out=sums_nj)
        if change < ENOUGH:
            break
    return Heard(around_nj, strength_j, around_nj, Swept(q_nj, around_nj))


class Judged(NamedTuple):
    """Beliefs (N, J), their log evidence, and (J,) sums over the items that count (see `FieldCounts`)."""

    q_nj: Floats
    log_evidence: float
    believed_j: Floats
    expected_j: Floats
    gradient_j: Floats
    curvature_j: Floats


def half_step(
    message_nj: Floats, own_j: Floats, strength_j: Floats, around_nj: Floats, q_nj: Floats, out_nj: Floats
) -> float:
    """Move beliefs halfway to those that the neighbors imply, write them to `out_nj`, and return the largest change."""
    runs = runs_of(len(q_nj))
    return float(max(in_runs(_half, runs, message_nj, own_j, strength_j, around_nj, q_nj, out_nj)))


def judged(message_nj: Floats, own_j: Floats, heard: Heard, counted_n: npt.NDArray[np.bool_]) -> Judged:
    """Compute beliefs of all items from their messages, which are overwritten, and from their neighbors' messages."""
    given = (message_nj, own_j, heard.told_nj, heard.unit_j, heard.slope_nj, counted_n)
    logs, sums = zip(*in_runs(_judge, runs_of(len(message_nj)), *given, message_nj), strict=True)
    return Judged(message_nj, float(np.sum(logs)), *np.sum(sums, axis=0))


@compiled
def _half(first: int, last: int, message: Any, own: Any, strength: Any, around: Any, q: Any, out: Any) -> float:
    change, p = 0.0, np.empty((BLOCK, own.shape[0]))
    for begin in range(first, last, BLOCK):
        end = min(begin + BLOCK, last)
        for n in range(begin, end):
            p_j, top = p[n - begin], -np.inf
            for j in range(own.shape[0]):
                p_j[j] = message[n, j] + own[j] + strength[j] * around[n, j]
                top = max(top, p_j[j])
            for j in range(own.shape[0]):
                p_j[j] -= top
        exponentials(p[: end - begin].ravel())
        for n in range(begin, end):
            p_j, total = p[n - begin], 0.0
            for j in range(own.shape[0]):
                total += p_j[j]
            for j in range(own.shape[0]):
                step = 0.5 * (p_j[j] / total - q[n, j])
                change = max(change, abs(step))
                out[n, j] = q[n, j] + step
    return change


@compiled
def _judge(
    first: int, last: int, message: Any, own: Any, told: Any, unit: Any, slope: Any, counted: Any, q: Any
) -> Any:
    classes = own.shape[0]
    p, tops, totals = np.empty((BLOCK, classes)), np.empty((BLOCK, 2)), np.zeros((4, classes))
    log_evidence = 0.0
    for begin in range(first, last, BLOCK):
        end = min(begin + BLOCK, last)
        for n in range(begin, end):
            p_j, top, top_q = p[n - begin], -np.inf, -np.inf
            for j in range(classes):
                p_j[j] = own[j] + unit[j] * told[n, j]
                q[n, j] = p_j[j] + message[n, j]
                top, top_q = max(top, p_j[j]), max(top_q, q[n, j])
            for j in range(classes):
                p_j[j] -= top
                q[n, j] -= top_q
            tops[n - begin] = top, top_q
        exponentials(p[: end - begin].ravel())
        exponentials(q[begin:end].ravel())
        for n in range(begin, end):
            p_j, total, total_q = p[n - begin], 0.0, 0.0
            for j in range(classes):
                total += p_j[j]
                total_q += q[n, j]
            for j in range(classes):
                q[n, j] /= total_q
            if counted[n]:
                log_evidence += tops[n - begin, 1] + np.log(total_q) - tops[n - begin, 0] - np.log(total)
                for j in range(classes):
                    share = p_j[j] / total
                    totals[0, j] += q[n, j]
                    totals[1, j] += share
                    totals[2, j] += slope[n, j] * (q[n, j] - share)
                    totals[3, j] += slope[n, j] ** 2 * share * (1 - share)
    return log_evidence, totals


@compiled
def exponentials(x: Any) -> None:
    """Replace a vector of numbers <= 0 by e**x, in place."""
    for i in range(x.shape[0]):
        x[i] = exp_nonpositive(x[i])
