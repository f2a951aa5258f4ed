"""Passes on a Dask cluster: shards are read where they are worked on, and only sums travel.

map      a task a shard: what `work` gives of it, on any worker
reduce   tasks that add two sums of neighbours, in the order of `passes.summed`: who works, and when, changes nothing

What a pass takes with it (what was learned of the annotators) goes to every worker once a pass, the list of shards
once. A worker that is lost costs what it held: Dask has others do that again. Where all of it is lost, as with the
only worker, the pass begins anew.

A task has one thread. More cores are more workers; so a worker's kernels never meet each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

from hitl.errors import MissingExtra, Unreachable
from hitl.evidence import Evidence
from hitl.exchange import Progress, silent
from hitl.models.inference.passes import summed

if TYPE_CHECKING:
    from distributed import Client, Future

TRIES = 5
"""How often a pass begins whose data were lost with their workers."""

WAIT = 30.0
"""Seconds in which a scheduler answers."""

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class OnCluster:
    """An engine whose shards are worked on by the workers of a Dask client. All of them have to reach the shards."""

    def __init__(self, client: Client, progress: Progress = silent) -> None:
        self._client, self._progress = client, progress
        self._passes = 0
        self._sent: tuple[Any, Future] | None = None  # the shards of the last pass, at the workers

    def total(self, work: Callable[[Evidence], S], shards: Sequence[Evidence]) -> S:
        """The sum of what `work` gives of each shard."""
        (total,) = self._kept_up(lambda _: iter([self._total(work, shards)]))
        return total

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """What `work` gives of each shard, in their order; it has to be small."""
        return self._kept_up(lambda done: (part.result() for part in self._begun(work, shards[done:])))

    def _total(self, work: Callable[[Evidence], S], shards: Sequence[Evidence]) -> S:
        from distributed import as_completed

        self._progress("passes", self._passes, None)
        parts = self._begun(work, shards)
        for done, _ in enumerate(as_completed(parts, loop=self._client.loop), start=1):
            self._progress("shards of this pass", done, len(shards))
        total: S = summed(_Sum(self._client, part) for part in parts).future.result()
        self._passes += 1
        return total

    def _begun(self, work: Callable[[T], R], shards: Sequence[T]) -> list[Future]:
        """A task a shard, under way."""
        if self._sent is None or self._sent[0] is not shards:
            self._sent = shards, self._client.scatter(shards, broadcast=True, hash=False)
        taken = self._client.scatter(work, broadcast=True, hash=False)
        _, held = self._sent
        return [self._client.submit(_worked, taken, held, number, pure=False) for number in range(len(shards))]

    def _kept_up(self, results: Callable[[int], Iterator[R]]) -> Iterator[R]:
        """The results behind so many; where what was sent is lost with its workers, those that are left once more."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        done, tries = 0, 0
        while True:
            try:
                for result in results(done):
                    yield result
                    done += 1
                return
            except (CancelledError, KilledWorker):
                tries += 1
                if tries == TRIES:
                    raise
                self._sent = None
                self._client.wait_for_workers(1, timeout=WAIT)


@dataclass(frozen=True, eq=False)
class _Sum:
    """A sum that some worker holds."""

    client: Client
    future: Future

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(self.client, self.client.submit(add, self.future, other.future, pure=False))


def _worked(work: Callable[[T], R], shards: Sequence[T], number: int) -> R:
    from numba import set_num_threads

    set_num_threads(1)
    return work(shards[number])


@contextmanager
def on_dask(scheduler: str | None, workers: int | None, progress: Progress = silent) -> Iterator[OnCluster]:
    """An engine on the cluster of this scheduler; None: on workers of this machine, as many as cores or as said.

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
            yield OnCluster(client, progress)
        return
    import os

    # Mapped files count as memory of a worker, and Dask would end one that reads large shards.
    with (
        LocalCluster(
            n_workers=workers or os.cpu_count(),
            threads_per_worker=1,
            memory_limit=0,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield OnCluster(client, progress)
