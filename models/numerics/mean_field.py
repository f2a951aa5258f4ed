"""Mean field of a Potts model (Zhang 1992): beliefs that depend on the beliefs of their neighbors.

    q_n[j] ∝ exp( message_n[j] + ln share[j] + strength[j] sum_m w_nm q_m[j] )

All items move at once and halfway, so the order of the items does not matter and no neighbors swap forever.
A fixed point is a stationary point of the bound

    sum_n q_n (message_n + ln share)  +  1/2 sum_nm w_nm sum_j strength[j] q_n[j] q_m[j]  -  sum_n q_n ln q_n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics.field_passes import half_step
from hitl.models.numerics.graph import Graph, Heard

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
