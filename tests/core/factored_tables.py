"""Tables by factors, and what they stand for, written out."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from hitl.tables.factored_rows import FactoredTable, Factors
from tests.oracles import Floats


def some_factors(rng: np.random.Generator, annotators: int = 4, classes: int = 5, options: int = 7) -> Factors:
    crowd_lj = rng.uniform(0.01, 1, size=(options, classes))
    np.fill_diagonal(crowd_lj[:classes], 0.0)
    return Factors(crowd_lj, *rng.uniform(0.1, 2, size=(3, annotators, classes)))


def some_table(rng: np.random.Generator, annotators: int = 4, classes: int = 5, options: int = 7) -> FactoredTable:
    """With cells here and there, the diagonal among them; rows do not sum to 1."""
    factors = some_factors(rng, annotators, classes, options)
    added = rng.uniform(0, 3, size=(annotators * options, classes)) * (
        rng.random((annotators * options, classes)) < 0.3
    )
    return FactoredTable(factors, sparse.csr_array(added))


def some_chances(rng: np.random.Generator, annotators: int = 4, classes: int = 5, options: int = 7) -> FactoredTable:
    table = some_table(rng, annotators, classes, options)
    return table.divided(table.totals())


def written_out(table: FactoredTable) -> Floats:
    """(K, J, L) number by number."""
    annotators, classes, options = table.shape
    factors, added = table.factors, table.cells.toarray()
    whole = np.empty((annotators, classes, options))
    for k, j, option in np.ndindex(*whole.shape):
        if option == j:
            expected = factors.right_kj[k, j]
        else:
            scale_kj = factors.wrong_kj if option < classes else factors.other_kj
            expected = factors.crowd_lj[option, j] * scale_kj[k, j]
        whole[k, j, option] = expected + added[k * options + option, j]
    return whole
