"""Confusion matrices of many classes: one accuracy per annotator, and errors that are distributed as in the crowd.

With J classes, L options and K annotators, full tables have K J L cells: 4 billion for 1,000 annotators and 2,000
classes. Labels fill only a few thousand of them. The tables here are

    table[k, j, l]  =  weight_k right_k                       l = j                                               (1)
                       weight_k (1 - right_k) error[j, l]     else         error[j, :] sums to 1 over l != j
    error[j, l]     =  even_j + seen[j, l]                                 `seen` is sparse

If the weights are 1, the entries are probabilities, otherwise Dirichlet parameters. Code that needs full matrices gets
the matrix of one annotator by indexing, and those of all annotators by numpy operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy import sparse

from hitl.tables.encode import Floats

Codes = npt.NDArray[np.integer[Any]]
ARRAYS = ("right", "weight", "even", "seen", "option", "start", "options")
"""Names of the arrays that a table consists of."""


class SharedErrors(NDArrayOperatorsMixin):
    """Immutable table (K, J, L) defined by (1). numpy operations convert it to a full array.

    Attributes:
        right_k: (K,) probability that an annotator is right, in (0, 1).
        weight_k: (K,) sum of each row of an annotator's matrix.
        even_j: (J,) smallest probability of a wrong option, given an error.
        seen: (J, L) sparse additional probability of the errors that occurred in the crowd; 0 where l = j.
    """

    ndim = 3

    def __init__(self, right_k: Floats, weight_k: Floats, even_j: Floats, seen: sparse.csr_array) -> None:
        """Store these arrays."""
        self.right_k, self.weight_k, self.even_j, self.seen = right_k, weight_k, even_j, seen

    @property
    def shape(self) -> tuple[int, int, int]:
        """K, J, L."""
        return (len(self.right_k), *self.seen.shape)

    @property
    def size(self) -> int:
        """K J L."""
        annotators, classes, options = self.shape
        return annotators * classes * options

    def __len__(self) -> int:
        return len(self.right_k)

    def of(self, right_k: Floats) -> SharedErrors:
        """Return a table of probabilities, with the same errors, for annotators with these accuracies."""
        return SharedErrors(right_k, np.ones(len(right_k)), self.even_j, self.seen)

    def diagonal_kj(self) -> Floats:
        """Return the (K, J) entries on the diagonals; with weights 1, the probability that an annotator is right."""
        right_k = self.weight_k * self.right_k
        return np.repeat(right_k[:, None], self.shape[1], axis=1)

    def given(self, k: Codes, option: Codes) -> Floats:
        """Return the (m, J) entries of m answers for each true class. `k`, `option` (m,): annotators and answers."""
        rows: Floats = self.seen.T.tocsr()[option].toarray() + self.even_j
        rows *= (self.weight_k * (1 - self.right_k))[k][:, None]
        here = np.flatnonzero(option < self.shape[1])
        rows[here, option[here]] = (self.weight_k * self.right_k)[k[here]]
        return rows

    def answers(self, k: Codes, j: Codes) -> Floats:
        """Return the (m, L) entries of all options. `k`, `j` (m,): annotators and true classes."""
        rows: Floats = self.seen[j].toarray() + self.even_j[j][:, None]
        rows *= (self.weight_k * (1 - self.right_k))[k][:, None]
        rows[np.arange(len(j)), j] = (self.weight_k * self.right_k)[k]
        return rows

    def at(self, k: Codes, j: Codes, option: Codes) -> Floats:
        """Return the (m,) entries for these annotators, true classes and options."""
        error = np.asarray(sparse.csr_matrix(self.seen)[j, option]).ravel() + self.even_j[j]
        chance = np.where(option == j, self.right_k[k], (1 - self.right_k[k]) * error)
        return np.asarray(self.weight_k[k] * chance)

    def log_messages(self, counts_nl: sparse.csr_array, wrong_n: Floats, right_nl: sparse.csr_array) -> Floats:
        """Return (N, J) sums of the logarithm of (1), with weights 1, over the labels of each item.

        `counts_nl` (N, L): number of labels. `wrong_n` (N,): sum of ln (1 - right_k) over labels. `right_nl` (N, L):
        sum of ln right_k - ln (1 - right_k) over labels.
        """
        classes, log_even_j = self.shape[1], np.log(self.even_j)
        raised = sparse.csr_array(self.seen.copy())
        raised.data = np.log1p(raised.data / np.repeat(self.even_j, np.diff(raised.indptr)))
        message_nj = np.multiply.outer(np.asarray(counts_nl.sum(axis=1)).ravel(), log_even_j)
        message_nj += wrong_n[:, None]
        for part in (counts_nl @ raised.T, right_nl[:, :classes] - counts_nl[:, :classes] * log_even_j):
            entries = sparse.coo_array(part)
            np.add.at(message_nj, (entries.row, entries.col), entries.data)
        return np.asarray(message_nj)

    # -- as an array -----------------------------------------------------------------------------------------

    def __array__(self, dtype: npt.DTypeLike = None, copy: bool | None = None) -> Floats:
        whole = np.stack([self[k] for k in range(len(self))]) if len(self) else np.empty(self.shape)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(each) if each is self else each for each in inputs), **keywords)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, int | np.integer):
            k = range(len(self))[int(place)]
            return self.answers(np.full(self.shape[1], k), np.arange(self.shape[1]))
        return np.asarray(self)[place]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    # -- stored ----------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the table's arrays, by the names in ARRAYS."""
        seen = self.seen
        parts = (self.right_k, self.weight_k, self.even_j, seen.data, seen.indices, seen.indptr, [seen.shape[1]])
        return dict(zip(ARRAYS, map(np.asarray, parts), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> SharedErrors:
        """Rebuild a table from `arrays`."""
        right_k, weight_k, even_j, data, option, start, options = (arrays[name] for name in ARRAYS)
        seen = sparse.csr_array((data, option, start), shape=(len(even_j), int(options[0])))
        return cls(right_k, weight_k, even_j, seen)


def as_array(table: SharedErrors) -> Floats:
    """Return the table itself, typed as an array. Nothing is converted before a numpy operation needs it."""
    return cast(Floats, table)


def share_errors(table_kjl: Any) -> TypeGuard[SharedErrors]:
    """Return True for a table (K, J, L) whose annotators share their errors."""
    return isinstance(table_kjl, SharedErrors)


def diagonals(table_kjl: Floats) -> Floats:
    """Return the (K, J) entries on the diagonals of a table (K, J, L), which may be an array or SharedErrors."""
    return table_kjl.diagonal_kj() if share_errors(table_kjl) else np.diagonal(table_kjl, axis1=1, axis2=2)


def given(table_kjl: Floats, k: Codes, option: Codes) -> Floats:
    """Return the (m, J) entries of m answers for each true class, from an array (K, J, L) or SharedErrors."""
    return table_kjl.given(k, option) if share_errors(table_kjl) else table_kjl[k, :, option]
