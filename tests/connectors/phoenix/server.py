"""A real Phoenix server on loopback, in a virtual environment of its own, and projects in it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from hitl.connectors.phoenix import Phoenix
from tests.connectors.servers import free_port, installed, served

VERSION = "20.26.1"
SECONDS = 300.0


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    http: httpx.Client

    def call(self, method: str, path: str, parameters: Mapping[str, Any] | None = None, **body: Any) -> Any:
        """JSON answer of a request that succeeds; None without content."""
        response = self.http.request(method, path, params=parameters, json=body or None)
        assert response.status_code < 300, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None

    @contextmanager
    def member(self, name: str) -> Iterator[httpx.Client]:
        """A new user with this name, logged in."""
        email = f"{name}@example.com"
        user = {"email": email, "username": name, "role": "MEMBER", "auth_method": "LOCAL", "password": PASSWORD}
        self.call("POST", "/v1/users", user=user, send_welcome_email=False)
        with httpx.Client(base_url=self.url, timeout=60.0) as http:
            http.post("/auth/login", json={"email": email, "password": PASSWORD}).raise_for_status()
            yield http

    def project(self, name: str, traces: int, questions: Mapping[str, Sequence[str]]) -> Project:
        """A new project with root spans, one a second, and these questions (name -> labels)."""
        self.call("POST", "/v1/projects", name=name)
        made = Project(self, name, [])
        made.add(traces)
        for question, labels in questions.items():
            there = [one["name"] for one in self.call("GET", "/v1/annotation_configs", {"limit": 100})["data"]]
            if question not in there:
                values = [{"label": label} for label in labels]
                form = {"name": question, "type": "CATEGORICAL", "optimization_direction": "NONE", "values": values}
                self.call("POST", "/v1/annotation_configs", **form)
            self.call("PUT", f"/v1/projects/{name}/annotation_configs/{question}")
        return made


@dataclass(frozen=True)
class Project:
    """A project, and what people and judges do in it. `traces`: ids of its root spans."""

    server: Server
    name: str
    traces: list[str]

    def connect(self, **more: Any) -> Phoenix:
        """A connector to it."""
        return Phoenix(self.server.url, self.name, **more)

    def add(self, count: int) -> None:
        """Add so many root spans, each with a child, and wait until they are visible."""
        spans, first = [], len(self.traces)
        for n in range(first, first + count):
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_767_225_600 + n))
            key = abs(hash((self.name, n))) % 2**60
            shared = {"span_kind": "LLM", "start_time": when, "end_time": when, "status_code": "OK"}
            said = {"input.value": f"question {n}", "output.value": f"answer {n}"}
            root, child = f"{key:016x}", f"{key + 2**60:016x}"
            trace = {"trace_id": f"{key:032x}"}
            spans.append(shared | {"name": "ask", "context": trace | {"span_id": root}, "attributes": said})
            spans.append(shared | {"name": "call", "context": trace | {"span_id": child}, "parent_id": root})
            self.traces.append(root)
        for start in range(0, len(spans), 1000):
            self.server.call("POST", f"/v1/projects/{self.name}/spans", data=spans[start : start + 1000])
        until = time.monotonic() + SECONDS
        while len(self.spans()) < 2 * len(self.traces):
            assert time.monotonic() < until, "spans do not become visible"
            time.sleep(max(0.3, count / 1000))

    def spans(self) -> list[str]:
        """Ids of all spans that are visible."""
        found, cursor = list[str](), None
        while True:
            given = {"limit": 1000} | ({"cursor": cursor} if cursor else {})
            page = self.server.call("GET", f"/v1/projects/{self.name}/spans", given)
            found += [span["context"]["span_id"] for span in page["data"]]
            cursor = page["next_cursor"]
            if not cursor:
                return found

    def say(self, n: int, who: str, label: str, name: str = "correct", kind: str = "HUMAN") -> None:
        """Give an answer about trace number `n`, or change it."""
        said = {"span_id": self.traces[n], "name": name, "annotator_kind": kind, "identifier": who}
        self.server.call("POST", "/v1/span_annotations", {"sync": "true"}, data=[said | {"result": {"label": label}}])

    def delete(self, who: str, name: str = "correct", kind: str = "HUMAN") -> None:
        """Delete all answers of somebody."""
        given = {"name": name, "identifier": who, "annotator_kind": kind, "delete_all": "true"}
        self.server.call("DELETE", f"/v1/projects/{self.name}/span_annotations", given)

    def annotations(self, n: int) -> list[dict[str, Any]]:
        """What is said about trace number `n`."""
        given = {"span_ids": [self.traces[n]], "limit": 1000}
        return list(self.server.call("GET", f"/v1/projects/{self.name}/span_annotations", given)["data"])


def answered(server: Server, name: str) -> Project:
    """A project of four traces with answers of two people."""
    made = server.project(name, 4, {"correct": ["yes", "no"]})
    for n in range(3):
        made.say(n, "ann", "yes" if n % 2 else "no")
        made.say(n, "bob", "yes")
    return made


PASSWORD = "A-passw0rd-of-phoenix"
LOGIN = {
    "PHOENIX_ENABLE_AUTH": "true",
    "PHOENIX_SECRET": "of-32-characters-or-more-1-2-3-4-5-6",
    "PHOENIX_DEFAULT_ADMIN_INITIAL_PASSWORD": PASSWORD,
}


@contextmanager
def running(folder: Path, login: bool = False) -> Iterator[Server]:
    """A server with an empty database in this folder, until the block ends. With `login`, the client is the admin."""
    port, other = free_port(), free_port()
    more = {"PHOENIX_WORKING_DIR": str(folder), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port)}
    more |= {"PHOENIX_GRPC_PORT": str(other), "PHOENIX_TELEMETRY_ENABLED": "false"}
    more |= LOGIN if login else {}
    command = [str(installed("arize-phoenix", VERSION) / "phoenix"), "serve"]
    with served(command, folder, more, f"http://127.0.0.1:{port}", "/healthz") as http:
        if login:
            http.post("/auth/login", json={"email": "admin@localhost", "password": PASSWORD}).raise_for_status()
        yield Server(f"http://127.0.0.1:{port}", http)
