"""Belief propagation in a Potts model (Pearl 1988): what each neighbour says, had this item said nothing to it.

    c_mn[j]    ∝ exp( message_m[j] + ln share[j] + sum_{l != n} ln b_lm[j] )        m's belief without n
    b_mn[j]    = 1 + (exp(strength[j] w_mn) - 1) c_mn[j]                            what m tells n
    q_n[j]     ∝ exp( message_n[j] + ln share[j] + sum_m ln b_mn[j] )

Exact on trees, where sum_m ln b_mn is what all other items say of n. All edges move at once and half of the way, so
that their order does not matter. Each sweep costs 2 E J exponentials and twice as many logarithms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, threaded
from hitl.models.numerics.graph import Graph, Heard

ENOUGH = 1e-9
"""Change of a c below which it stays."""


def begin(graph: Graph, q_nj: Floats) -> Floats:
    """(2 E, J) c of each edge, in the row of who hears it: the beliefs as they are."""
    return q_nj[graph.neighbour_e]


def settle(
    message_nj: Floats, log_share_j: Floats, graph: Graph, strength_j: Floats, c_ej: Floats, sweeps: int
) -> Heard:
    """What the neighbours say, after at most `sweeps` from c (2 E, J), which go on."""
    own_nj = message_nj + log_share_j
    weight_u, code_e = graph.weights
    grown_uj = np.expm1(weight_u[:, None] * strength_j)
    heard = _heard(graph, grown_uj, c_ej)
    for _ in range(sweeps):
        next_ej, changes = np.empty_like(c_ej), np.zeros(len(graph.runs) - 1)
        given = (graph.runs, graph.start_n, graph.neighbour_e, graph.reverse_e, code_e, grown_uj)
        (_sweep if len(changes) == 1 else _sweep_threaded)(*given, own_nj + heard.field_nj, c_ej, next_ej, changes)
        c_ej, heard = next_ej, _heard(graph, grown_uj, next_ej)
        if changes.max() < ENOUGH:
            break
    return heard


def _heard(graph: Graph, grown_uj: Floats, c_ej: Floats) -> Heard:
    weight_u, code_e = graph.weights
    field_nj, slope_nj = np.empty((2, graph.n_items, c_ej.shape[1]))
    given = (graph.runs, graph.start_n, code_e, weight_u, grown_uj, c_ej, field_nj, slope_nj)
    (_hear if len(graph.runs) == 2 else _hear_threaded)(*given)
    return Heard(field_nj, slope_nj, c_ej)


@compiled
def _edges(
    first: int, last: int, start: Any, neighbour: Any, reverse: Any, code: Any, grown: Any, total: Any, c: Any, out: Any
) -> float:
    """What the neighbours of these items believe without them; the largest change."""
    classes = total.shape[1]
    change = 0.0
    for n in range(first, last):
        for e in range(start[n], start[n + 1]):
            m, back = neighbour[e], reverse[e]
            top = -np.inf
            for j in range(classes):
                out[e, j] = total[m, j] - np.log1p(grown[code[e], j] * c[back, j])
                top = max(top, out[e, j])
            whole = 0.0
            for j in range(classes):
                out[e, j] = np.exp(out[e, j] - top)
                whole += out[e, j]
            for j in range(classes):
                step = 0.5 * (out[e, j] / whole - c[e, j])
                change = max(change, abs(step))
                out[e, j] = c[e, j] + step
    return change


@compiled
def _sweep(
    runs: Any, start: Any, neighbour: Any, reverse: Any, code: Any, grown: Any, total: Any, c: Any, out: Any, most: Any
) -> None:
    most[0] = _edges(0, total.shape[0], start, neighbour, reverse, code, grown, total, c, out)


@threaded
def _sweep_threaded(
    runs: Any, start: Any, neighbour: Any, reverse: Any, code: Any, grown: Any, total: Any, c: Any, out: Any, most: Any
) -> None:
    for run in prange(len(runs) - 1):
        most[run] = _edges(runs[run], runs[run + 1], start, neighbour, reverse, code, grown, total, c, out)


@compiled
def _add(first: int, last: int, start: Any, code: Any, weight: Any, grown: Any, c: Any, field: Any, slope: Any) -> None:
    for n in range(first, last):
        field[n], slope[n] = 0.0, 0.0
        for e in range(start[n], start[n + 1]):
            u = code[e]
            for j in range(field.shape[1]):
                said = grown[u, j] * c[e, j]
                field[n, j] += np.log1p(said)
                slope[n, j] += weight[u] * (c[e, j] + said) / (1 + said)


@compiled
def _hear(runs: Any, start: Any, code: Any, weight: Any, grown: Any, c: Any, field: Any, slope: Any) -> None:
    _add(0, field.shape[0], start, code, weight, grown, c, field, slope)


@threaded
def _hear_threaded(runs: Any, start: Any, code: Any, weight: Any, grown: Any, c: Any, field: Any, slope: Any) -> None:
    for run in prange(len(runs) - 1):
        _add(runs[run], runs[run + 1], start, code, weight, grown, c, field, slope)
