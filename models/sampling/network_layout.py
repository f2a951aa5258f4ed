"""Networks, the answers of their annotators, and the items, as flat arrays for compiled chains.

The answers of a network to an item are a pattern: the cells of the network's table that agree with them. Items with the
same patterns and known class are one distinct item, with a weight. The table of network g is J rows of L^S cells; its
parameters are V by class, then W. The network of easy items, if any, is the last. Its only annotator gives every label
of an easy item.

Groups. Annotators linked by common items, directly or through others, are one network if its table has at most
`exact_states` columns. A larger network is cut into groups, with tables of at most `group_states` columns, of
annotators who agree most beyond what the class explains,

    z_kk' = sum_n ( [l_nk = l_nk'] - e_nkk' ) / sqrt( sum_n e_nkk' (1 - e_nkk') )
    e_nkk' = sum_j q_nj sum_l pi_kjl pi_k'jl

with confusion matrices from the votes, and beliefs q without the labels of k and k'. From the largest z down to
JOINED_ABOVE, the groups of k and k' are joined if the result is small enough. The pool of anonymous annotators is
always a network of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote
from hitl.models.numerics import kernels
from hitl.models.numerics.compiled import compiled
from hitl.models.sampling.markov_network import Graph

JOINED_ABOVE = 2.0
"""Agreement beyond chance, in standard deviations, that joins two annotators of a large network: needless couplings end
near 0, and on real annotators log loss was better with 2 than with 3 or 4."""

Codes = npt.NDArray[np.int64]


class Networks(NamedTuple):
    """Sizes of the networks, and where each network lies in flat arrays.

    Attributes:
        n_classes, n_options: J and L.
        n_groups: number of networks of annotators, without the network of easy items.
        member_start, pair_start, theta_start, table_start, metric_start: (G + 1,) start of each network in the arrays
            of annotators m, couplings p, parameters, tables and metrics.
        first_p, second_p: positions first < second, within their network, of the annotators that each coupling joins.
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
    """Cells of the flat tables that agree with each pattern.

    Pattern u agrees with the cells cell[cell_start[u] : cell_start[u + 1]] for class 0; each next class is stride_u[u]
    cells further. In the table of easy items its labels are the cells said[said_start[u] : said_start[u + 1]].
    """

    cell_start: Codes
    cell: Codes
    stride_u: Codes
    said_start: Codes
    said: Codes


class Items(NamedTuple):
    """Distinct items. Item i has the patterns pattern[start[i] : start[i + 1]], and stands for weight_i[i] items.

    `known_i`: known class, or -1.
    """

    start: Codes
    pattern: Codes
    known_i: Codes
    weight_i: Codes


class Layout(NamedTuple):
    """Networks, patterns and items of a chain.

    `member` (M,): codes of the annotators m. `distinct_n` (N,): the distinct item of each item, -1 for items with
    neither labels nor ground truth.
    """

    networks: Networks
    patterns: Patterns
    items: Items
    member: Codes
    distinct_n: Codes


def layout(evidence: Evidence, groups: Sequence[Codes], shared_kk: npt.NDArray[np.bool_], *, easy: bool) -> Layout:
    """Lay out these networks of annotators, with couplings where `shared_kk`; `easy` adds the network of easy items."""
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
    """Compute where these networks lie in the flat arrays; arguments as in `layout`."""
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
    """Return the part of a flat array of parameters that belongs to network g."""
    return flat_x[networks.theta_start[g] : networks.theta_start[g + 1]]


