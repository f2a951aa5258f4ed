"""Sums of ln Gamma over many cells at once, against scipy cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln

from hitl.models.numerics import special

SCALES = 2.0 ** np.arange(1, 8)


@pytest.mark.parametrize("cells", [1, 1000, special.CHUNK + 1, special.THREADS_FROM + 7])
def test_rises_of_log_gamma_are_those_of_scipy(cells: int) -> None:
    rng = np.random.default_rng(cells)
    mean, count = 10 ** rng.uniform(-7, 0, cells), 10 ** rng.uniform(-14, 5, cells)
    expected = [(gammaln(scale * mean + count) - gammaln(scale * mean)).sum() for scale in SCALES]
    np.testing.assert_allclose(special.log_gamma_rises(mean, count, SCALES, 0.0), expected, rtol=1e-12, atol=1e-10)


def test_small_counts_are_left_out() -> None:
    mean, count = np.array([[0.2, 0.3], [0.1, 0.4]]), np.array([[2.0, 0.0], [1e-15, 3.0]])
    expected = [gammaln(s * 0.2 + 2) - gammaln(s * 0.2) + gammaln(s * 0.4 + 3) - gammaln(s * 0.4) for s in SCALES]
    np.testing.assert_allclose(special.log_gamma_rises(mean, count, SCALES, 1e-15), expected, rtol=1e-13)
