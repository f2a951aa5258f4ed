"""What surrounds every request: methods, the address that redirects name, and answers to what nobody foresaw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hitl.service.web.app import HEADERS
from tests.service.web.served import Crowd, Served, served_crowd, serving

CROWD = Crowd([(item, who, "yes" if item != "c" else "no") for item in "abc" for who in ("ann", "bob")])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(served_crowd(tmp_path / "p", CROWD)) as served:
        yield served


def test_methods_that_anyone_may_make_up_are_one_figure(served: Served) -> None:
    for n in range(30):
        assert served.client.request(f"M{n:04}", "/healthz").status_code == 405
    counted = [
        line for line in served.client.get("/metrics").text.splitlines() if 'route="none"' in line or "M0" in line
    ]
    assert not any("M00" in line for line in counted)
    assert 'method="other"' in served.client.get("/metrics").text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/static/service.css", "/projects/p", "/nothing"])
def test_head_is_what_get_says_without_its_body(served: Served, path: str) -> None:
    whole, head = served.client.get(path), served.client.head(path)
    assert head.status_code == whole.status_code
    assert head.content == b""
    assert head.headers["content-type"] == whole.headers["content-type"]


def test_what_is_not_foreseen_has_the_headers_and_the_number_too(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> None:
        raise ZeroDivisionError(name)

    monkeypatch.setattr(served.project().store, "views", broken)
    answer = served.client.get("/projects/p/items", headers={"X-Request-ID": "abc"})
    assert answer.status_code == 500
    assert "p" not in answer.json()["error"]["message"].split()
    assert answer.headers["x-request-id"] == answer.json()["error"]["request_id"] == "abc"
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
