"""What clients can take from `hitl serve` before they log in, over real connections to a real process."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from hitl.service import log
from hitl.service.door import BACKLOG, CONNECTIONS
from hitl.service.log import BURST, LineLimit
from tests.scheduled import until
from tests.service.web.processes import log_in, serving
from tests.service.web.served import Crowd

CROWD = Crowd([(item, who, "yes" if item != "c" else "no") for item in "abc" for who in ("ann", "bob")])
SECRET = "of the tests"
HEAD = "Host: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000"


class Server(NamedTuple):
    url: str
    folder: Path
    pid: int
    said: str

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text()

    def connect(self, sent: str = "") -> socket.socket:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=60)
        connection.sendall(sent.encode("latin-1"))
        return connection

    def ask(self, sent: str) -> str:
        """The response to this, until the server closes the connection."""
        with self.connect(sent) as connection:
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode("latin-1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("door")
    CROWD.written(folder)
    with serving(folder, "serve", secrets={"HITL_WEBHOOK_SECRET": SECRET}) as (url, said, process):
        yield Server(url, folder, process.pid, said)


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Part: ",
        f"POST /login HTTP/1.1\r\n{HEAD}\r\n\r\nname=",
        "\x16",
    ],
)
def test_clients_who_hold_more_connections_than_there_are_stop_nobody(server: Server, sent: str) -> None:
    logged = len(server.log)
    with ExitStack() as held:
        for _ in range(1100):
            with contextlib.suppress(OSError):  # an old one may be closed before it has sent this
                held.enter_context(server.connect(sent))
        for _ in range(3):
            assert httpx.get(f"{server.url}/healthz", timeout=60).json() == {"status": "ok"}
        assert len(os.listdir(f"/proc/{server.pid}/fd")) < CONNECTIONS + 4 * BACKLOG
    assert len(server.log) - logged < 60_000


def test_a_flood_of_lines_is_counted_instead_of_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, ours = [0.0], logging.getLogger("hitl.serve")
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    with log.lines(as_json=False):
        for _ in range(3 * BURST):
            log.event(ours, "request")
        log.event(ours, "request", logging.ERROR)
        log.event(ours, "run done")
        now[0] = 1.0
        log.event(ours, "request")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == BURST + 3
    assert f"left_out={2 * BURST}" in lines[-1]
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 1, "no request: %s", ("x",), None)
    limit = LineLimit(per_second=1.0)
    assert [limit.filter(record) for _ in range(BURST + 2)] == [True] * BURST + [False] * 2
    now[0] += 5.0
    assert limit.filter(record)
    assert record.left_out == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("route", ["/login", "/logout", "/projects/p/plan", "/webhook/p", "/ml/p/webhook", "/nothing"])
@pytest.mark.parametrize("body", ["", "name=", "4\r\nname\r\n"])
def test_a_client_that_hangs_up_in_a_body_is_no_fault_of_ours(server: Server, route: str, body: str) -> None:
    logged = len(server.log)
    head = HEAD.replace("Content-Length: 1000", "Transfer-Encoding: chunked") if body.startswith("4") else HEAD
    with server.connect(f"POST {route} HTTP/1.1\r\n{head}\r\nX-Hitl-Secret: {SECRET}\r\n\r\n{body}"):
        pass
    until(lambda: "method=POST" in server.log[logged:])
    assert "Traceback" not in server.log[logged:]
    assert "status=5" not in server.log[logged:]


@pytest.mark.parametrize("body", ["item=a", "4\r\nitem\r\n"])
def test_a_user_that_hangs_up_in_a_form_is_no_fault_of_ours(server: Server, body: str) -> None:
    """The form is read for the token that only our pages have, also where a route takes none."""
    logged = len(server.log)
    with closing(log_in(server.url, server.said)) as user:
        cookie = "; ".join(f"{name}={value}" for name, value in user.cookies.items())
    head = HEAD.replace("Content-Length: 1000", "Transfer-Encoding: chunked") if body.startswith("4") else HEAD
    with server.connect(f"POST /projects/p/runs HTTP/1.1\r\n{head}\r\nCookie: {cookie}\r\n\r\n{body}"):
        pass
    until(lambda: "path=/projects/p/runs" in server.log[logged:])
    assert "Traceback" not in server.log[logged:]
    assert "path=/projects/p/runs status=499" in server.log[logged:]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "a/b", "a b", "x" * 300])
def test_a_host_that_is_not_ours_is_refused_and_never_repeated(server: Server, host: str) -> None:
    for path in ("/projects/p/runs/", "/login", "/"):
        answer = server.ask(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\nConnection: close\r\n\r\n")
        assert answer.startswith("HTTP/1.1 400")
        assert host not in answer


@pytest.mark.parametrize("host", ["localhost:8500", "127.0.0.1", "[::1]:8500", "10.1.2.3", "hitl"])
@pytest.mark.parametrize(
    ("path", "leads_to"),
    [("/projects/p/runs/?page=1", "/projects/p/runs?page=1"), ("//evil.example/", None), ("/\\evil.example/", None)],
)
def test_a_redirect_names_no_host(server: Server, host: str, path: str, leads_to: str | None) -> None:
    answer = server.ask(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    location = re.search(r"\r\nlocation: (\S*)\r\n", answer, re.IGNORECASE)
    if leads_to is None:
        assert location is None
    else:
        assert location is not None
        assert location[1] == leads_to
