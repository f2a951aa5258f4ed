"""Confusion rows where labels are, made as they are read: for many classes, whose whole tables would fill the memory.

A cell p = (k, l) is an annotator and an option that they gave at least once; there are P <= M of them. All others have
no counts: their parts of a Dirichlet row are what its prior says, in every iteration. With beliefs q, weights u of the
items, and pseudo-counts b = v + factors (`Factors`: crowd, right, wrong; v, votes, are few):

    N_pj     =  sum over labels (n, p) of u_n q_nj                        expected counts, linear in the beliefs
    A_kj     =  sum over p of k of N_pj  +  sum over l of b_klj           of all options
    pi_pj    =  (N_pj + b_pj) / A_kj                                      the posterior mean of the row
    L_nj     =  sum over labels (n, p) of ln pi_pj                        the messages
    density  =  sum over p, j of b_pj ln pi_pj  -  sum over k, j of e_kj ln A_kj  +  a constant                      (1)

with e_kj = sum of b over the options never given, whose own part is the constant sum b ln b. So beliefs stand for
counts and messages for rows. Nothing in it but the normaliser of beliefs joins two classes: passes take BLOCK classes
at a time, annotator after annotator, and hold P_k BLOCK numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.models.numerics.compiled import compiled, inlined, threaded
from hitl.models.numerics.kernels import log_positive
from hitl.tables.factored_rows import Factors

BLOCK = 128
"""Classes a pass takes at a time: enough for vector instructions, few enough for the rows of a person in the cache."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The labels of a table by cells, cells by annotators; within a cell by items.

    Attributes:
        n_options, n_classes: L and J.
        item_m: (M,) items of the labels.
        label_start: (P + 1,) where the labels of each cell begin.
        option_p: (P,) options of the cells.
        cell_start: (K + 1,) where the cells of each annotator begin.
    """

    n_options: int
    n_classes: int
    item_m: npt.NDArray[np.int64]
    label_start: npt.NDArray[np.int64]
    option_p: npt.NDArray[np.int64]
    cell_start: npt.NDArray[np.int64]

    @classmethod
    def of(cls, annotations: Annotations) -> Cells:
        """Of these labels."""
        order = np.argsort(annotations.cell, kind="stable")
        cell_p, size_p = np.unique(annotations.cell[order], return_counts=True)
        k_p, option_p = np.divmod(cell_p.astype(np.int64), annotations.n_options)
        cell_start = np.searchsorted(k_p, np.arange(annotations.n_annotators + 1))
        return cls(
            annotations.n_options,
            annotations.n_classes,
            annotations.item[order].astype(np.int64),
            np.append(0, np.cumsum(size_p)),
            option_p,
            cell_start.astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.option_p)

    @property
    def n_annotators(self) -> int:
        """K."""
        return len(self.cell_start) - 1

    @cached_property
    def annotator_p(self) -> npt.NDArray[np.int64]:
        """(P,) annotators of the cells."""
        return np.repeat(np.arange(self.n_annotators), np.diff(self.cell_start))

    @property
    def row_p(self) -> npt.NDArray[np.int64]:
        """(P,) rows of the cells in a table (K L, J)."""
        return self.annotator_p * self.n_options + self.option_p

    def summed(self, weight_n: Floats, items: int) -> sparse.csr_array:
        """(P, N) whose product with beliefs (N, J) is their counts."""
        return sparse.csr_array((weight_n[self.item_m], self.item_m, self.label_start), shape=(len(self), items))


@dataclass(frozen=True, eq=False)
class Pseudo:
    """Pseudo-counts of all annotators and options, with the cells that have been observed.

    Attributes:
        factors: what annotators are expected to do.
        votes_pj: (P, J) what votes add, where they are not 0.
    """

    factors: Factors
    votes_pj: sparse.csr_array
    cells: Cells

    @cached_property
    def totals_kj(self) -> Floats:
        """(K, J) sums over options."""
        votes_kj = self._by_annotator @ self.votes_pj
        totals_kj: Floats = self.factors.totals() + votes_kj.toarray()
        return totals_kj

    @cached_property
    def unseen(self) -> tuple[Floats, float]:
        """(K, J) sums of b over the options that an annotator never gave, and the sum of b ln b over them."""
        factors, cells = self.factors, self.cells
        unseen_kl = np.ones((cells.n_annotators, cells.n_options))
        unseen_kl[cells.annotator_p, cells.option_p] = 0.0
        classes = cells.n_classes
        right_kj = factors.right_kj * unseen_kl[:, :classes]
        total_kj, constant = right_kj, float(_x_log_x(right_kj).sum())
        for which, scale_kj in ((slice(classes), factors.wrong_kj), (slice(classes, None), factors.other_kj)):
            crowd_lj = factors.crowd_lj[which]
            sum_kj, inside_kj = unseen_kl[:, which] @ crowd_lj, unseen_kl[:, which] @ _x_log_x(crowd_lj)
            total_kj = total_kj + scale_kj * sum_kj
            constant += float((scale_kj * inside_kj).sum() + (_x_log_x(scale_kj) * sum_kj).sum())
        return total_kj, constant

    @property
    def _by_annotator(self) -> sparse.csr_array:
        start, size = self.cells.cell_start, len(self.cells)
        return sparse.csr_array((np.ones(size), np.arange(size), start), shape=(len(start) - 1, size))


def read(pseudo: Pseudo, q_nj: Floats, weight_n: Floats) -> tuple[Floats, float]:
    """(N, J) messages of the rows that are learned from beliefs, and (1) with its constant.

    Counts below 0, of beliefs that went on beyond their aim, are 0.
    """
    unseen_kj, constant = pseudo.unseen
    message_nj = np.empty(q_nj.shape)
    density = np.zeros(blocks_of(q_nj.shape[1]))
    votes = pseudo.votes_pj
    _read(
        labels_of(pseudo.cells),
        np.ascontiguousarray(q_nj),
        weight_n,
        (pseudo.totals_kj, unseen_kj),
        arrays_of(pseudo.factors),
        (votes.indptr, votes.indices, votes.data),
        message_nj,
        density,
    )
    return message_nj, float(density.sum()) + constant


def labels_of(cells: Cells) -> tuple[npt.NDArray[np.int64], ...]:
    """What loops read of the labels."""
    return cells.cell_start, cells.label_start, cells.item_m, cells.option_p


def arrays_of(factors: Factors) -> tuple[Floats, ...]:
    """What loops read of factors."""
    return factors.crowd_lj, factors.wrong_kj, factors.right_kj, factors.other_kj


def blocks_of(n_classes: int) -> int:
    """How many blocks of classes."""
    return -(-n_classes // BLOCK)


def _x_log_x(x: Floats) -> Floats:
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))


@inlined
def counted_row(first: int, last: int, item: Any, q: Any, weight: Any, low: int, row: Any) -> None:
    """A row of counts: those of a cell's labels."""
    for j in range(row.shape[0]):
        row[j] = 0.0
    for m in range(first, last):
        times = weight[item[m]]
        if times:
            of_item = q[item[m], low : low + row.shape[0]]
            for j in range(row.shape[0]):
                row[j] += times * of_item[j]


