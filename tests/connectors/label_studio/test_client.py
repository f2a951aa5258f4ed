"""Errors and what to do about them, the doctor, and Enterprise's requests (against a fake: it cannot run here)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio import client as client_module
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.server import LocalServer
from hitl.errors import BadSettings, LeaseLost, MissingExtra, Refused, Unreachable
from hitl.platform import Operation
from tests.connectors.label_studio.conftest import SENTIMENT, Project, choice

URL = "http://label-studio.example"
TOKEN = "0123456789abcdef0123456789abcdef01234567"


def on_server(test: Callable[..., None]) -> Callable[..., None]:
    """On a real server, among the journeys."""
    return pytest.mark.journey(pytest.mark.server(test))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats requests without waiting."""
    monkeypatch.setattr(client_module, "WAITS", (0.0,) * 4)


def fake(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    return Client(URL, TOKEN, transport=httpx.MockTransport(answer))


@pytest.mark.parametrize(
    ("status", "body", "advice"),
    [
        (401, {"detail": "Invalid token."}, "Check the token"),
        (
            401,
            {"detail": "Authentication token no longer valid: legacy token authentication has been disabled"},
            "Perso",
        ),
        (403, {"detail": "no"}, "invite the user"),
        (404, {"detail": "Not found."}, "project number"),
        (400, {"detail": "Validation error", "validation_errors": {"title": ["too short"]}}, "too short"),
    ],
)
def test_refusals_say_what_to_do(status: int, body: dict[str, Any], advice: str) -> None:
    client = fake(lambda _: httpx.Response(status, json={**body, "echo": TOKEN}))
    with pytest.raises(Refused) as caught:
        client.get("/api/projects/3/")
    assert advice in str(caught.value)
    assert f"said {status} for GET /api/projects/3/" in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("body", [{"text": f"bad header: Token {TOKEN}"}, {"json": [f"Token {TOKEN}"]}], ids=list)
def test_tokens_never_show(body: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=r"\*\*\*" if "json" in body else "Bad Request") as caught:
        fake(lambda _: httpx.Response(400, **body)).get("/api/version/")
    assert TOKEN not in str(caught.value)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("method", ["get", "patch", "delete", "post"])
def test_only_what_may_be_repeated_is(method: str) -> None:
    calls = 0

    def answer(_: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        return httpx.Response(503, headers={"retry-after": "0"})

    client = fake(answer)
    arguments = ("/x", {}) if method in ("post", "patch") else ("/x",)
    with pytest.raises(Unreachable) as caught:
        getattr(client, method)(*arguments)
    assert caught.value.retry_after == 0
    assert calls == (1 if method == "post" else 5)


@pytest.mark.usefixtures("quick")
def test_a_server_that_comes_back_is_waited_for() -> None:
    answers = iter([httpx.Response(502), httpx.Response(429), httpx.Response(200, json={"edition": "Community"})])
    assert fake(lambda _: next(answers)).community


@pytest.mark.usefixtures("quick")
def test_nobody_listens() -> None:
    with pytest.raises(Unreachable, match=r"did not answer GET .*source\.url is its address; then give the same comm"):
        Client("http://127.0.0.1:9", TOKEN).get("/api/version/")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("method", ["get", "patch", "delete", "post"])
@pytest.mark.parametrize("page", [httpx.Response(200, text="<html>"), httpx.Response(200, text="[" * 100_000)])
def test_a_page_is_no_answer(method: str, page: httpx.Response) -> None:
    """Nor is it believed that what was asked for was done; it may pass, so it is tried again."""
    arguments = ("/x", {}) if method in ("post", "patch") else ("/x",)
    with pytest.raises(Unreachable, match=r"with something that is not JSON\. Is source\.url the address"):
        getattr(fake(lambda _: page), method)(*arguments)


@pytest.mark.usefixtures("quick")
def test_a_write_that_is_redirected_was_not_made() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/user/login/":
            return httpx.Response(200, json={})
        return httpx.Response(302, headers={"location": "/user/login/?next=/"})

    for write in ("post", "patch"):
        with pytest.raises(Unreachable, match=r"with a redirect to http://label-studio\.example/user/login/"):
            getattr(fake(answer), write)("/x", {})


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("said", "where"),
    [
        ([], "at least 1 item"),
        ({"results": []}, "at least 1 item"),
        ([{"id": "7"}], r"answer\[0\]\.id: Input should be a valid integer, got '7'"),
        (["x"], r"answer\[0\]: Input should be a valid dictionary"),
        (None, "should be a valid list"),
    ],
)
def test_a_server_without_users_is_not_believed(said: object, where: str) -> None:
    with pytest.raises(Unreachable, match=where):
        fake(lambda _: httpx.Response(200, json=said)).users()


@pytest.mark.usefixtures("quick")
def test_a_page_that_comes_again_is_no_next_one() -> None:
    """A filter that is not kept to would be asked for ever."""
    page = {"tasks": [{"id": 3}, {"id": 4}], "total": 10}
    with pytest.raises(Unreachable, match="with tasks that it gave before"):
        list(fake(lambda _: httpx.Response(200, json=page)).tasks(1, ("id",)))


@pytest.mark.usefixtures("quick")
def test_that_there_is_nothing_is_believed_when_it_is_said_twice() -> None:
    one = {"tasks": [{"id": 3}], "total": 1}
    for said, seen in (([{"tasks": [], "total": 0}, one], [3]), ([{"tasks": [], "total": 0}] * 2, [])):
        answers = iter(said)
        client = fake(lambda _, answers=answers: httpx.Response(200, json=next(answers)))  # type: ignore[misc]
        assert [task["id"] for task in client.tasks(1, ("id",))] == seen


def test_nothing_is_written_once_the_lease_is_lost() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(200, json={"a": 1})

    def lost() -> float:
        raise LeaseLost("overtaken")

    client = fake(answer)
    client.fence(lost)
    for write in (
        lambda: client.post("/x", {}),
        lambda: client.patch("/x", {"a": 1}),
        lambda: client.delete("/x"),
        lambda: client.map(lambda _: client.post("/x", {}), range(9)),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert client.get("/x") == {"a": 1}
    client.fence(None)
    client.post("/x", {})
    assert asked == ["GET", "POST"]


@contextmanager
def dripping(answer: bytes) -> Iterator[str]:
    """A server that sends its answer byte by byte, one each 50 ms."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65_536)
                    for byte in answer:
                        connection.sendall(bytes([byte]))
                        time.sleep(0.05)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"], ids=["head", "body"])
def test_an_answer_that_drips_is_cut_off(head: bytes) -> None:
    with dripping(head + b"HTTP/1.1 200 OK" + b" " * 900) as url, pytest.raises(Unreachable, match="waited"):
        Client(url, TOKEN, request_seconds=0.8 if not head else 3.0).post("/x", {})


def test_a_process_that_wakes_after_its_lease_sends_nothing() -> None:
    with dripping(b"") as url:
        client = Client(url, TOKEN)
        client.fence(lambda: 0.0)
        with pytest.raises(Unreachable, match="took too long"):
            client.post("/x", {})


@pytest.mark.parametrize(
    "settings", [{"url": "ftp://localhost"}, {"token": ""}, {"page_size": 0}], ids=["url", "token", "page size"]
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        LabelStudio(**{"url": URL, "token": TOKEN, "project": 1, **settings})


def test_the_sdk_is_loaded_late() -> None:
    code = (
        "import sys, hitl.connectors.label_studio as c; c.LabelStudio('http://x', 't', 1);"
        "assert 'label_studio_sdk' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_sdk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "label_studio_sdk", None)
    with pytest.raises(MissingExtra, match=r'pip install "hitl-toolkit\[label-studio\]"'):
        Client(URL, TOKEN).get("/api/version/")


@on_server
def test_a_wrong_token_is_refused(server: LocalServer) -> None:
    with pytest.raises(Refused, match="HITL_LABEL_STUDIO_TOKEN"):
        LabelStudio(server.url, TOKEN, 1).questions()


@contextmanager
def administrator(server: LocalServer) -> Iterator[httpx.Client]:
    """A browser in which the administrator is logged in."""
    with httpx.Client(base_url=server.url) as browser:
        csrf = browser.get("/user/login/").text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        form = {"email": server.admin_email, "password": server.admin_password, "csrfmiddlewaretoken": csrf}
        browser.post("/user/login/", data=form)
        browser.headers["X-CSRFToken"] = browser.cookies["csrftoken"]
        yield browser


@on_server
@pytest.mark.filterwarnings("ignore:The `parse_obj` method:DeprecationWarning")  # in the SDK, when it renews
def test_a_personal_access_token_works(server: LocalServer, project: Project) -> None:
    with administrator(server) as browser:
        personal = browser.post("/api/token/", json={}).json()["token"]
    assert LabelStudio(server.url, personal, project.number).questions()[0].name == "sentiment"
    with pytest.raises(Refused) as caught:
        LabelStudio(server.url, personal[:-4] + "AAAA", project.number).questions()
    assert personal[:-4] not in str(caught.value)
    assert "said 401 for GET" in str(caught.value)
    assert ": Token is invalid. Check the token" in str(caught.value)


@on_server
def test_disabled_legacy_tokens_are_explained(server: LocalServer, project: Project) -> None:
    with administrator(server) as browser:

        def legacy(enabled: bool) -> None:
            body = {"legacy_api_tokens_enabled": enabled, "api_tokens_enabled": True}
            assert browser.post("/api/jwt/settings", json=body).status_code < 300

        legacy(False)
        try:
            with pytest.raises(Refused, match="Personal Access Token"):
                project.connect().questions()
        finally:
            legacy(True)


@on_server
def test_the_doctor_finds_nothing_wrong(project: Project) -> None:
    tasks = project.add(2)
    project.answer(0, tasks[0], "good")
    found = {check.name: check for check in project.connector.check()}
    assert all(check.ok for check in found.values())
    assert "hitl sets 'Uncertainty sampling'" in found["serving"].detail
    list(project.connector.push([Operation("order", "", {"items": [str(number) for number in tasks]})]))
    found = {check.name: check for check in project.connector.check()}
    assert found["serving"].detail == "tasks are served by score"
    assert found["order"].detail == "served as planned"


@on_server
def test_the_doctor_finds_what_is_wrong(server: LocalServer, project: Project) -> None:
    tasks = project.add(2, lambda _: [{"result": choice("good")}])  # without the ground_truth key
    list(project.connector.push([Operation("order", "", {"items": [str(number) for number in tasks]})]))
    project.admin.patch(f"{project.path}/", {"model_version": ""})
    found = {check.name: check for check in project.connect(control="mood").check()}
    assert [name for name, check in found.items() if not check.ok] == [
        "labeling configuration",
        "order",
        "ground truth",
    ]
    assert all(check.fix for check in found.values() if not check.ok)
    assert [check.name for check in LabelStudio(server.url, TOKEN, 1).check() if not check.ok] == ["token"]
    (*_, last) = LabelStudio(server.url, server.token, 999_999).check()
    assert (last.name, last.ok) == ("project", False)


class Enterprise:
    """Just enough of Enterprise to see our requests; the shapes are those of label-studio-sdk's source."""

    def __init__(self) -> None:
        self.assigned: dict[int, set[int]] = {number: set() for number in range(1, 8)}
        self.writes: list[tuple[str, str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, method = request.url.path, request.method
        if method != "GET":
            body = json.loads(request.content) if request.content else dict(request.url.params)
            self.writes.append((method, path, body))
        if path == "/api/version/":
            return httpx.Response(200, json={"edition": "Enterprise"})
        if path == "/api/users/7/":
            return httpx.Response(200, json={"id": 7, "email": "seven@example.com"})
        if path == "/api/users/":
            return httpx.Response(200, json=[{"id": 7, "email": "seven@example.com"}])
        if path == "/api/projects/1/":
            return httpx.Response(200, json={"label_config": SENTIMENT, "title": "x"})
        if path == "/api/tasks":
            return httpx.Response(200, json=self.tasks(json.loads(request.url.params["query"])))
        if path == "/api/projects/1/tasks/assignees" and method == "POST":
            for number in body["selectedItems"]["included"]:
                self.assigned[number] |= set(body["users"])
            return httpx.Response(200, json={"async": False, "status": "ok"})
        if path.endswith("/assignees") and method == "DELETE":
            self.assigned[int(path.split("/")[5])].discard(int(body["users"]))
            return httpx.Response(204)
        return httpx.Response(404, text="<html>")

    def tasks(self, query: dict[str, Any]) -> dict[str, Any]:
        numbers = list(self.assigned)
        for one in query["filters"]["items"]:
            value = one["value"]
            if one["operator"] == "greater":
                numbers = [number for number in numbers if number > value]
            elif one["operator"] == "in_list":
                numbers = [number for number in numbers if number in value]
            else:
                numbers = [number for number in numbers if value in self.assigned[number]]
        return {"tasks": [{"id": number, "annotations": []} for number in numbers], "total": len(numbers)}


def test_enterprise_has_assignments() -> None:
    platform = Enterprise()

    def push(*items: str) -> int:
        connector = LabelStudio(URL, TOKEN, 1, transport=httpx.MockTransport(platform))
        (receipt,) = connector.push([Operation("assign", "7", {"items": list(items)})])
        return receipt.changed

    assert push("5", "2", "99") == 2  # 99 does not exist
    body = {"selectedItems": {"all": False, "included": [5, 2]}, "type": "AN", "users": [7]}
    assert platform.writes == [("POST", "/api/projects/1/tasks/assignees", body)]
    assert push("5", "2") == 0
    assert len(platform.writes) == 1
    assert push("5", "3") == 2
    assert {number for number, people in platform.assigned.items() if people} == {3, 5}
    assert platform.writes[-1] == ("DELETE", "/api/projects/1/tasks/2/assignees", {"type": "AN", "users": "7"})
    assert push() == 2
    assert not any(platform.assigned.values())


def test_each_annotator_has_the_address_of_their_tab() -> None:
    """Tabs as a server lists them; those that are not of hitl are left out."""
    titles = {3: {"title": "Default"}, 8: {"title": "hitl: ann@example.com"}, 9: {}}
    tabs = [{"id": number, "data": data} for number, data in titles.items()]
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        project = {"id": 12, "title": "Pets", "label_config": "<View/>"}
        return httpx.Response(200, json=project if request.url.path == "/api/projects/12/" else tabs)

    connector = LabelStudio(URL, TOKEN, project=12, transport=httpx.MockTransport(answer))
    pages = connector.workplaces()
    assert (pages.links, pages.title) == ({"ann@example.com": f"{URL}/projects/12/data?tab=8"}, "Pets")
    assert "/api/dm/views/" in asked
