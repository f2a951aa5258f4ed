"""What is too large is refused in the one shape of errors; what browsers load comes small."""

from __future__ import annotations

from typing import Any

import pytest

from hitl.service.web.operating import FILES
from hitl.service.web.visits import LARGEST_FORM
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


@pytest.mark.parametrize("path", ["plan/approve", "rework", "gold", "runs"])
def test_fields_in_json_are_not_taken_for_no_fields(served: Served, path: str) -> None:
    answer = served.client.post(f"/projects/p/{path}", json={"cycle": 0, "item": "item 1"})
    assert answer.status_code == 415
    assert "expected the fields of a form" in answer.json()["error"]["message"]
    assert "application/json" in answer.json()["error"]["message"]


def test_a_browser_gets_a_page(served: Served) -> None:
    answer = served.client.post("/projects/p/rework", content=LARGE, headers={**FORM, "Accept": "text/html"})
    assert answer.status_code == 413
    assert "<h1>Too large</h1>" in answer.text


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_loaded_once(served: Served, name: str) -> None:
    first = served.client.get(f"/static/{name}")
    assert first.headers["content-type"].startswith(FILES[name])
    again = served.client.get(f"/static/{name}", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert served.client.get("/static/none.js").status_code == 404


@pytest.mark.parametrize("field", ["item", "annotator", "note"])
def test_a_nul_in_a_field_is_refused(served: Served, field: str) -> None:
    given = {"item": "item 1", "annotator": "ann", "note": "look", field: "a\0b"}
    assert served.client.post("/projects/p/rework", data=given).status_code == 422
    assert served.client.post("/projects/p/gold", data={"label": given["annotator"], **given}).status_code == 422
