"""A service on loopback over a folder of tables: webhooks cause a look, pages follow, and nothing is lost."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from hitl.connectors.tables import Tables
from hitl.errors import Unreachable
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.roles import Role
from hitl.service.web.projects import Projects
from hitl.service.web.server import service as full_service
from hitl.service.webhook import LARGEST_BODY
from tests.scheduled import until
from tests.service.web.served import run as cycle
from tests.store.conftest import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]

SECRET = "s3cret"
HEADER = "item,annotator,label\n"


def tables(folder: Path, url: str = "sqlite:///hitl.db", name: str = "p", schedule: str = "") -> Path:
    """A project whose 30 items have two or three labels each, after its first cycle; its hitl.toml."""
    folder.mkdir()
    rows = [
        f"i{n},{who},{'yes' if (n + (who == 'cyd' and n % 3 == 0)) % 2 else 'no'}\n"
        for n in range(30)
        for who in ("ann", "bob", "cyd")[: 2 + n % 2]
    ]
    (folder / "annotations.csv").write_text(HEADER + "".join(rows))
    config = folder / "hitl.toml"
    config.write_text(
        f'name = "{name}"\nstore = "{url}"\n[source]\nkind = "tables"\npath = "."\nmax_shrink = 1\n'
        f'classes = ["no", "yes"]\n[schedule]\npoll = "1h"\n{schedule}'
    )
    cycle(config)
    return config


def answer(config: Path, *rows: str) -> None:
    """Add rows "item,annotator,label", as an annotator's platform writes them."""
    with (config.parent / "annotations.csv").open("a") as file:
        file.write("".join(f"{row}\n" for row in rows))


@dataclass
class Served:
    """A service that runs."""

    projects: Projects
    port: int
    token: str

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
        return ask(self.port, method, path, body, **headers)

    def hint(self, project: str = "p", body: bytes = b"{}", secret: str | None = SECRET) -> tuple[int, Any]:
        return post(self.port, project, body, secret)

    def state(self) -> Any:
        status, found = self.ask("GET", "/projects/p/state", Authorization=f"Bearer {self.token}")
        assert status == 200
        return found

    def belief(self, item: str, project: str = "p") -> float:
        """Probability of yes, as the pages show it."""
        snapshot = self.projects[project].snapshot
        assert snapshot is not None
        return float(snapshot.view(None).consensus.probabilities[snapshot.item_place[item], 1])

    def figures(self, project: str = "p") -> Any:
        loop = self.projects[project].loop
        assert loop is not None
        return loop.figures


