"""Belief propagation in a Potts model (Pearl 1988): what each neighbour says, had this item said nothing to it.

    c_mn[j]    ∝ exp( message_m[j] + ln share[j] + sum_{l != n} ln b_lm[j] )        m's belief without n
    b_mn[j]    = 1 + (exp(strength[j] w_mn) - 1) c_mn[j]                            what m tells n
    q_n[j]     ∝ exp( message_n[j] + ln share[j] + sum_m ln b_mn[j] )

Exact on trees, where sum_m ln b_mn is what all other items say of n. All edges move at once and half of the way, so
that their order does not matter. A belief without an item is the belief divided by the message of that item, so
that a sweep costs N J exponentials and logarithms, and of edges only products and quotients.
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

SURE = 300.0
"""Strength of an edge beyond which nothing changes: its ends are alike, and the exponential would overflow."""

LARGE = 1e100
"""Product of what neighbours say of which the logarithm is taken, before it overflows."""


def begin(graph: Graph, q_nj: Floats) -> Floats:
    """(2 E, J) c of each edge, in the row of who receives it: the beliefs as they are."""
    return q_nj[graph.neighbour_e]


def settle(
    message_nj: Floats, log_share_j: Floats, graph: Graph, strength_j: Floats, c_ej: Floats, sweeps: int
) -> Heard:
    """What the neighbours say, after at most `sweeps` from c (2 E, J), which go on."""
    own_nj = message_nj + log_share_j
    weight_u, code_e = graph.weights
    grown_uj = np.expm1(np.minimum(weight_u[:, None] * strength_j, SURE))
    field_nj = np.empty((graph.n_items, c_ej.shape[1]))
    receive, sweep = (_receive, _sweep) if len(graph.runs) == 2 else (_receive_threaded, _sweep_threaded)
    receive(graph.runs, graph.start_n, code_e, grown_uj, c_ej, field_nj)
    for _ in range(sweeps):
        next_ej, changes = np.empty_like(c_ej), np.zeros(len(graph.runs) - 1)
        belief_nj = own_nj + field_nj
        belief_nj -= belief_nj.max(axis=1, keepdims=True)
        np.exp(belief_nj, out=belief_nj)
        given = (graph.runs, graph.start_n, graph.neighbour_e, graph.reverse_e, code_e, grown_uj)
        sweep(*given, belief_nj, c_ej, next_ej, changes)
        c_ej = next_ej
        receive(graph.runs, graph.start_n, code_e, grown_uj, c_ej, field_nj)
        if changes.max() < ENOUGH:
            break
    return Heard(field_nj, np.ones_like(strength_j), _slope(graph, grown_uj, c_ej), c_ej)


def _slope(graph: Graph, grown_uj: Floats, c_ej: Floats) -> Floats:
    weight_u, code_e = graph.weights
    slope_nj = np.empty((graph.n_items, c_ej.shape[1]))
    loop = _slopes if len(graph.runs) == 2 else _slopes_threaded
    loop(graph.runs, graph.start_n, code_e, weight_u, grown_uj, c_ej, slope_nj)
    return slope_nj


@compiled
def _edges(
    first: int,
    last: int,
    start: Any,
    neighbour: Any,
    reverse: Any,
    code: Any,
    grown: Any,
    belief: Any,
    c: Any,
    out: Any,
) -> float:
    """What the neighbours of these items believe without them; the largest change."""
    classes = belief.shape[1]
    change = 0.0
    for n in range(first, last):
        for e in range(start[n], start[n + 1]):
            m, back = neighbour[e], reverse[e]
            whole = 0.0
            for j in range(classes):
                out[e, j] = belief[m, j] / (1.0 + grown[code[e], j] * c[back, j])
                whole += out[e, j]
            for j in range(classes):
                step = 0.5 * (out[e, j] / whole - c[e, j])
                change = max(change, abs(step))
                out[e, j] = c[e, j] + step
    return change


@compiled
def _sweep(
    runs: Any, start: Any, neighbour: Any, reverse: Any, code: Any, grown: Any, belief: Any, c: Any, out: Any, most: Any
) -> None:
    most[0] = _edges(0, belief.shape[0], start, neighbour, reverse, code, grown, belief, c, out)


@threaded
def _sweep_threaded(
    runs: Any, start: Any, neighbour: Any, reverse: Any, code: Any, grown: Any, belief: Any, c: Any, out: Any, most: Any
) -> None:
    for run in prange(len(runs) - 1):
        most[run] = _edges(runs[run], runs[run + 1], start, neighbour, reverse, code, grown, belief, c, out)


@compiled
def _add(first: int, last: int, start: Any, code: Any, grown: Any, c: Any, field: Any) -> None:
    product = np.empty(field.shape[1])
    for n in range(first, last):
        field[n], product[:] = 0.0, 1.0
        for e in range(start[n], start[n + 1]):
            for j in range(field.shape[1]):
                product[j] *= 1.0 + grown[code[e], j] * c[e, j]
                if product[j] > LARGE:
                    field[n, j] += np.log(product[j])
                    product[j] = 1.0
        for j in range(field.shape[1]):
            field[n, j] += np.log(product[j])


@compiled
def _receive(runs: Any, start: Any, code: Any, grown: Any, c: Any, field: Any) -> None:
    _add(0, field.shape[0], start, code, grown, c, field)


@threaded
def _receive_threaded(runs: Any, start: Any, code: Any, grown: Any, c: Any, field: Any) -> None:
    for run in prange(len(runs) - 1):
        _add(runs[run], runs[run + 1], start, code, grown, c, field)


@compiled
def _grow(first: int, last: int, start: Any, code: Any, weight: Any, grown: Any, c: Any, slope: Any) -> None:
    for n in range(first, last):
        slope[n] = 0.0
        for e in range(start[n], start[n + 1]):
            u = code[e]
            for j in range(slope.shape[1]):
                said = grown[u, j] * c[e, j]
                slope[n, j] += weight[u] * (c[e, j] + said) / (1.0 + said)


@compiled
def _slopes(runs: Any, start: Any, code: Any, weight: Any, grown: Any, c: Any, slope: Any) -> None:
    _grow(0, slope.shape[0], start, code, weight, grown, c, slope)


@threaded
def _slopes_threaded(runs: Any, start: Any, code: Any, weight: Any, grown: Any, c: Any, slope: Any) -> None:
    for run in prange(len(runs) - 1):
        _grow(runs[run], runs[run + 1], start, code, weight, grown, c, slope)
