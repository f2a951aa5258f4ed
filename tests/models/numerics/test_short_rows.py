"""Maximum and sum of each row are those that NumPy finds, of few columns and of many."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.tables.short_rows import SHORT, row_maxima, row_sums


@pytest.mark.parametrize("columns", [1, 2, 5, SHORT, SHORT + 1, 40])
def test_rows_have_the_maximum_and_the_sum_that_numpy_finds(columns: int) -> None:
    values = np.random.default_rng(columns).normal(size=(7, 11, columns))
    values[0, 0, -1] = np.nan
    kept = values.copy()
    np.testing.assert_array_equal(row_sums(values[..., :0]), np.zeros((7, 11)))
    for given in (values, values[0], values[:0], np.asfortranarray(values)):
        np.testing.assert_array_equal(row_maxima(given), given.max(axis=-1))
        np.testing.assert_allclose(row_sums(given), given.sum(axis=-1), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(values, kept)
