"""The ear for webhooks, spoken to over real connections."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from hitl.errors import BadSettings
from hitl.service import webhook
from hitl.service.loops import url_of
from hitl.service.webhook import Listener, concerns_labels
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
        assert concerns_labels(odd)
    for action in ("ANNOTATIONS_DELETED", "TASKS_CREATED", "annotation_updated"):
        assert concerns_labels(json.dumps({"action": action}).encode())
    assert not concerns_labels(b'{"action": "LABEL_LINK_CREATED"}')


def test_health_says_whether_all_runs(ear: tuple[int, list[str]]) -> None:
    port, heard = ear
    assert asked(port, "GET", "/health", secret=None) == (200, {"status": "ok"})
    heard += ["x"] * 3
    assert asked(port, "GET", "/health", secret=None) == (503, {"status": "late"})


def test_a_secret_that_no_header_carries_is_refused() -> None:
    with pytest.raises(BadSettings, match="English keyboard"):
        Listener("127.0.0.1:0", "gehe\u00efm", {}, lambda: None)


def test_a_client_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "SECONDS", 0.5)
    server = Listener("127.0.0.1:0", "s3cret", {}, lambda: None)
    server.start()
    for first in (b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"):  # the second request on a connection too
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sent:
            sent.sendall(first)
            if first:
                assert b"200 OK" in sent.recv(1000)
            assert _is_cut_off(sent)
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


def test_so_many_connections_are_served_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "CONNECTIONS", 3)
    server = Listener("127.0.0.1:0", "s3cret", {}, lambda: None)
    server.start()
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(3)]
    for each in held:
        each.sendall(b"GET /hea")
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as late:
        late.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"503 Service Unavailable" in late.recv(1000)
    for each in held:
        each.close()
    until(lambda: asked(server.port, "GET", "/health") == (200, {"status": "ok"}))
    server.stop()


def test_an_address_in_use_is_a_setting(ear: tuple[int, list[str]]) -> None:
    with pytest.raises(BadSettings, match=r"schedule.webhook: cannot listen at 127.0.0.1:\d+"):
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
    assert f"schedule.webhook: cannot listen at 127.0.0.1:{ear[0]}" in err
