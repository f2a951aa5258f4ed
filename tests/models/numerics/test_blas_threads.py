"""Threads of the linear algebra libraries are few for small matrices, and come back."""

from __future__ import annotations

import scipy.linalg  # noqa: F401  brings a library of its own
from threadpoolctl import threadpool_info, threadpool_limits

from hitl.models.numerics.blas_threads import LARGE, threads_for


def threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_small_matrices_have_one_thread_and_large_ones_all() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with threads_for(LARGE - 1):
            assert threads() == {1}
        assert threads() == before
        with threads_for(LARGE):
            assert threads() == before
