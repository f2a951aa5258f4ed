"""The ear for webhooks, spoken to over real connections."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from hitl.errors import BadSettings
from hitl.service import door
from hitl.service.loops import url_of
from hitl.service.webhook import Listener, Trouble, concerns_labels, parsed
from tests.command_line import Run
from tests.scheduled import project, until


@pytest.fixture
def ear() -> Iterator[tuple[int, list[str]]]:
    heard: list[str] = []
    hints = {"p": lambda: heard.append("p"), "my reviews": lambda: heard.append("my reviews")}
    server = Listener("127.0.0.1:0", "s3cret", hints, lambda: {"status": "late"} if len(heard) > 2 else None)
    server.start()
    yield server.port, heard
    server.stop()


def asked(port: int, method: str, path: str, body: bytes = b"", secret: str | None = "s3cret") -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, path, body, {} if secret is None else {"x-hitl-secret": secret})
    answer = connection.getresponse()
    data = json.loads(answer.read())
    connection.close()
    return answer.status, data


def test_only_the_action_of_a_body_counts(ear: tuple[int, list[str]]) -> None:
    port, heard = ear
    body = json.dumps({"action": "PROJECT_UPDATED", "project": {"id": 1}}).encode()
    assert asked(port, "POST", "/webhook/p", body) == (200, {"queued": False})
    assert heard == []
    body = json.dumps({"action": "ANNOTATION_CREATED", "annotation": {"id": 1}}).encode()
    assert asked(port, "POST", "/webhook/p", body) == (200, {"queued": True})
    for odd in (b"", b"not json", b"[1]", b'{"action": 3}', b"\xff\xfe"):
        assert concerns_labels(parsed(odd))
    for action in ("ANNOTATIONS_DELETED", "TASKS_CREATED", "annotation_updated"):
        assert concerns_labels({"action": action})
    assert not concerns_labels({"action": "LABEL_LINK_CREATED"})


def test_health_says_whether_all_runs(ear: tuple[int, list[str]]) -> None:
    port, heard = ear
    assert asked(port, "GET", "/health", secret=None) == (200, {"status": "ok"})
    heard += ["x"] * 3
    assert asked(port, "GET", "/health", secret=None) == (503, {"status": "late"})


def test_a_secret_that_no_header_carries_is_refused() -> None:
    with pytest.raises(BadSettings, match="English keyboard"):
        Listener("127.0.0.1:0", "gehe\u00efm", {}, lambda: None)


ASKED = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
SENT = b"POST /webhook/p HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\nX-Hitl-Secret: "


@pytest.mark.parametrize(
    ("first", "answer"),
    [(b"", b""), (ASKED, b"200 OK"), (SENT + b"s3cret\r\n\r\n", b""), (SENT + b"wrong\r\n\r\n", b"401")],
    ids=["headers", "second request", "body", "body after the answer"],
)
def test_a_client_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch, first: bytes, answer: bytes) -> None:
    with hurried(monkeypatch) as server, socket.create_connection(("127.0.0.1", server.port), timeout=20) as sent:
        sent.sendall(first)
        if answer:
            assert answer in sent.recv(1000)
        assert _is_cut_off(sent)


def test_a_client_that_hangs_up_in_a_body_gives_a_hint(ear: tuple[int, list[str]]) -> None:
    """The platform may have been stopped while it sent the webhook."""
    port, heard = ear
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sent:
        sent.sendall(SENT + b's3cret\r\n\r\n{"action": ')
    until(lambda: heard == ["p"])


def test_a_client_that_reads_no_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    large = {"status": "x" * 20_000_000}  # much more than buffers hold
    with (
        hurried(monkeypatch, lambda: large) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as sent,
    ):
        sent.sendall(ASKED)
        with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
            until(lambda: sent.send(b"x") == 0)


@contextmanager
def hurried(monkeypatch: pytest.MonkeyPatch, trouble: Trouble = lambda: None) -> Iterator[Listener]:
    """A server that waits half a second for everything."""
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "STALL_SECONDS"):
        monkeypatch.setattr(door, name, 0.5)
    monkeypatch.setattr(door, "TICK", 0.1)
    server = Listener("127.0.0.1:0", "s3cret", {"p": lambda: None}, trouble)
    server.start()
    yield server
    server.stop()


def _is_cut_off(sent: socket.socket) -> bool:
    """Send a byte at a time; True if the connection is ended before ten seconds are over."""
    for _ in range(200):
        try:
            sent.sendall(b"x")
            sent.settimeout(0.05)
            if sent.recv(1000) == b"":  # else the body of the first response, which may come after its headers
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_the_connection_that_waits_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "CONNECTIONS", 3)
    server = Listener("127.0.0.1:0", "s3cret", {}, lambda: None)
    server.start()
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(3)]
    for each in held:
        each.sendall(b"GET /hea")
    assert asked(server.port, "GET", "/health") == (200, {"status": "ok"})
    with suppress(ConnectionResetError):  # unless the server had read what was sent
        assert held[0].recv(1000) == b""
    held[2].sendall(b"lth HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in held[2].recv(1000)
    for each in held:
        each.close()
    server.stop()


def test_an_address_in_use_is_a_setting(ear: tuple[int, list[str]]) -> None:
    with pytest.raises(BadSettings, match=r"schedule.webhook: port \d+ of 127.0.0.1 is in use"):
        Listener(f"127.0.0.1:{ear[0]}", "s", {}, lambda: None)


def test_the_url_to_give_to_the_platform() -> None:
    assert url_of("127.0.0.1:8090", "my reviews/2") == "http://127.0.0.1:8090/webhook/my%20reviews%2F2"
    assert url_of("[::1]:8090", "p") == "http://[::1]:8090/webhook/p"
    for everywhere in ("0.0.0.0:80", "[::]:80"):
        assert "0.0.0.0" not in url_of(everywhere, "p")
        assert "[" not in url_of(everywhere, "p")


def test_a_list_shows_the_webhook_and_needs_no_secret(tmp_path: Path, run: Run) -> None:
    project(tmp_path, 'webhook = "127.0.0.1:8090"')
    code, out, err = run("schedule", "--list")
    assert (code, err) == (0, "")
    assert out == (
        "p: webhook at 127.0.0.1:8090; give the platform http://127.0.0.1:8090/webhook/p and the header X-Hitl-Secret\n"
    )
    told = {"project": "p", "listens": "127.0.0.1:8090", "url": "http://127.0.0.1:8090/webhook/p"}
    assert json.loads(run("schedule", "--list", "--json")[1]) == {"jobs": [], "webhooks": [told]}
    code, out, err = run("schedule")
    assert (code, out) == (78, "")
    assert "needs a secret: set HITL_WEBHOOK_SECRET" in err


def test_an_address_that_is_taken_fails_before_it_says_anything(
    tmp_path: Path, run: Run, ear: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, f'every = "1h"\nwebhook = "127.0.0.1:{ear[0]}"')
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", "s3cret")
    code, out, err = run("schedule")
    assert (code, out) == (78, "")
    assert f"schedule.webhook: port {ear[0]} of 127.0.0.1 is in use" in err
