"""The ear for webhooks, spoken to over real connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from hitl.errors import BadSettings
from hitl.service.webhook import LARGEST_BODY, Webhooks, concerns_labels


@pytest.fixture
def ear() -> Iterator[tuple[int, list[str]]]:
    heard: list[str] = []
    hints = {"p": lambda: heard.append("p"), "my reviews": lambda: heard.append("my reviews")}
    server = Webhooks("127.0.0.1:0", "s3cret", hints, lambda: len(heard) < 3)
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


def test_a_webhook_wants_the_secret_and_names_a_project(ear: tuple[int, list[str]]) -> None:
    port, heard = ear
    for secret in (None, "", "s3cre", "s3cret!", "ß"):
        assert asked(port, "POST", "/webhook/p", secret=secret)[0] == 401
    assert asked(port, "POST", "/webhook/q")[0] == 404
    assert asked(port, "POST", "/webhook")[0] == 404
    assert asked(port, "POST", "/other/p")[0] == 404
    assert asked(port, "GET", "/webhook/p")[0] == 404
    assert heard == []
    assert asked(port, "POST", "/webhook/p") == (200, {"queued": True})
    assert asked(port, "POST", "/webhook/my%20reviews") == (200, {"queued": True})
    assert heard == ["p", "my reviews"]


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


def test_a_huge_body_is_a_hint_unread(ear: tuple[int, list[str]]) -> None:
    port, heard = ear
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.putrequest("POST", "/webhook/p")
    connection.putheader("X-Hitl-Secret", "s3cret")
    connection.putheader("Content-Length", str(LARGEST_BODY + 1))
    connection.endheaders()
    assert connection.getresponse().status == 200
    connection.close()
    assert heard == ["p"]


def test_health_says_whether_all_runs(ear: tuple[int, list[str]]) -> None:
    port, heard = ear
    assert asked(port, "GET", "/health", secret=None) == (200, {"status": "ok"})
    heard += ["x"] * 3
    assert asked(port, "GET", "/health", secret=None)[0] == 503


def test_an_address_in_use_is_a_setting(ear: tuple[int, list[str]]) -> None:
    with pytest.raises(BadSettings, match=r"schedule.webhook: cannot listen at 127.0.0.1:\d+"):
        Webhooks(f"127.0.0.1:{ear[0]}", "s", {}, lambda: True)
