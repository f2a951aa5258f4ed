"""Compute passes over shards on a Dask cluster. Workers read the shards, and only sums are sent between them.

map      one task per group of neighboring shards, on any worker: the sum of `work` over them
reduce   tasks that add two neighboring sums, in the order of `engine.summed`, so the result is independent of timing

The number of shards per task is a power of two, chosen so that every worker gets at least TASKS tasks if possible. It
does not change the result, because `engine.summed` forms the sums of such groups too.

The parameters of a pass (the learned annotators) are sent to every worker once per pass, and the list of shards only
once. If a worker is lost, Dask repeats its work on other workers or on its replacement.

A task has one thread, and more cores mean more workers, so the kernels of a worker never compete with each other.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

from hitl.errors import MissingExtra, Unreachable
from hitl.models.inference.engine import summed
from hitl.platform import Progress, silent

if TYPE_CHECKING:
    from distributed import Client, Future

WAIT = 30.0
"""Seconds to wait for a scheduler to answer."""

TASKS = 4
"""Minimum tasks per worker and pass, if there are enough shards. Then one task more or less makes little difference."""

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class OnCluster:
    """Engine whose shards are processed by the workers of a Dask client.

    All workers must be able to read the shards.
    """

    def __init__(self, client: Client, progress: Progress = silent) -> None:
        self._client, self._progress = client, progress
        self._passes = 0
        self._sent: tuple[Any, Future] | None = None  # shards of the last pass, on the workers

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """Return the sum of `work` over all shards."""
        from distributed import as_completed

        self._progress("passes", self._passes, None)
        least = max(len(shards) // (TASKS * max(len(self._client.nthreads()), 1)), 1)
        size = 1 << least.bit_length() - 1  # a power of two
        parts = self._begun(work, shards, size)
        for done, _ in enumerate(as_completed(parts, loop=self._client.loop), start=1):
            self._progress("shards of this pass", min(done * size, len(shards)), len(shards))
        total: S = summed(_Sum(self._client, part) for part in parts).future.result()
        self._passes += 1
        return total

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield the result of `work` for each shard, in order; results must be small."""
        return (part.result() for part in self._begun(work, shards, 1))

    def _begun(self, work: Callable[[T], R], shards: Sequence[T], size: int) -> list[Future]:
        """Start a task for each group of `size` shards."""
        if self._sent is None or self._sent[0] is not shards:
            self._sent = shards, self._send(shards)
        sent, groups = self._send(work), range(0, len(shards), size)
        return [
            self._client.submit(_worked, sent, self._sent[1], first, min(first + size, len(shards)), pure=False)
            for first in groups
        ]

    def _send(self, value: Any) -> Future:
        """Send a value that workers pass to each other. The scheduler keeps a copy, so no worker has the only one."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            return self._client.submit(_itself, value, pure=False)


@dataclass(frozen=True, eq=False)
class _Sum:
    """Sum held by a worker."""

    client: Client
    future: Future

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(self.client, self.client.submit(add, self.future, other.future, pure=False))


def _itself(value: T) -> T:
    return value


def _worked(work: Callable[[T], R], shards: Sequence[T], first: int, end: int) -> R:
    """Return the sum of `work` over these shards."""
    from numba import set_num_threads

    set_num_threads(1)
    total: R = summed(work(shards[number]) for number in range(first, end))
    return total


@contextmanager
def on_dask(scheduler: str | None, workers: int | None, progress: Progress = silent) -> Iterator[OnCluster]:
    """Yield an engine on the cluster of `dask_client`, which raises the same errors."""
    with dask_client(scheduler, workers) as client:
        yield OnCluster(client, progress)


@contextmanager
def dask_client(scheduler: str | None, workers: int | None) -> Iterator[Client]:
    """Yield a client of this scheduler or, if it is None, of local workers, by default one per core.

    Raise MissingExtra without Dask, Unreachable if no scheduler answers.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise MissingExtra("--engine dask needs more: pip install 'hitl-toolkit[cluster]'") from None
    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=WAIT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise Unreachable(f"{scheduler}: no Dask scheduler answers there: {error}") from None
        with client:
            yield client
        return
    with (
        LocalCluster(
            n_workers=workers or os.cpu_count(),
            threads_per_worker=1,
            memory_limit=0,  # Dask counts mapped files as worker memory and would kill readers of large shards
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
