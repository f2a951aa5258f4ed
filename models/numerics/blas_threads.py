"""How many threads products of matrices are worth: small ones are done sooner by one.

NumPy and SciPy bring a library each, and each keeps threads of its own, which wait busily for their next product on the
processors that the other one needs. On two cores a Gaussian process of 250 items took six times as long by two threads
as by one, of 700 items twice as long, of 1,500 as long, of 3,000 two thirds of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

LARGE = 1500
"""Rows from which threads pay."""


@contextmanager
def threads_for(n_rows: int) -> Iterator[None]:
    """One thread for matrices of so many rows, if these are few; else as many as there are."""
    with threadpool_limits(1 if n_rows < LARGE else None, user_api="blas"):
        yield