@compiled
def table_of(networks: Any, g: int, flat: Any) -> Any:
    """Return (J, L^S) the table of network g."""
    start, end = networks.table_start[g], networks.table_start[g + 1]
    return flat[start:end].reshape((networks.n_classes, (end - start) // networks.n_classes))


def _patterns(annotations: Annotations, group: Codes) -> tuple[Ints, Codes, Codes]:
    """Return (U, S) distinct rows of answers, -1 if missing; the items with answers; and the row of each such item."""
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


# -- groups ----------------------------------------------------------------------------------------------------


def groups(evidence: Evidence, exact_states: int, group_states: int) -> tuple[list[Codes], npt.NDArray[np.bool_]]:
    """Return the annotators of each network, and (K, K) True for pairs with common items, which the pool never has."""
    annotations = evidence.annotations
    shared_kk = shared_items(annotations) > 0
    networks: list[Codes] = []
    excess_kk: Floats | None = None
    for part in _components(shared_kk):
        if part.size == 1 or annotations.n_options ** int(part.size) <= exact_states:
            networks.append(part)
            continue
        if excess_kk is None:
            excess_kk = excess_agreement(evidence, MajorityVote().fit(evidence))
        networks += cut(part, excess_kk, annotations.n_options, group_states)
    return networks, shared_kk


def shared_items(annotations: Annotations) -> Codes:
    """Return (K, K) numbers of items that both annotators labeled; 0 for the pool and on the diagonal."""
    named = annotations.annotator != _anonymous(annotations)
    answered = sparse.csr_array(
        (np.ones(int(named.sum()), np.int64), (annotations.item[named], annotations.annotator[named])),
        shape=(annotations.n_items, annotations.n_annotators),
    )
    together: Codes = (answered.T @ answered).toarray()
    np.fill_diagonal(together, 0)
    return together


def excess_agreement(evidence: Evidence, learned: Consensus) -> Floats:
    """Return (K, K) z: agreement of two annotators beyond what `learned` explains; 0 if they share no item.

    Takes J L operations for every pair of labels of an item.
    """
    annotations = evidence.annotations
    pi_klj = np.ascontiguousarray(np.maximum(learned.annotators.confusion, 1e-12).transpose(0, 2, 1))
    logits_nj = kernels.messages(annotations, np.log(pi_klj)) + np.log(learned.class_shares)
    sums = np.zeros((2, annotations.n_annotators, annotations.n_annotators))
    labels = annotations.item_start, annotations.annotator, annotations.label, evidence.truth, _anonymous(annotations)
    _add_excess(*labels, pi_klj, logits_nj, sums)
    excess_kk: Floats = sums[0] / np.sqrt(np.maximum(sums[1], 1e-12))
    return excess_kk + excess_kk.T


@compiled
def _add_excess(
    item_start: Any, annotator: Any, label: Any, truth: Any, anonymous: int, pi: Any, logits: Any, sums: Any
) -> None:
    n_options, n_classes = pi.shape[1], pi.shape[2]
    q = np.empty(n_classes)
    for n in range(logits.shape[0]):
        for one in range(item_start[n], item_start[n + 1]):
            for other in range(one + 1, item_start[n + 1]):
                a, b = annotator[one], annotator[other]
                if a == anonymous or b == anonymous:
                    continue
                top = -np.inf
                for j in range(n_classes):
                    q[j] = logits[n, j] - np.log(pi[a, label[one], j]) - np.log(pi[b, label[other], j])
                    top = max(top, q[j])
                total = expected = 0.0
                for j in range(n_classes):
                    weight = np.exp(q[j] - top) if truth[n] < 0 else (1.0 if truth[n] == j else 0.0)
                    total += weight
                    for option in range(n_options):
                        expected += weight * pi[a, option, j] * pi[b, option, j]
                expected = min(expected / total, 1.0)
                sums[0, a, b] += (1.0 if label[one] == label[other] else 0.0) - expected
                sums[1, a, b] += expected * (1.0 - expected)


def cut(part: Codes, excess_kk: Floats, n_options: int, group_states: int) -> list[Codes]:
    """Cut one network into groups. Groups of two are always allowed, however many options there are."""
    most = 2
    while n_options ** (most + 1) <= group_states:
        most += 1
    first, second = np.triu_indices(part.size, 1)
    excess = excess_kk[part[first], part[second]]
    order = np.argsort(-excess, kind="stable")
    group_m = [[m] for m in range(part.size)]
    for pair in order[excess[order] > JOINED_ABOVE]:
        one, other = group_m[first[pair]], group_m[second[pair]]
        if one is not other and len(one) + len(other) <= most:
            one += other
            for m in other:
                group_m[m] = one
    distinct = {id(group): sorted(group) for group in group_m}
    return [part[group] for group in distinct.values()]


def _components(shared_kk: npt.NDArray[np.bool_]) -> list[Codes]:
    count, part_k = csgraph.connected_components(sparse.csr_array(shared_kk), directed=False)
    order = np.argsort(part_k, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(part_k, minlength=count))[:-1])


def _anonymous(annotations: Annotations) -> int:
    return -1 if annotations.anonymous is None else annotations.anonymous
