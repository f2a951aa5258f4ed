"""Iterated conditional modes (Besag 1986; Traganitis & Giannakis 2019, eq. 33): most likely classes given neighbors.

    z_n = argmax_j  message_n[j] + ln share[j] + strength[j] sum_m w_nm [z_m = j]

All items move at once, so their order does not matter, except next to a neighbor that gains more: otherwise
neighbors would swap forever. So each sweep raises the log joint of all classes. Neighbors with the same gain both
move, once.
"""

from __future__ import annotations

import numpy as np

from hitl.annotations import Floats
from hitl.models.numerics.graph import Graph, Heard


def begin(graph: Graph, q_nj: Floats) -> Floats:
    """Return (N, J) one-hot most likely classes; ties go to the first class."""
    return np.asarray(np.eye(q_nj.shape[1])[q_nj.argmax(axis=1)])


def settle(
    message_nj: Floats, log_share_j: Floats, graph: Graph, strength_j: Floats, z_nj: Floats, sweeps: int
) -> Heard:
    """Return the messages of neighbors after at most `sweeps` from one-hot classes (N, J)."""
    own_nj = message_nj + log_share_j
    before_n = now_n = z_nj.argmax(axis=1)
    every_n = np.arange(len(now_n))
    around_nj = graph.sums(z_nj)
    for _ in range(sweeps):
        score_nj = own_nj + strength_j * around_nj
        best_n = score_nj.argmax(axis=1)
        gain_n = score_nj[every_n, best_n] - np.maximum(score_nj[every_n, now_n], -np.finfo(float).max)
        rival_n = graph.largest(gain_n)
        moves_n = (gain_n > rival_n) | (gain_n == rival_n) & (gain_n > 0) & (best_n != before_n)
        if not moves_n.any():
            break
        before_n, now_n = np.where(moves_n, now_n, before_n), np.where(moves_n, best_n, now_n)
        z_nj = np.eye(z_nj.shape[1])[now_n]
        around_nj = graph.sums(z_nj)
    return Heard(around_nj, strength_j, around_nj, z_nj)
