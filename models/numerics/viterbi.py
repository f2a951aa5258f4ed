"""Most probable classes of whole chains (Viterbi 1967; Rabiner 1989, section III B).

    best_1[j] = first[j] + L_1[j]      best_t[j] = max_i (best_{t-1}[i] + step[i, j]) + L_t[j]          all in logs

The path is traced back from the largest value at the end. Items are visited in the order of `rows`; chain s occupies
positions start[s] to start[s + 1]. Ties go to the first class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hitl.annotations import Floats, Ints
from hitl.models.numerics.compiled import compiled
from hitl.models.numerics.forward_backward import Indices


def most_probable(message_nj: Floats, rows: Indices, start: Indices, first_j: Floats, step_ij: Floats) -> Ints:
    """Return (N,) class codes of each chain's most probable path; `first_j` and rows of `step_ij` sum to 1."""
    path_n = np.empty(len(message_nj), np.int32)
    with np.errstate(divide="ignore"):
        log_first_j, log_step_ij = np.log(first_j), np.log(step_ij)
    _paths(message_nj, rows, start, log_first_j, log_step_ij, path_n)
    return path_n


@compiled
def _paths(message: Any, rows: Any, start: Any, first: Any, step: Any, path: Any) -> None:
    longest = 0
    for s in range(len(start) - 1):
        longest = max(longest, start[s + 1] - start[s])
    came = np.empty((longest, first.shape[0]), np.int32)
    for s in range(len(start) - 1):
        _path(message, rows[start[s] : start[s + 1]], first, step, path, came)


@compiled
def _path(message: Any, rows: Any, first: Any, step: Any, path: Any, came: Any) -> None:
    """Write the path of one chain; `came` (T, J) is workspace for the previous class."""
    classes = first.shape[0]
    best, new = np.empty(classes), np.empty(classes)
    for j in range(classes):
        best[j] = first[j] + message[rows[0], j]
    for t in range(1, len(rows)):
        for j in range(classes):
            top, from_class = best[0] + step[0, j], 0
            for i in range(1, classes):
                if best[i] + step[i, j] > top:
                    top, from_class = best[i] + step[i, j], i
            new[j] = top + message[rows[t], j]
            came[t, j] = from_class
        best[:] = new
    code = 0
    for j in range(1, classes):
        if best[j] > best[code]:
            code = j
    for t in range(len(rows) - 1, -1, -1):
        path[rows[t]] = code
        if t:
            code = came[t, code]
