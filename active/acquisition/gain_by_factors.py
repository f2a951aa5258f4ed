"""The expected gain of an answer where confusion matrices are given by factors (`hitl.tables.factored_rows`).

The formulas are those of `expected_gain`; what differs is that no table (K, J, L) is made. The chance of an answer, and
the largest joint chance, run over the classes that an item may be of:

    p_k(l)  =  sum_j q_j pi_kjl            max_j q_j pi_kjl           pi_kjl = crowd_lj wrong_kj, right_kj if l = j, ...

With thousands of classes nearly all beliefs are next to nothing: a class less probable than J LEAST is left out, so
that a gain is right to J^2 LEAST, some 1e-6 for 2,000 classes. The entropy of a row has a closed form but for cells:

    -H(pi_kj)  =  wrong (sum_l c ln c + ln wrong sum_l c)  +  right ln right  +  ...  +  what cells change

In the bound of `expected_gain` (1), e_kl = min_j pi_kjl is bounded from below by products of minima of the factors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange

from hitl.active.acquisition.scores import times_log
from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, threaded
from hitl.tables.factored_rows import FactoredTable

LEAST = 1e-12
"""Times J: beliefs that are left out."""

ANSWERS = 2**24
"""Chances of answers that are held at a time: some 100 MB."""


def information_gain(q_rj: Floats, table: FactoredTable) -> Floats:
    """Return (R, K) gains in nats, as `expected_gain.information_gain` does."""

    def gain(q_rj: Floats) -> Floats:
        chance, left_rk = answers_and_entropy(q_rj, table)
        times_log(np.maximum(chance, 1e-300, out=chance).ravel())
        return np.asarray(np.maximum(-chance.reshape(len(q_rj), -1, len(table)).sum(axis=1) - left_rk, 0.0))

    return _in_blocks(gain, q_rj, table)


def accuracy_gain(q_rj: Floats, table: FactoredTable) -> Floats:
    """Return (R, K) gains in right labels, as `expected_gain.accuracy_gain` does."""

    def gain(q_rj: Floats) -> Floats:
        return np.asarray(np.maximum(largest_joint(q_rj, table) - q_rj.max(axis=1, keepdims=True), 0.0))

    return _in_blocks(gain, q_rj, table)


def _in_blocks(gain: Callable[[Floats], Floats], q_rj: Floats, table: FactoredTable) -> Floats:
    """Compute the gains of so many items at a time that their answers fit in memory."""
    size = max(1, ANSWERS // (table.shape[2] * max(len(table), 1)))
    parts = [gain(q_rj[begin : begin + size]) for begin in range(0, len(q_rj), size)]
    return np.concatenate([np.empty((0, len(table))), *parts])


def answers_and_entropy(q_rj: Floats, table: FactoredTable) -> tuple[Floats, Floats]:
    """(R, L K) chance of each answer, annotators innermost, and (R, K) the entropy that its true class leaves."""
    chance = np.zeros((len(q_rj), table.shape[2] * len(table)))
    least = LEAST * q_rj.shape[1]
    q_rj = np.ascontiguousarray(q_rj)
    _sum_over_classes(q_rj, least, *_columns(table), chance)
    return chance, np.where(q_rj > least, q_rj, 0.0) @ row_entropy(table).T


def largest_joint(q_rj: Floats, table: FactoredTable) -> Floats:
    """(R, K) sums over answers of the largest joint chance of class and answer."""
    chance = np.zeros((len(q_rj), table.shape[2] * len(table)))
    _most_over_classes(np.ascontiguousarray(q_rj), LEAST * q_rj.shape[1], *_columns(table), chance)
    sums: Floats = chance.reshape(len(q_rj), table.shape[2], len(table)).sum(axis=1)
    return sums


def row_entropy(table: FactoredTable) -> Floats:
    """(K, J) entropies of the rows, in nats."""
    factors, (_, classes, options) = table.factors, table.shape
    inside = _x_log_x(factors.right_kj)
    for which, scale in ((slice(classes), factors.wrong_kj), (slice(classes, None), factors.other_kj)):
        crowd_lj = factors.crowd_lj[which]
        inside = inside + scale * _x_log_x(crowd_lj).sum(axis=0) + _x_log_x(scale) * crowd_lj.sum(axis=0)
    cells = table.cells
    k, option = np.divmod(np.repeat(np.arange(cells.shape[0]), np.diff(cells.indptr)), options)
    expected = factors.at(k, cells.indices, option)
    change = _x_log_x(expected + cells.data) - _x_log_x(expected)
    np.add.at(inside, (k, cells.indices), change)
    return -inside


def dependent(table: FactoredTable) -> float:
    """A bound of 1 - E_k of the annotator whose answers depend most on the truth."""
    factors, classes = table.factors, table.shape[1]
    crowd_lj = factors.crowd_lj.copy()
    np.fill_diagonal(crowd_lj[:classes], np.inf)
    least_l = crowd_lj.min(axis=1)
    least_kl = np.minimum(factors.wrong_kj.min(axis=1, keepdims=True) * least_l[:classes], factors.right_kj)
    certain_k = least_kl.sum(axis=1) + factors.other_kj.min(axis=1) * least_l[classes:].sum()
    return 1.0 - float(certain_k.min(initial=1.0))


def _x_log_x(x: Floats) -> Floats:
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))


def _columns(table: FactoredTable) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    factors, cells = table.factors, table.by_class
    arrays = factors.crowd_lj, factors.wrong_kj, factors.right_kj, factors.other_kj
    crowd, wrong, right, other = (np.ascontiguousarray(array.T) for array in arrays)
    return (crowd, wrong, right, other), (cells.indptr, cells.indices, cells.data)


@compiled
def _of_cell(j: int, k: int, option: int, crowd: Any, wrong: Any, right: Any, other: Any) -> Any:
    """Return the chance in a cell before labels change it."""
    if option == j:
        return right[j, k]
    return crowd[j, option] * (wrong[j, k] if option < right.shape[0] else other[j, k])


@threaded
def _sum_over_classes(q: Any, least: float, factors: tuple[Any, ...], cells: tuple[Any, ...], chance: Any) -> None:
    crowd, wrong, right, other = factors
    start, row, data = cells
    n_classes, n_annotators = right.shape
    n_options = crowd.shape[1]
    for r in prange(len(q)):
        out = chance[r]
        for j in range(n_classes):
            if q[r, j] > least:
                for option in range(n_options):
                    joint, scale = q[r, j] * crowd[j, option], wrong[j] if option < n_classes else other[j]
                    into = out[option * n_annotators : (option + 1) * n_annotators]
                    for k in range(n_annotators):
                        into[k] += joint * scale[k]
                for k in range(n_annotators):
                    out[j * n_annotators + k] += q[r, j] * right[j, k]
                for e in range(start[j], start[j + 1]):
                    k, option = row[e] // n_options, row[e] % n_options
                    out[option * n_annotators + k] += q[r, j] * data[e]


@threaded
def _most_over_classes(q: Any, least: float, factors: tuple[Any, ...], cells: tuple[Any, ...], chance: Any) -> None:
    crowd, wrong, right, other = factors
    start, row, data = cells
    n_classes, n_annotators = right.shape
    n_options = crowd.shape[1]
    for r in prange(len(q)):
        out = chance[r]
        for j in range(n_classes):
            if q[r, j] > least:
                for option in range(n_options):
                    joint, scale = q[r, j] * crowd[j, option], wrong[j] if option < n_classes else other[j]
                    into = out[option * n_annotators : (option + 1) * n_annotators]
                    for k in range(n_annotators):
                        into[k] = max(into[k], joint * scale[k])
                for k in range(n_annotators):
                    at = j * n_annotators + k
                    out[at] = max(out[at], q[r, j] * right[j, k])
                for e in range(start[j], start[j + 1]):
                    k, option = row[e] // n_options, row[e] % n_options
                    joint = q[r, j] * (data[e] + _of_cell(j, k, option, crowd, wrong, right, other))
                    at = option * n_annotators + k
                    out[at] = max(out[at], joint)
