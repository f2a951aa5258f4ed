"""The options that say where a command does its work: here, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hitl.errors import BadSettings
from hitl.exchange import Progress

if TYPE_CHECKING:
    from hitl.shards.cluster import OnCluster


@dataclass(frozen=True)
class Engine:
    """Where work in parts is done. Raises BadSettings for what does not go together."""

    engine: Annotated[
        Literal["here", "dask"], typer.Option(help="Where work in parts is done: in this process, or by Dask.")
    ] = "here"
    scheduler: Annotated[
        str | None, typer.Option(help="Dask: address of a scheduler (tcp://host:8786); else workers of this machine.")
    ] = None
    workers: Annotated[int | None, typer.Option(min=1, help="Dask: workers of this machine; else one a core.")] = None

    def __post_init__(self) -> None:
        asked = {"scheduler": self.scheduler, "workers": self.workers}
        given = [f"--{name}" for name, value in asked.items() if value is not None]
        if given and self.engine != "dask":
            raise BadSettings(f"{', '.join(given)}: for --engine dask")
        if len(given) == 2:
            raise BadSettings("--scheduler and --workers exclude each other: a scheduler has workers of its own")

    def require_none(self, why: str) -> None:
        """Raise BadSettings where there are no parts."""
        if self.engine != "here":
            raise BadSettings(f"--engine {self.engine}: {why}")

    @contextmanager
    def started(self, progress: Progress) -> Iterator[OnCluster | None]:
        """The engine of passes over shards; None: this process."""
        if self.engine == "here":
            yield None
            return
        from hitl.shards.cluster import on_dask

        with on_dask(self.scheduler, self.workers, progress) as engine:
            yield engine

    @contextmanager
    def executor(self) -> Iterator[Executor | None]:
        """What functions are submitted to; None: this process."""
        if self.engine == "here":
            yield None
            return
        from hitl.shards.cluster import dask_client

        with dask_client(self.scheduler, self.workers) as client:
            yield client.get_executor()
