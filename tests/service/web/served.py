"""Projects of tables behind the whole application, as tests of its pages have them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from hitl import cycle
from hitl.project import opened
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.proxies import NO_PROXIES, Proxies
from hitl.service.web.access.roles import Role
from hitl.service.web.app import application
from hitl.service.web.projects import Projects, Watched
from hitl.service.web.snapshot import QuestionView, Snapshot

SETTINGS = """name = {name}
store = "sqlite:///hitl.db"
[source]
kind = "tables"
path = "labels"
[budget]
open_questions = 6
target_confidence = 0.97
[crew]
annotators = [{crew}]
capacity = 4
"""


@dataclass
class Crowd:
    """A project of tables.

    Attributes:
        rows: item, annotator, label of each answer, and its time where it has one.
        texts: item -> what annotators see of it; items that nobody has labeled too.
        truth: item -> known label.
        models: model -> item -> class -> probability.
        crew: annotators that are asked by name.
    """

    rows: Sequence[tuple[Any, ...]]
    texts: Mapping[str, str] = field(default_factory=dict)
    truth: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    crew: Sequence[str] = ()
    name: str = "p"

    def written(self, folder: Path) -> Path:
        """Its folder on disk; gives its hitl.toml."""
        labels = folder / "labels"
        labels.mkdir(parents=True)
        header = ("item", "annotator", "label", "time")[: max((len(row) for row in self.rows), default=3)]
        _write(labels / "annotations.csv", header, self.rows)
        shown = {**{str(row[0]): "" for row in self.rows}, **self.texts}
        _write(labels / "items.csv", ("item", "text"), shown.items())
        if self.truth:
            _write(labels / "truth.csv", ("item", "label"), self.truth.items())
        for model, said in self.models.items():
            classes = list(next(iter(said.values())))
            rows = [(item, *(p[name] for name in classes)) for item, p in said.items()]
            _write(labels / f"probabilities_{model}.csv", ("item", *(f"p_{name}" for name in classes)), rows)
        config = folder / "hitl.toml"
        config.write_text(SETTINGS.format(name=_quoted(self.name), crew=", ".join(map(_quoted, self.crew))))
        return config


def small(name: str = "p") -> Crowd:
    """Twelve items, nine of them labeled by three; one is contested, one is known, a model predicts most."""
    rows = [
        (f"item {n}", who, ("cat", "dog")[(n + (who == "cyd" and n % 3 == 0)) % 2], 1_700_000_000 + 60 * n)
        for n in range(9)
        for who in ("ann", "bob", "cyd")
    ]
    said = {f"item {n}": {"cat": 0.9 - 0.08 * n, "dog": 0.1 + 0.08 * n} for n in range(10)}
    texts = {f"item {n}": f"text {n}" for n in range(12)}
    return Crowd(rows, texts, {"item 4": "cat"}, {"net": said}, ("dee", "eve", "ann"), name)


def run(config: Path) -> None:
    """A cycle, as `hitl run` does it."""
    with opened(config) as (settings, store, connector):
        cycle.run(settings, store, connector)


def pull(config: Path) -> None:
    """What is new on the platform, into the store."""
    with opened(config) as (settings, store, connector), store.lease(settings.name) as lease:
        cycle.pull(lease, store, connector)


@dataclass
class DecodedOnce:
    """The application as servers call it; starlette's client decodes an address twice."""

    app: FastAPI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = unquote(scope["raw_path"].partition(b"?")[0].decode("ascii"))
        await self.app(scope, receive, send)


@dataclass
class Served:
    """An application over projects, and one who asks it."""

    projects: Projects
    accounts: Accounts
    proxies: Proxies = NO_PROXIES

    @cached_property
    def app(self) -> FastAPI:
        """The whole application."""
        return application(self.projects, self.accounts, self.proxies)

    @cached_property
    def client(self) -> TestClient:
        """A program that may do everything."""
        return self.client_from("testclient")

    def client_from(self, address: str) -> TestClient:
        """One at this address."""
        headers = {"Authorization": f"Bearer {self.accounts.create_token('tests', Role.ADMIN)}"}
        return TestClient(DecodedOnce(self.app), headers=headers, follow_redirects=False, client=(address, 50_000))

    def html(self, address: str) -> str:
        """A page."""
        return _fine(self.client.get(address, headers={"Accept": "text/html"})).text

    def json(self, address: str, **query: Any) -> dict[str, Any]:
        """The same for programs."""
        found: dict[str, Any] = _fine(self.client.get(_with(address, query, "json"))).json()
        return found

    def csv(self, address: str, **query: Any) -> list[dict[str, str]]:
        """The same as a table."""
        answer = _fine(self.client.get(_with(address, query, "csv")))
        return list(csv.DictReader(io.StringIO(answer.content.decode())))

    def project(self, name: str = "p") -> Watched:
        """One of the projects."""
        return self.projects[name]

    def refresh(self) -> None:
        """Look at each project once."""
        for one in self.projects.values():
            one.refresh()

    def snapshot(self, name: str = "p") -> Snapshot:
        """What its pages read."""
        found = self.projects[name].snapshot
        assert found is not None, self.projects[name].trouble
        return found

    def view(self, name: str = "p") -> QuestionView:
        """Its first question."""
        return self.snapshot(name).view(None)


@contextmanager
def serving(*configs: Path) -> Iterator[Served]:
    """These projects, looked at once; nothing runs beside the requests."""
    projects = Projects(configs)
    try:
        with Accounts(projects[next(iter(projects))].store.database) as accounts:
            served = Served(projects, accounts)
            served.refresh()
            yield served
    finally:
        projects.stop()


def served_crowd(folder: Path, crowd: Crowd, after: Callable[[Path], None] = run) -> Path:
    """The project of this crowd after its first cycle; gives its hitl.toml."""
    config = crowd.written(folder)
    after(config)
    return config


def _with(address: str, query: Mapping[str, Any], form: str) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode({**query, 'format': form})}"


def _fine(answer: Any) -> Any:
    assert answer.status_code == 200, f"{answer.status_code} {answer.text[:500]}"
    return answer


def _write(path: Path, header: Sequence[str], rows: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _quoted(text: str) -> str:
    """As TOML writes it."""
    import json

    return json.dumps(text)
