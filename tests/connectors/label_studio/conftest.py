"""What tests do to a project of their own in a real Label Studio."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.server import LocalServer, Person
from hitl.errors import Refused
from tests.connectors.label_studio.browser import opened

SENTIMENT = """<View><Text name="text" value="$text"/>
<Choices name="sentiment" toName="text"><Choice value="good"/><Choice value="bad"/><Choice value="Unsure"/></Choices>
</View>"""
TOPICS = """<View><Text name="text" value="$text"/>
<Choices name="topics" toName="text" choice="multiple"><Choice value="art"/><Choice value="law"/><Choice value="war"/>
</Choices></View>"""


class Through(httpx.BaseTransport):
    """Sends requests on; its connections are closed with it."""

    def __init__(self) -> None:
        self.inner = httpx.HTTPTransport(verify=False)  # loopback; the authorities take 20 ms to read
        weakref.finalize(self, self.inner.close)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self.inner.handle_request(request)


class Recorder(Through):
    """Sends requests on and remembers them; `fail` may raise before or after one is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str]] = []
        self.fail: Callable[[httpx.Request], None] | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.method, request.url.path))
        if self.fail is not None:
            self.fail(request)
        return super().handle_request(request)

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [request for request in self.requests if request[0] != "GET"]


@dataclass
class Project:
    """A project of the test's own, with what tests do to it."""

    server: LocalServer
    people: Sequence[Person]
    number: int
    recorder: Recorder = field(default_factory=Recorder)
    clients: dict[str, Client] = field(default_factory=dict, init=False)
    """Those of the people who have done something, by token."""

    def __post_init__(self) -> None:
        self.admin = Client(self.server.url, self.server.token)
        self.path = f"/api/projects/{self.number}"
        self.connector = self.connect()

    def connect(self, **options: Any) -> LabelStudio:
        options.setdefault("transport", self.recorder)
        return LabelStudio(self.server.url, self.server.token, self.number, **options)

    def person(self, k: int) -> Client:
        token = self.people[k].token
        if token not in self.clients:
            self.clients[token] = Client(self.server.url, token)
        return self.clients[token]

    def add(self, count: int, annotate: Callable[[int], list[dict[str, Any]]] | None = None) -> list[int]:
        rows = [{"data": {"text": f"text {n}"}, "annotations": annotate(n) if annotate else []} for n in range(count)]
        answer = self.admin.post(f"{self.path}/import", rows, return_task_ids="true")
        return [int(number) for number in answer["task_ids"]]

    def answer(self, k: int, task: int, label: str, **extra: Any) -> dict[str, Any]:
        body = {"result": choice(label), "lead_time": 1.5, **extra}
        return dict(self.person(k).post(f"/api/tasks/{task}/annotations/", body))

    def skip(self, k: int, task: int) -> None:
        self.person(k).post(f"/api/tasks/{task}/annotations/", {"result": [], "was_cancelled": True})

    def next_task(self, k: int, view: int | None = None) -> dict[str, Any] | None:
        """What the label stream serves, as the web page gets it."""
        try:
            return dict(self.person(k).get(f"{self.path}/next", **({} if view is None else {"view": view})))
        except Refused:  # 404: nothing is left
            return None

    def next(self, k: int, view: int | None = None) -> int | None:
        task = self.next_task(k, view)
        return None if task is None else int(task["id"])

    def views(self) -> dict[str, dict[str, Any]]:
        """Title -> tab of the Data Manager."""
        return {view["data"].get("title"): view for view in self.admin.get("/api/dm/views/", project=self.number)}

    def tab(self, k: int) -> int | None:
        """The number of the tab of this annotator."""
        view = self.views().get(f"hitl: {self.people[k].email}")
        return None if view is None else int(view["id"])

    def listed(self, view: int | None) -> list[int]:
        """The tasks that a tab shows."""
        answer = self.admin.get("/api/tasks", project=self.number, view=view, fields="all", include="id")
        return [int(task["id"]) for task in answer["tasks"]]

    def task(self, number: int) -> dict[str, Any]:
        return dict(self.admin.get(f"/api/tasks/{number}/"))

    def settings(self) -> dict[str, Any]:
        return dict(self.admin.get(f"{self.path}/"))

    def versions(self) -> dict[str, int]:
        return dict(self.admin.get(f"{self.path}/model-versions/"))


def choice(*labels: str, control: str = "sentiment") -> list[dict[str, Any]]:
    """The result of a Choices control."""
    return [{"from_name": control, "to_name": "text", "type": "choices", "value": {"choices": list(labels)}}]


@pytest.fixture
def project(make_project: Callable[..., Project]) -> Project:
    return make_project()


@pytest.fixture
def browser() -> Iterator[Any]:
    with opened() as driver:
        yield driver
