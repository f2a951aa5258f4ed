"""Limit BLAS threads for small matrices, which one thread multiplies faster.

NumPy and SciPy each bring a library with its own threads. While one library's threads wait for their next product they
spin on the processors that the other needs. On two cores, two threads took six times as long as one for a Gaussian
process of 250 items, twice as long for 700, as long for 1,500, and two thirds as long for 3,000.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

LARGE = 1500
"""Number of rows from which threads pay off."""


@contextmanager
def threads_for(n_rows: int) -> Iterator[None]:
    """Use one BLAS thread for matrices of fewer than `LARGE` rows, else all threads."""
    with threadpool_limits(1 if n_rows < LARGE else None, user_api="blas"):
        yield
