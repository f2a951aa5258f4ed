"""Passes on a Dask cluster: shards are read where they are worked on, and only sums travel.

map      a task for some neighboring shards: the sum of what `work` gives of them, on any worker
reduce   tasks that add two sums of neighbors, in the order of `engine.summed`: who works, and when, changes nothing

Of a power of two of neighbors the sum is one that `engine.summed` makes on its way: how many shards a task has
changes nothing either. It has as many as leave every worker TASKS of them.

What a pass takes with it (what was learned of the annotators) goes to every worker once a pass, the list of shards
once. A worker that is lost costs what it held: Dask has others do that again, or the one that comes in its place.

A task has one thread. More cores are more workers; so a worker's kernels never meet each other.
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
"""Seconds in which a scheduler answers."""

TASKS = 4
"""Tasks of a pass for each worker, at least, where there are as many shards: one more or less is little work."""

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class OnCluster:
    """An engine whose shards are worked on by the workers of a Dask client. All of them have to reach the shards."""

    def __init__(self, client: Client, progress: Progress = silent) -> None:
        self._client, self._progress = client, progress
        self._passes = 0
        self._sent: tuple[Any, Future] | None = None  # the shards of the last pass, at the workers

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """The sum of what `work` gives of each shard."""
        from distributed import as_completed

        self._progress("passes", self._passes, None)
        size = _neighbours(len(shards), len(self._client.nthreads()))
        parts = self._begun(work, shards, size)
        for done, _ in enumerate(as_completed(parts, loop=self._client.loop), start=1):
            self._progress("shards of this pass", min(done * size, len(shards)), len(shards))
        total: S = summed(_Sum(self._client, part) for part in parts).future.result()
        self._passes += 1
        return total

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield `work` of each shard, in their order; it has to be small."""
        return (part.result() for part in self._begun(work, shards, 1))

    def _begun(self, work: Callable[[T], R], shards: Sequence[T], size: int) -> list[Future]:
        """A task for so many shards, under way."""
        if self._sent is None or self._sent[0] is not shards:
            self._sent = shards, self._given(shards)
        taken, (_, held) = self._given(work), self._sent
        runs = [(first, min(first + size, len(shards))) for first in range(0, len(shards), size)]
        return [self._client.submit(_worked, taken, held, *run, pure=False) for run in runs]

    def _given(self, value: Any) -> Future:
        """A value that workers take from each other; the scheduler keeps it, so that no worker has the only copy."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            return self._client.submit(_itself, value, pure=False)


@dataclass(frozen=True, eq=False)
class _Sum:
    """A sum that some worker holds."""

    client: Client
    future: Future

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(self.client, self.client.submit(add, self.future, other.future, pure=False))


def _itself(value: T) -> T:
    return value


def _neighbours(n_shards: int, n_workers: int) -> int:
    """Return the number of shards of a task, a power of two."""
    least = max(n_shards // (TASKS * max(n_workers, 1)), 1)
    return 1 << least.bit_length() - 1


def _worked(work: Callable[[T], R], shards: Sequence[T], first: int, end: int) -> R:
    """The sum of what `work` gives of these shards."""
    from numba import set_num_threads

    set_num_threads(1)
    total: R = summed(work(shards[number]) for number in range(first, end))
    return total


@contextmanager
def on_dask(scheduler: str | None, workers: int | None, progress: Progress = silent) -> Iterator[OnCluster]:
    """An engine on the cluster of `dask_client`. Raises what that raises."""
    with dask_client(scheduler, workers) as client:
        yield OnCluster(client, progress)


@contextmanager
def dask_client(scheduler: str | None, workers: int | None) -> Iterator[Client]:
    """A client of this scheduler; None: of workers of this machine, as many as cores or as said.

    Raises MissingExtra without Dask, Unreachable where no scheduler answers.
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
            memory_limit=0,  # mapped files count as memory of a worker, and Dask would end one that reads large shards
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
