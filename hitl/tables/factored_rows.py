"""Confusion rows of many classes by their factors: what an annotator was never seen to do, the crowd says.

With J classes, L options and K annotators, whole tables have K J L cells: 1.6 GB for 50 annotators and 2,000 classes.
Nearly all of them are what a hierarchy of priors expects, and that has few numbers:

    a[k, j, l]  =  wrong[k, j] crowd[l, j]      l another class than j          crowd[j, j] = 0
                   right[k, j]                  l = j                                                               (1)
                   other[k, j] crowd[l, j]      l no class ("unsure")
                   + cell[k, l, j]              what labels add, stored where it is not 0

Sums over options, diagonals and means over annotators are read off the factors. Divided by its sums over options, such
a table is one again. Code that needs whole matrices gets them, one annotator at a time or all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy import sparse

from hitl.annotations import Floats

FACTORED_ARRAYS = ("crowd", "wrong", "right", "other", "added", "class", "start")
"""What a table by factors consists of: those of (1), and its cells as a sparse table by rows."""


@dataclass(frozen=True, eq=False)
class Factors:
    """What (1) has before labels add anything.

    Attributes:
        crowd_lj: (L, J) of the crowd, 0 where l = j.
        wrong_kj, right_kj, other_kj: (K, J) of the annotators.
    """

    crowd_lj: Floats
    wrong_kj: Floats
    right_kj: Floats
    other_kj: Floats

    @property
    def shape(self) -> tuple[int, int, int]:
        """K, J, L."""
        annotators, classes = self.right_kj.shape
        return annotators, classes, len(self.crowd_lj)

    @cached_property
    def errors_j(self) -> Floats:
        """(J,) sums over the classes that are wrong."""
        sums: Floats = self.crowd_lj[: self.shape[1]].sum(axis=0)
        return sums

    @cached_property
    def others_j(self) -> Floats:
        """(J,) sums over the options that are no class."""
        sums: Floats = self.crowd_lj[self.shape[1] :].sum(axis=0)
        return sums

    def totals(self) -> Floats:
        """(K, J) sums over all options."""
        return self.wrong_kj * self.errors_j + self.right_kj + self.other_kj * self.others_j

    def times(self, factor: Floats | float) -> Factors:
        """All of it times a number, or one for each annotator and class (K, J)."""
        return Factors(self.crowd_lj, self.wrong_kj * factor, self.right_kj * factor, self.other_kj * factor)

    def of(self, annotators: npt.NDArray[np.intp]) -> Factors:
        """Those of some annotators."""
        return Factors(self.crowd_lj, *(each[annotators] for each in (self.wrong_kj, self.right_kj, self.other_kj)))

    def mean(self, weight_k: Floats) -> Factors:
        """Those of one annotator who is the mean of all, by these weights (K,), whose sum is 1."""
        means = (weight_k @ each for each in (self.wrong_kj, self.right_kj, self.other_kj))
        return Factors(self.crowd_lj, *(each[None] for each in means))

    def at(
        self, k: npt.NDArray[np.integer[Any]], j: npt.NDArray[np.integer[Any]], option: npt.NDArray[np.integer[Any]]
    ) -> Floats:
        """(m,) single numbers, by codes (m,) of annotators, classes and options."""
        scale = np.where(option < self.shape[1], self.wrong_kj[k, j], self.other_kj[k, j])
        return np.where(option == j, self.right_kj[k, j], self.crowd_lj[option, j] * scale)

    def tables(self) -> Floats:
        """(K, L, J) whole tables."""
        annotators, classes, options = self.shape
        rows_klj = np.empty((annotators, options, classes))
        np.multiply(self.crowd_lj[:classes], self.wrong_kj[:, None], out=rows_klj[:, :classes])
        np.multiply(self.crowd_lj[classes:], self.other_kj[:, None], out=rows_klj[:, classes:])
        rows_klj[:, np.arange(classes), np.arange(classes)] = self.right_kj
        return rows_klj


class FactoredTable(NDArrayOperatorsMixin):
    """A table (K, J, L) by its factors and cells; in a computation of numpy's it becomes a whole array.

    `table[k]` is the (J, L) matrix of one annotator. Like an array it is not changed.
    """

    ndim = 3

    def __init__(self, factors: Factors, cells: sparse.csr_array) -> None:
        """`cells`: (K L, J) what labels add, a row an annotator and option."""
        self.factors, self.cells = factors, cells

    @property
    def shape(self) -> tuple[int, int, int]:
        """K, J, L."""
        return self.factors.shape

    @property
    def size(self) -> int:
        """K J L."""
        annotators, classes, options = self.shape
        return annotators * classes * options

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        factors = self.factors
        held = (factors.crowd_lj, factors.wrong_kj, factors.right_kj, factors.other_kj)
        return sum(array.nbytes for array in (*held, self.cells.data, self.cells.indices, self.cells.indptr))

    def __len__(self) -> int:
        return self.shape[0]

    # -- read off the factors --------------------------------------------------------------------------------

    def diagonal_kj(self) -> Floats:
        """(K, J) how right each annotator is with each class."""
        annotators, classes, options = self.shape
        diagonal_kj: Floats = self.factors.right_kj.copy()
        row = np.arange(annotators)[:, None] * options + np.arange(classes)
        found = self._in_rows(row.ravel())
        here = found.col == found.row % classes
        np.add.at(diagonal_kj.reshape(-1), found.row[here], found.data[here])
        return diagonal_kj

    def totals(self) -> Floats:
        """(K, J) sums over options."""
        annotators, _, options = self.shape
        one_k = sparse.csr_array(
            (np.ones(annotators * options), np.arange(annotators * options), np.arange(annotators + 1) * options),
            shape=(annotators, annotators * options),
        )
        totals_kj: Floats = self.factors.totals() + (one_k @ self.cells).toarray()
        return totals_kj

    def divided(self, by_kj: Floats) -> FactoredTable:
        """The same divided by (K, J) numbers."""
        cells, options = self.cells.copy(), self.shape[2]
        row = np.repeat(np.arange(cells.shape[0]), np.diff(cells.indptr))
        cells.data /= by_kj[row // options, cells.indices]
        return FactoredTable(self.factors.times(1 / by_kj), cells)

    def of(self, annotators: Sequence[int] | npt.NDArray[np.intp]) -> FactoredTable:
        """That of some annotators, in this order."""
        chosen = np.asarray(annotators, dtype=np.intp)
        rows = (chosen[:, None] * self.shape[2] + np.arange(self.shape[2])).ravel()
        return FactoredTable(self.factors.of(chosen), self.cells[rows])

    def mean(self, weight_k: Floats) -> FactoredTable:
        """The table of one annotator, the mean of all by these weights (K,), whose sum is 1."""
        annotators, _, options = self.shape
        column = np.tile(np.arange(options), annotators), np.arange(annotators * options)
        summed = sparse.csr_array((np.repeat(weight_k, options), column), shape=(options, annotators * options))
        return FactoredTable(self.factors.mean(weight_k), sparse.csr_array(summed @ self.cells))

    def rows(self, k: int, options: npt.NDArray[np.integer[Any]]) -> Floats:
        """(len(options), J) what an annotator does with these options, by true class."""
        return self.given(np.full(len(options), k), options)

    def given(self, k: npt.NDArray[np.integer[Any]], option: npt.NDArray[np.integer[Any]]) -> Floats:
        """(m, J) chances of single answers by true class, by codes (m,) of annotators and options."""
        factors, classes = self.factors, self.shape[1]
        rows: Floats = factors.crowd_lj[option]
        rows *= np.where((option < classes)[:, None], factors.wrong_kj[k], factors.other_kj[k])
        right = np.flatnonzero(option < classes)
        rows[right, option[right]] = factors.right_kj[k[right], option[right]]
        found = self._in_rows(k.astype(np.int64) * self.shape[2] + option)
        np.add.at(rows, (found.row, found.col), found.data)
        return rows

    def answers(self, k: npt.NDArray[np.integer[Any]], j: npt.NDArray[np.integer[Any]]) -> Floats:
        """(m, L) chances of all answers, by codes (m,) of annotators and true classes."""
        m, (_, classes, options) = np.arange(len(k)), self.shape
        chances = np.ascontiguousarray(self.factors.crowd_lj.T[j])
        chances[:, :classes] *= self.factors.wrong_kj[k, j][:, None]
        chances[:, classes:] *= self.factors.other_kj[k, j][:, None]
        chances[m, j] = self.factors.right_kj[k, j]
        columns = self.by_class
        for at, annotator, true in zip(m.tolist(), k.tolist(), j.tolist(), strict=True):
            own = slice(*columns.indptr[true : true + 2])
            row = columns.indices[own]
            first, last = np.searchsorted(row, [annotator * options, (annotator + 1) * options])
            chances[at, row[first:last] - annotator * options] += columns.data[own][first:last]
        return chances

    @cached_property
    def by_class(self) -> sparse.csc_array:
        """(K L, J) the cells by columns, rows in order."""
        columns = sparse.csc_array(self.cells)
        columns.sort_indices()
        return columns

    def at(
        self, k: npt.NDArray[np.integer[Any]], j: npt.NDArray[np.integer[Any]], option: npt.NDArray[np.integer[Any]]
    ) -> Floats:
        """(m,) single numbers, by codes (m,) of annotators, classes and options."""
        added = sparse.csr_matrix(self.cells)[k.astype(np.int64) * self.shape[2] + option, j]
        return np.asarray(self.factors.at(k, j, option) + np.asarray(added).ravel())

    def beside(self, other: FactoredTable) -> FactoredTable:
        """Its annotators, and after them those of another table with the same crowd."""
        mine, others = self.factors, other.factors
        pairs = ((mine.wrong_kj, others.wrong_kj), (mine.right_kj, others.right_kj), (mine.other_kj, others.other_kj))
        factors = Factors(mine.crowd_lj, *(np.concatenate(pair) for pair in pairs))
        return FactoredTable(factors, sparse.csr_array(sparse.vstack([self.cells, other.cells])))

    def _in_rows(self, row: npt.NDArray[np.integer[Any]]) -> sparse.coo_array:
        return sparse.coo_array(self.cells[row])

    # -- as an array -----------------------------------------------------------------------------------------

    def __array__(self, dtype: npt.DTypeLike = None, copy: bool | None = None) -> Floats:
        whole = np.stack([self[k] for k in range(len(self))]) if len(self) else np.empty(self.shape)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(each) if each is self else each for each in inputs), **keywords)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, int | np.integer):
            k = range(len(self))[int(place)]
            return np.ascontiguousarray(self.rows(k, np.arange(self.shape[2])).T)
        return np.asarray(self)[place]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    # -- stored ----------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What it consists of, by the names in `FACTORED_ARRAYS`."""
        factors, cells = self.factors, self.cells
        whole = factors.crowd_lj, factors.wrong_kj, factors.right_kj, factors.other_kj
        return dict(zip(FACTORED_ARRAYS, (*whole, cells.data, cells.indices, cells.indptr), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> FactoredTable:
        """What `arrays` made."""
        *whole, added, classes, start = (arrays[name] for name in FACTORED_ARRAYS)
        factors = Factors(*whole)
        k, j, options = factors.shape
        return cls(factors, sparse.csr_array((added, classes, start), shape=(k * options, j)))


def as_array(table: FactoredTable) -> Floats:
    """The table where an array is expected, which it stands for."""
    return cast(Floats, table)


def by_factors(table_kjl: Any) -> TypeGuard[FactoredTable]:
    """Whether a table (K, J, L) is given by its factors."""
    return isinstance(table_kjl, FactoredTable)


def diagonals(table_kjl: Floats) -> Floats:
    """(K, J) how right annotators are with each class, of a table (K, J, L) of either form."""
    if by_factors(table_kjl):
        return table_kjl.diagonal_kj()
    return np.diagonal(table_kjl, axis1=1, axis2=2)


def given(table_kjl: Floats, k: npt.NDArray[np.integer[Any]], option: npt.NDArray[np.integer[Any]]) -> Floats:
    """(m, J) entries of single answers by true class, of a table (K, J, L) of either form."""
    if by_factors(table_kjl):
        return table_kjl.given(k, option)
    return table_kjl[k, :, option]
