"""The largest of each row is the one that NumPy finds, of few columns and of many."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.tables.row_maxima import SHORT, row_maxima


@pytest.mark.parametrize("columns", [1, 2, 5, SHORT, SHORT + 1, 40])
def test_rows_have_the_maximum_that_numpy_finds(columns: int) -> None:
    values = np.random.default_rng(columns).normal(size=(7, 11, columns))
    values[0, 0, -1] = np.nan
    kept = values.copy()
    for given in (values, values[0], values[:0], np.asfortranarray(values)):
        np.testing.assert_array_equal(row_maxima(given), given.max(axis=-1))
    np.testing.assert_array_equal(values, kept)
