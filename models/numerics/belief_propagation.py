"""Belief propagation in a Potts model (Pearl 1988): a neighbor's message excludes what it received from this item.

    c_mn[j]    ∝ exp( message_m[j] + ln share[j] + sum_{l != n} ln b_lm[j] )        m's belief without n
    b_mn[j]    = 1 + (exp(strength[j] w_mn) - 1) c_mn[j]                            message from m to n
    q_n[j]     ∝ exp( message_n[j] + ln share[j] + sum_m ln b_mn[j] )

Exact on trees, where sum_m ln b_mn is the evidence of all other items about n. All edges move at once and halfway,
so that their order does not matter. The belief without an item is the belief divided by the message of that item. So a
sweep costs N J exponentials and logarithms, and only products and quotients per edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, in_runs
from hitl.models.numerics.graph import Graph, Heard

ENOUGH = 1e-9
"""Largest change of c at which sweeps end."""

SURE = 300.0
"""Largest strength of an edge. A higher one changes nothing, and the exponential would overflow."""

LARGE = 1e100
"""Product of messages at which to take the logarithm, before it overflows."""


def begin(graph: Graph, q_nj: Floats) -> Floats:
    """Return (2 E, J) c of each edge, in the row of its receiver. It starts as the beliefs themselves."""
    return q_nj[graph.neighbour_e]


def settle(
    message_nj: Floats, log_share_j: Floats, graph: Graph, strength_j: Floats, c_ej: Floats, sweeps: int
) -> Heard:
    """Return the messages of neighbors after at most `sweeps` from c (2 E, J)."""
    own_nj = message_nj + log_share_j
    weight_u, code_e = graph.weights
    grown_uj = np.expm1(np.minimum(weight_u[:, None] * strength_j, SURE))
    field_nj = np.empty((graph.n_items, c_ej.shape[1]))
    received = (graph.start_n, code_e, grown_uj)
    in_runs(_receive, graph.runs, *received, c_ej, field_nj)
    for _ in range(sweeps):
        next_ej = np.empty_like(c_ej)
        belief_nj = own_nj + field_nj
        belief_nj -= belief_nj.max(axis=1, keepdims=True)
        np.exp(belief_nj, out=belief_nj)
        edges = (graph.start_n, graph.neighbour_e, graph.reverse_e, code_e, grown_uj)
        change = max(in_runs(_sweep, graph.runs, *edges, belief_nj, c_ej, next_ej))
        c_ej = next_ej
        in_runs(_receive, graph.runs, *received, c_ej, field_nj)
        if change < ENOUGH:
            break
    slope_nj = np.empty((graph.n_items, c_ej.shape[1]))
    in_runs(_slopes, graph.runs, graph.start_n, code_e, weight_u, grown_uj, c_ej, slope_nj)
    return Heard(field_nj, np.ones_like(strength_j), slope_nj, c_ej)


@compiled
def _sweep(
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
    """Write the beliefs of neighbors without these items; return the largest change."""
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
def _receive(first: int, last: int, start: Any, code: Any, grown: Any, c: Any, field: Any) -> None:
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
def _slopes(first: int, last: int, start: Any, code: Any, weight: Any, grown: Any, c: Any, slope: Any) -> None:
    for n in range(first, last):
        slope[n] = 0.0
        for e in range(start[n], start[n + 1]):
            u = code[e]
            for j in range(slope.shape[1]):
                said = grown[u, j] * c[e, j]
                slope[n, j] += weight[u] * (c[e, j] + said) / (1.0 + said)
