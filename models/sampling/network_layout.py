"""Networks, the answers of their annotators, and the items, as flat arrays for compiled chains.

The answers of a network to an item are a pattern: the cells of the network's table that agree with them. Items with the
same patterns and known class are one, with a weight. The table of network g is J rows of L^S cells, its parameters are
V by class, then W. The network of easy items, if any, is the last: one annotator gives every label of an easy item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Ints
from hitl.evidence import Evidence
from hitl.models.numerics.compiled import compiled
from hitl.models.sampling.markov_network import Graph

Codes = npt.NDArray[np.int64]


class Networks(NamedTuple):
    """J, L, the number of networks of annotators, and the starts of each network in flat arrays.

    The arrays hold annotators m, couplings between positions first < second, parameters, tables and metrics.
    """

    n_classes: int
    n_options: int
    n_groups: int
    member_start: Codes
    pair_start: Codes
    first_p: Codes
    second_p: Codes
    theta_start: Codes
    table_start: Codes
    metric_start: Codes


class Patterns(NamedTuple):
    """Pattern u agrees with cells cell[cell_start[u]:[u + 1]] of class 0, and those stride_u[u] on per next class.

    Its labels are the cells said[said_start[u]:[u + 1]] of class 0 of the network of easy items.
    """

    cell_start: Codes
    cell: Codes
    stride_u: Codes
    said_start: Codes
    said: Codes


class Items(NamedTuple):
    """Distinct item i: patterns pattern[start[i]:[i + 1]], known class or -1, and the number of items it stands for."""

    start: Codes
    pattern: Codes
    known_i: Codes
    weight_i: Codes


class Layout(NamedTuple):
    """What chains run over; `member`: codes of annotators m; `distinct_n`: -1 for items without labels and truth."""

    networks: Networks
    patterns: Patterns
    items: Items
    member: Codes
    distinct_n: Codes


def layout(evidence: Evidence, groups: Sequence[Codes], shared_kk: npt.NDArray[np.bool_], *, easy: bool) -> Layout:
    """Lay out these networks of annotators, with couplings where `shared_kk`; `easy` adds that of easy items."""
    annotations = evidence.annotations
    networks = lay_networks(annotations.n_classes, annotations.n_options, groups, shared_kk, easy=easy)
    rows_g, item_g, code_g = zip(*(_patterns(annotations, group) for group in groups), strict=True)
    cells = [
        cells + start
        for rows, start in zip(rows_g, networks.table_start, strict=False)
        for cells in _cells(rows, annotations.n_options)
    ]
    size_g = np.diff(networks.table_start)[: len(groups)] // annotations.n_classes
    said = [row[row >= 0] + networks.table_start[len(groups)] for rows in rows_g for row in rows]
    patterns = Patterns(
        _starts([len(row) for row in cells]),
        _joined(cells),
        np.repeat(size_g, [len(rows) for rows in rows_g]),
        _starts([len(row) for row in said]),
        _joined(said),
    )
    first_g = _starts([len(rows) for rows in rows_g])
    pattern = np.concatenate([code + first for code, first in zip(code_g, first_g, strict=False)])
    items, distinct_n = _distinct(evidence, np.concatenate(item_g), pattern)
    return Layout(networks, patterns, items, np.concatenate(groups), distinct_n)


def lay_networks(
    n_classes: int, n_options: int, groups: Sequence[Codes], shared_kk: npt.NDArray[np.bool_], *, easy: bool
) -> Networks:
    """Compute where everything of these networks lies."""
    pairs_g = [
        [(a, b) for b in range(group.size) for a in range(b) if shared_kk[group[a], group[b]]] for group in groups
    ]
    pairs = np.array([pair for pairs in pairs_g for pair in pairs], np.int64).reshape(-1, 2)
    size_g = np.array([group.size for group in groups] + [1] * easy)
    count_g = np.array([len(pairs) for pairs in pairs_g] + [0] * easy)
    width_g = size_g * n_options
    return Networks(
        n_classes,
        n_options,
        len(groups),
        _starts(size_g),
        _starts(count_g),
        np.ascontiguousarray(pairs[:, 0]),
        np.ascontiguousarray(pairs[:, 1]),
        _starts(n_classes * width_g + count_g),
        _starts(n_classes * n_options**size_g),
        _starts(n_classes * width_g * (width_g + count_g) + count_g**2),
    )


@compiled
def graph_of(networks: Any, g: int) -> Any:
    """Return the couplings of network g."""
    first, last = networks.pair_start[g], networks.pair_start[g + 1]
    return Graph(networks.n_options, networks.first_p[first:last], networks.second_p[first:last])


@compiled
def parameters_of(networks: Any, g: int, flat_x: Any) -> Any:
    """Return the part of network g in a flat array of parameters."""
    return flat_x[networks.theta_start[g] : networks.theta_start[g + 1]]


@compiled
def table_of(networks: Any, g: int, flat: Any) -> Any:
    """Return (J, L^S) the table of network g."""
    start, end = networks.table_start[g], networks.table_start[g + 1]
    return flat[start:end].reshape((networks.n_classes, (end - start) // networks.n_classes))


def _patterns(annotations: Annotations, group: Codes) -> tuple[Ints, Codes, Codes]:
    """Return (u, S) distinct rows of answers, -1 where missing, the items that have one, and its number."""
    start, rows = annotations.by_annotator
    mine = np.concatenate([rows[:0], *(rows[start[k] : start[k + 1]] for k in group)])
    if group.size == 1:  # the pool may answer an item many times
        options = np.arange(annotations.n_options, dtype=np.int32)[:, None]
        return options, annotations.item[mine].astype(np.int64), annotations.label[mine].astype(np.int64)
    position = np.repeat(np.arange(group.size), start[group + 1] - start[group])
    items, row = np.unique(annotations.item[mine], return_inverse=True)
    answers = np.full((items.size, group.size), -1, np.int32)
    answers[row, position] = annotations.label[mine]
    distinct, code = np.unique(answers, axis=0, return_inverse=True)
    return distinct, items.astype(np.int64), code.reshape(-1).astype(np.int64)


def _cells(rows: Ints, n_options: int) -> list[Codes]:
    """Return the cells of the network's table that agree with each row; annotator i is digit i, base L."""
    cells_r: list[Codes] = []
    for row in rows:
        cells = np.zeros(1, np.int64)
        for member, label in enumerate(row):
            options = np.arange(n_options) if label < 0 else np.array([label])
            cells = (cells[:, None] + options * n_options**member).reshape(-1)
        cells_r.append(cells)
    return cells_r


