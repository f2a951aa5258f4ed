"""What is too large is refused in the one shape of errors; what browsers load comes small."""

from __future__ import annotations

from typing import Any

import pytest

from hitl.service.web.assets import OF_REPORTS, OURS
from hitl.service.web.formats import LARGEST_FORM
from tests.service.web.served import Served

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LARGE = b"x=" + b"y" * LARGEST_FORM


@pytest.mark.parametrize("path", ["/projects/p/rework", "/login"])
@pytest.mark.parametrize("said", [True, False], ids=["says its length", "a stream"])
def test_a_form_that_is_too_large(served: Served, path: str, said: bool) -> None:
    body: Any = LARGE if said else iter([LARGE[:10], LARGE[10:]])
    answer = served.client.post(path, content=body, headers={**FORM, "X-Request-ID": "n7"})
    if path == "/login" and not said:
        assert answer.status_code in (401, 413)
        return
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/json")
    error = answer.json()["error"]
    assert (error["code"], error["request_id"]) == ("http_413", "n7")
    assert "send less" in error["message"]
    assert answer.headers["x-frame-options"] == "DENY"


def test_a_browser_gets_a_page(served: Served) -> None:
    answer = served.client.post("/projects/p/rework", content=LARGE, headers={**FORM, "Accept": "text/html"})
    assert answer.status_code == 413
    assert "<h1>Too large</h1>" in answer.text


@pytest.mark.parametrize("name", [*OURS, *OF_REPORTS])
def test_files_come_small_where_the_browser_says_that_it_can(served: Served, name: str) -> None:
    address = f"/static/{name}"
    plain = served.client.get(address, headers={"Accept-Encoding": "identity"})
    small = served.client.get(address, headers={"Accept-Encoding": "br;q=1, gzip"})
    refused = served.client.get(address, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in refused.headers
    assert small.headers["content-encoding"] == "gzip"
    assert plain.headers["vary"] == small.headers["vary"] == "Accept-Encoding"
    assert plain.headers["etag"] != small.headers["etag"]
    assert small.content == plain.content == refused.content
    assert int(small.headers["content-length"]) < len(plain.content)
    kept = served.client.get(address, headers={"If-None-Match": small.headers["etag"], "Accept-Encoding": "gzip"})
    assert (kept.status_code, kept.content) == (304, b"")
