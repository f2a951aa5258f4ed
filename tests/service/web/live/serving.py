"""A service on loopback over a folder of tables, as the tests of live updates have it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request

from hitl.project import opened
from hitl.service.web.live import Live
from hitl.service.web.projects import Projects

SECRET = "s3cret"
HEADER = "item,annotator,label\n"
CREW = ("ann", "bob", "cyd", "dee")


def tables(folder: Path, items: int = 30, url: str = "sqlite:///hitl.db", more: str = "") -> Path:
    """A project whose items have two or three labels each; its hitl.toml."""
    folder.mkdir(exist_ok=True)
    rows = [
        f"i{n},{who},{'yes' if (n + (who == 'cyd' and n % 3 == 0)) % 2 else 'no'}\n"
        for n in range(items)
        for who in CREW[: 2 + n % 2]
    ]
    (folder / "annotations.csv").write_text(HEADER + "".join(rows))
    (folder / "items.csv").write_text("item,text\n" + "".join(f"i{n},text {n}\n" for n in range(items)))
    config = folder / "hitl.toml"
    config.write_text(
        f'name = "p"\nstore = "{url}"\n[source]\nkind = "tables"\npath = "."\nmax_shrink = 1\n'
        f'classes = ["no", "yes"]\n[schedule]\npoll = "1h"\n{more}'
    )
    return config


def cycle(config: Path) -> None:
    """One cycle, as `hitl run` does it."""
    from hitl.cycle import run

    with opened(config) as (settings, store, connector):
        run(settings, store, connector)


def answer(config: Path, *rows: str) -> None:
    """Rows "item,annotator,label" more, as an annotator's platform writes them."""
    with (config.parent / "annotations.csv").open("a") as file:
        file.write("".join(f"{row}\n" for row in rows))


def until(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What it says when it is true."""
    for _ in range(int(seconds / 0.01)):
        found = what()
        if found:
            return found
        threading.Event().wait(0.01)
    raise AssertionError("it did not come to that")


async def anybody(request: Request) -> None:
    """Stands for the guard of the service."""


def application(live: Live) -> FastAPI:
    """The routes alone."""
    app = FastAPI()
    app.include_router(live.router(anybody, SECRET, lambda endpoint: endpoint))
    return app


@dataclass
class Served:
    """A service that runs."""

    live: Live
    projects: Projects
    port: int

    def hint(self, project: str = "p", body: bytes = b"{}", secret: str | None = SECRET) -> tuple[int, Any]:
        return post(self.port, project, body, secret)

    def belief(self, item: str, question: str = "label") -> Any:
        return self.live.belief("p", question, item)


def post(port: int, project: str = "p", body: bytes = b"{}", secret: str | None = SECRET) -> tuple[int, Any]:
    """A webhook; status and answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", f"/webhook/{project}", body, {} if secret is None else {"X-Hitl-Secret": secret})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """A real server on loopback; its port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield int(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def served(*configs: Path) -> Iterator[Served]:
    """The projects, live."""
    projects = Projects(configs)
    live = Live(projects)
    live.start()
    try:
        with listening(application(live)) as port:
            until(lambda: all(one.snapshot is not None for one in projects.values()))
            until(lambda: all(live.figures(name).pulls for name in projects))
            try:
                yield Served(live, projects, port)
            finally:
                live.broadcast.close()
    finally:
        live.stop()
        projects.stop()


class Events:
    """A browser that listens; `last` is the Last-Event-ID it brings."""

    def __init__(self, port: int, last: str | None = None, project: str = "p") -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=30)
        self._connection.request(
            "GET", f"/projects/{project}/events", headers={} if last is None else {"Last-Event-ID": last}
        )
        self.answer = self._connection.getresponse()
        self.status = self.answer.status

    def next(self) -> tuple[str, str, Mapping[str, Any]]:
        """The next event: id, name, data."""
        found: dict[str, str] = {}
        until_time = time.monotonic() + 30
        while time.monotonic() < until_time:
            line = self.answer.readline().decode().rstrip("\n")
            if not line and "event" in found:
                return found["id"], found["event"], json.loads(found["data"])
            name, _, value = line.partition(": ")
            if name in ("id", "event", "data"):
                found[name] = value
        raise AssertionError("no event came")

    def close(self) -> None:
        self.answer.close()
        self._connection.close()
