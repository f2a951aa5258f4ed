"""Runs over a large Label Studio project in which nothing has changed: how many requests, and how much time of our own.

    python -m tests.bench.service.unchanged_run [--tasks 30000] [--runs 3] [--save]

The first run reads everything and pushes a plan; the second may find what the first has pushed. The others are
unchanged. "Server" is the time that requests took, "own" all other time of the process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from hitl import cycle, project
from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.server import LocalServer
from hitl.settings import new_settings
from tests.bench import results
from tests.bench.service.label_studio_pull import filled

ANNOTATORS = 2


class Timed(httpx.BaseTransport):
    """Sends requests on, and remembers for each its path, bytes and seconds."""

    def __init__(self) -> None:
        self.inner, self.log = httpx.HTTPTransport(), list[tuple[str, int, float]]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        start = time.perf_counter()
        response = self.inner.handle_request(request)
        response.read()
        self.log.append((f"{request.method} {request.url.path}", len(response.content), time.perf_counter() - start))
        return response


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, tasks=30_000, runs=3)
    figures: dict[str, Any] = {}
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
        number = filled(server, options.tasks, ANNOTATORS)
        source = {"kind": "label-studio", "url": server.url, "project": number}
        new_settings.write(Path(folder) / "hitl.toml", "bench", source, "sqlite:///hitl.db", [])
        for run in range(options.runs + 2):
            with project.stored(Path(folder) / "hitl.toml") as (settings, store):
                timed = Timed()
                connector = LabelStudio(server.url, server.token, number, transport=timed)
                start = time.perf_counter()
                report = cycle.run_if_changed(settings, store, project.recalled(connector, store, "bench"))
                seconds = time.perf_counter() - start
            served = sum(each[2] for each in timed.log)
            kind = "unchanged" if isinstance(report, cycle.Unchanged) else "changed"
            figures[f"run {run + 1}, {kind}"] = {
                "requests": len(timed.log),
                "kB": sum(each[1] for each in timed.log) / 1e3,
                "server s": served,
                "own s": seconds - served,
            }
            for path, size, took in timed.log[:40]:
                print(f"    {path:60} {size:>12,} bytes {took:7.2f} s", flush=True)
            print(f"run {run + 1} {kind}: {figures[f'run {run + 1}, {kind}']}", flush=True)
    page = results.Page()
    page.tell(f"{options.tasks:,} tasks x {ANNOTATORS} annotations")
    page.tell(*results.table(figures, 2))
    last = figures[f"run {options.runs + 2}, unchanged"]
    page.held(
        results.at_most("requests of an unchanged run", last["requests"], 10, ".0f"),
        results.at_most("own seconds of an unchanged run", last["own s"], 2, ".2f"),
    )
    if options.save:
        page.save("unchanged_run", figures, "service.unchanged_run --save")


if __name__ == "__main__":
    main()