@inlined
def expected_row(option: int, low: int, crowd: Any, wrong: Any, right: Any, other: Any, row: Any) -> None:
    """A row of the factors of an annotator."""
    high = low + row.shape[0]
    of_crowd, scale = crowd[option, low:high], wrong[low:high] if option < right.shape[0] else other[low:high]
    for j in range(row.shape[0]):
        row[j] = of_crowd[j] * scale[j]
    if low <= option < high and option < right.shape[0]:
        row[option - low] = right[option]


@compiled
def _longest(start: Any) -> int:
    most = 0
    for k in range(start.shape[0] - 1):
        most = max(most, start[k + 1] - start[k])
    return most


@compiled
def _read_block(low: Any, labels: Any, q: Any, weight: Any, sums: Any, factors: Any, votes: Any, message: Any) -> float:
    """Messages of BLOCK classes; returns their part of the density."""
    cell_start, label_start, item, option = labels
    totals, unseen = sums
    crowd, wrong, right, other = factors
    vote_start, vote_class, vote = votes
    high = min(low + BLOCK, q.shape[1])
    rows, pseudo = np.empty((_longest(cell_start), high - low)), np.empty((_longest(cell_start), high - low))
    total, explained = np.empty(high - low), np.zeros(high - low)
    message[:, low:high] = 0.0
    for k in range(cell_start.shape[0] - 1):
        begin, end = cell_start[k], cell_start[k + 1]
        total[:] = totals[k, low:high]
        for p in range(begin, end):
            row, prior = rows[p - begin], pseudo[p - begin]
            counted_row(label_start[p], label_start[p + 1], item, q, weight, low, row)
            expected_row(option[p], low, crowd, wrong[k], right[k], other[k], prior)
            for v in range(vote_start[p], vote_start[p + 1]):
                if low <= vote_class[v] < high:
                    prior[vote_class[v] - low] += vote[v]
            for j in range(total.shape[0]):
                count = max(row[j], 0.0)
                total[j] += count
                row[j] = count + prior[j]
        unseen_j = unseen[k, low:high]
        for j in range(total.shape[0]):
            total[j] = log_positive(total[j])
            explained[j] -= unseen_j[j] * total[j]
        for p in range(begin, end):
            row, prior = rows[p - begin], pseudo[p - begin]
            for j in range(total.shape[0]):
                row[j] = log_positive(row[j]) - total[j]
                explained[j] += prior[j] * row[j]
            for m in range(label_start[p], label_start[p + 1]):
                of_item = message[item[m], low:high]
                for j in range(total.shape[0]):
                    of_item[j] += row[j]
    return float(explained.sum())


@threaded
def _read(labels: Any, q: Any, weight: Any, sums: Any, factors: Any, votes: Any, message: Any, density: Any) -> None:
    for block in prange(density.shape[0]):
        low = np.int64(block) * BLOCK
        density[block] = _read_block(low, labels, q, weight, sums, factors, votes, message)