def _distinct(evidence: Evidence, item_r: Codes, pattern_r: Codes) -> tuple[Items, Codes]:
    assert evidence.truth is not None
    order = np.lexsort((pattern_r, item_r))
    start_n = _starts(np.bincount(item_r, minlength=len(evidence.truth)))
    pattern = pattern_r[order]
    place: dict[tuple[int, bytes], int] = {}
    first: list[int] = []
    distinct_n = np.full(len(evidence.truth), -1, np.int64)
    for n, truth in enumerate(evidence.truth):
        if start_n[n] == start_n[n + 1] and truth < 0:
            continue
        key = (int(truth), pattern[start_n[n] : start_n[n + 1]].tobytes())
        distinct_n[n] = place.setdefault(key, len(place))
        if distinct_n[n] == len(first):
            first.append(n)
    patterns = [pattern[start_n[n] : start_n[n + 1]] for n in first]
    items = Items(
        _starts([len(row) for row in patterns]),
        _joined(patterns),
        evidence.truth[first].astype(np.int64),
        np.bincount(distinct_n[distinct_n >= 0], minlength=len(first)),
    )
    return items, distinct_n


def _starts(sizes: npt.ArrayLike) -> Codes:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def _joined(rows: Sequence[npt.NDArray[Any]]) -> Codes:
    joined: Codes = np.concatenate([np.zeros(0, np.int64), *rows]).astype(np.int64)
    return joined