def ask(port: int, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
    """Status and JSON of one request."""
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        found = connection.getresponse()
        return found.status, json.loads(found.read())
    finally:
        connection.close()


def post(port: int, project: str = "p", body: bytes = b"{}", secret: str | None = SECRET) -> tuple[int, Any]:
    """Send a webhook."""
    return ask(port, "POST", f"/webhook/{project}", body, **({} if secret is None else {"X-Hitl-Secret": secret}))


@contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """A real server on loopback; its port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        yield int(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def served(*configs: Path) -> Iterator[Served]:
    """The projects, live, once each has been pulled and loaded."""
    projects = Projects(configs)
    accounts = Accounts(next(iter(projects.values())).store.database)
    token = accounts.create_token("tests", Role.ADMIN)
    with listening(full_service(projects, accounts)) as port:
        service = Served(projects, port, token)
        until(
            lambda: all(
                one.snapshot is not None and service.figures(name)["pulls_total"] for name, one in projects.items()
            )
        )
        yield service


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", SECRET)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tables(tmp_path / "p")


@pytest.fixture
def service(config: Path) -> Iterator[Served]:
    with served(config) as found:
        yield found


MORE = ("i4,dee,yes", "i4,eve,yes", "i4,fay,yes")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_answer_and_its_webhook_change_what_pages_show(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    url = "sqlite:///hitl.db" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    config = tables(tmp_path / "p", url)
    with served(config) as service:
        before, state = service.belief("i4"), service.state()
        answer(config, *MORE)
        assert service.hint() == (200, {"queued": True})
        until(lambda: service.belief("i4") > before + 0.05)
        assert service.state() != state, "open pages ask for this, and load again"
        state = service.state()
        assert service.state() == state


def test_a_webhook_brings_a_cycle_too(tmp_path: Path) -> None:
    config = tables(tmp_path / "p", schedule='every = "10h"\ndebounce = "0.3s"')
    with served(config) as service:
        answer(config, *MORE)
        service.hint()
        until(lambda: service.projects["p"].store.last_cycle("p").number == 2)  # type: ignore[union-attr]
        until(lambda: service.projects["p"].snapshot.number == 2)  # type: ignore[union-attr]
        assert service.ask("GET", "/readyz")[0] == 200


def test_forged_unknown_and_malformed_ones_change_nothing(service: Served) -> None:
    pulls = service.figures()["pulls_total"]
    for secret in (None, "", "s3cre", "s3cret!", "\xdf"):
        assert service.hint(secret=secret)[0] == 401
        assert service.hint("never", secret=secret)[0] == 401, "who has no secret learns no names"
    assert service.hint("never")[0] == 404
    about_others = json.dumps({"action": "PROJECT_UPDATED"}).encode()
    assert service.hint(body=about_others) == (200, {"queued": False})
    assert service.figures()["pulls_total"] == pulls
    before = service.belief("i4")
    for body in (b"", b"no json", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"action": "ANNOTATION_CREATED"}') * 3:
        assert service.hint(body=body) == (200, {"queued": True})
    until(lambda: service.figures()["pulls_total"] > pulls)
    assert service.belief("i4") == before


def test_without_the_secret_no_body_is_read(service: Served) -> None:
    """The answer is there before a byte of the body was sent; a body that is too large is a hint unread."""
    for secret, length, status in (("wrong", 100_000, b"401"), (SECRET, LARGEST_BODY + 1, b"200")):
        with socket.create_connection(("127.0.0.1", service.port), timeout=20) as sent:
            head = f"POST /webhook/p HTTP/1.1\r\nHost: x\r\nX-Hitl-Secret: {secret}\r\nContent-Length: {length}\r\n\r\n"
            sent.sendall(head.encode())
            assert status in sent.recv(1000)


def test_a_platform_that_hangs_stalls_no_webhook(
    service: Served, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hangs(self: Tables, cursor: Any) -> Iterator[Any]:
        reached.set()
        go_on.wait(60)
        raise Unreachable("it does not answer")
        yield

    before = service.belief("i4")
    with monkeypatch.context() as patch:
        patch.setattr(Tables, "pull", hangs)
        service.hint()
        assert reached.wait(30)
        for _ in range(20):
            assert service.hint() == (200, {"queued": True})
        answer(config, *MORE)
        go_on.set()
        until(lambda: service.figures()["failures_total"])
        assert "it does not answer" in service.state()["warning"]
    until(lambda: service.belief("i4") != before)
    assert service.state()["warning"] is None


def test_what_came_while_nobody_listened_is_there_after_the_start(config: Path) -> None:
    answer(config, *MORE)
    with served(config) as service:
        until(lambda: service.projects["p"].snapshot.counts["labels"] == 78)  # type: ignore[union-attr]


def test_a_cycle_waits_for_a_pull_that_looks_and_a_look_for_a_cycle(service: Served, config: Path) -> None:
    store = service.projects["p"].store
    held, done = threading.Event(), threading.Event()

    def look() -> None:
        with store.lease("p", brief=True):
            held.set()
            done.wait(30)

    thread = threading.Thread(target=look)
    thread.start()
    assert held.wait(30)
    threading.Timer(0.3, done.set).start()
    cycle(config)  # no Busy
    assert done.is_set()
    thread.join(30)
    before = service.belief("i4")
    with store.lease("p"):
        answer(config, *MORE)
        assert service.hint() == (200, {"queued": True})
        threading.Event().wait(0.3)
    until(lambda: service.belief("i4") != before)
    assert service.figures()["failures_total"] == 0


def test_several_projects_have_hints_of_their_own(tmp_path: Path, config: Path) -> None:
    second = tables(tmp_path / "q", name="q q")
    with served(config, second) as service:
        answer(second, *MORE)
        before = service.belief("i4", "q q")
        assert service.hint("q%20q") == (200, {"queued": True})
        until(lambda: service.belief("i4", "q q") != before)
        assert service.figures()["pulls_total"] == 1
