"""Compilation by numba: compiled code releases the interpreter lock and is cached on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit

F = TypeVar("F", bound=Callable[..., Any])

# An idle OpenMP thread spins, by default for about a millisecond. On a busy machine, or in a container with a CPU
# quota, this takes CPU time from working threads, and a loop of 1 ms takes 50 ms. With 10,000 spins (some microseconds)
# loops are as fast on an idle machine, and several times faster on a busy one. GNU's OpenMP reads the variable when the
# first loop starts.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def compiled(function: F) -> F:
    """Compile a loop to machine code."""
    return _cached(function, {})


def inlined(function: F) -> F:
    """Compile a formula and inline it into the calling loop, so that the loop can use vector instructions."""
    return _cached(function, {"inline": "always"})


def threaded(function: F) -> F:
    """Compile a loop whose `prange` iterations run in threads."""
    return _cached(function, {"parallel": True})


def runs_of(n_items: int, serial_below: int = 10_000) -> npt.NDArray[np.int64]:
    """Split items into runs, one per thread, and return their (threads + 1,) bounds.

    Fewer than `serial_below` items are one run.
    """
    if n_items < serial_below:
        return np.array([0, n_items])
    return np.linspace(0, n_items, int(get_num_threads()) + 1).astype(np.int64)


def in_runs(loop: Callable[..., Any], runs: Sequence[int] | npt.NDArray[np.int64], *given: Any) -> list[Any]:
    """Call a compiled `loop(first, last, *given)` for each run of items, in threads. Return the results in order."""
    (first, last), *others = [(int(first), int(last)) for first, last in pairwise(runs)]
    started = [_threads().submit(loop, *span, *given) for span in others]
    return [loop(first, last, *given), *(future.result() for future in started)]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(get_num_threads())


if hasattr(os, "register_at_fork"):  # a child process has none of these threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


def _cached(function: F, options: dict[str, Any]) -> F:
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        return cast(F, njit(cache=True, **options)(function))
    except RuntimeError:  # the cache folder is not writable (a read-only installation): compile in every process
        return cast(F, njit(**options)(function))
