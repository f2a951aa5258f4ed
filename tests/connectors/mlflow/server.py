"""A real MLflow server on loopback, in a virtual environment of its own, and experiments in it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from hitl.connectors.mlflow import MLflow
from tests.connectors.servers import free_port, installed, served

VERSION = "3.17.2"
API = "/api/3.0/mlflow"


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    http: httpx.Client

    def call(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        """JSON answer of a request that succeeds."""
        sent = {"params": given} if method == "GET" else {"json": given}
        response = self.http.request(method, path, **sent)
        assert response.status_code == 200, f"{method} {path}: {response.status_code} {response.text}"
        answer: dict[str, Any] = response.json()
        return answer

    def experiment(self, name: str, traces: int, questions: Mapping[str, Mapping[str, Any]]) -> Experiment:
        """A new experiment with traces "t0", "t1", ..., one a second, and these questions (name -> input)."""
        number = self.call("POST", "/api/2.0/mlflow/experiments/create", name=name)["experiment_id"]
        made = Experiment(self, name, number, [f"tr-{int(number):016x}{n:016x}" for n in range(traces)])
        for n in range(traces):
            made.add(n)
        for question, form in questions.items():
            given = {"experiment_id": number, "name": question, "type": "FEEDBACK", "title": question}
            self.call("POST", f"{API}/label-schemas/create", **given, input=dict(form))
        return made


@dataclass(frozen=True)
class Experiment:
    """An experiment, and what people and judges do in it."""

    server: Server
    name: str
    number: str
    traces: list[str]

    def connect(self, **more: Any) -> MLflow:
        """A connector to it."""
        return MLflow(self.server.url, self.name, **more)

    def add(self, n: int, **more: Any) -> None:
        """Add trace number `n`, or change it."""
        where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self.number}}
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_767_225_600 + n))
        info = {"trace_id": self.traces[n], "trace_location": where, "request_time": when, "execution_duration": "1s"}
        info |= {"state": "OK", "request_preview": f"question {n}", "response_preview": f"answer {n}"}
        self.server.call(
            "POST", f"{API}/traces", trace={"trace_info": info | {"trace_metadata": {}, "tags": {}} | more}
        )

    def say(self, n: int, who: str, value: Any, name: str = "correct", kind: str = "HUMAN", **more: Any) -> str:
        """Give an answer about trace number `n`, and return its id."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body = {"assessment_name": name, "trace_id": self.traces[n], "source": {"source_type": kind, "source_id": who}}
        body |= {"create_time": now, "last_update_time": now, "feedback": {"value": value}} | more
        path = f"{API}/traces/{self.traces[n]}/assessments"
        return str(self.server.call("POST", path, assessment=body)["assessment"]["assessment_id"])

    def decline(self, n: int, who: str) -> None:
        """Decline trace number `n` in somebody's queue."""
        found = self.server.call(
            "GET", f"{API}/review-queues/get-by-name", experiment_id=self.number, name=f"hitl: {who}"
        )
        given = {"queue_id": found["review_queue"]["queue_id"], "item_id": self.traces[n], "status": "DECLINED"} | {
            "completed_by": who
        }
        self.server.call("POST", f"{API}/review-queues/items/set-status", **given)

    def change(self, n: int, key: str, value: Any) -> None:
        """Edit an answer."""
        body = {"assessment_id": key, "trace_id": self.traces[n], "feedback": {"value": value}}
        path = f"{API}/traces/{self.traces[n]}/assessments/{key}"
        self.server.call("PATCH", path, assessment=body, update_mask="feedback")

    def delete(self, n: int, key: str) -> None:
        """Delete an answer."""
        self.server.call("DELETE", f"{API}/traces/{self.traces[n]}/assessments/{key}")

    def assessments(self, n: int) -> list[dict[str, Any]]:
        """What is said about trace number `n`."""
        (info,) = self.server.call("POST", f"{API}/traces/batchGetInfos", trace_ids=[self.traces[n]])["trace_infos"]
        return list(info.get("assessments", []))

    def queue(self, name: str) -> list[int]:
        """Numbers of the traces that wait in a queue, in the order in which they are served."""
        found = self.server.call("GET", f"{API}/review-queues/get-by-name", experiment_id=self.number, name=name)
        given = {"queue_id": found["review_queue"]["queue_id"], "status": "PENDING", "max_results": 1000}
        rows = self.server.call("GET", f"{API}/review-queues/items/list", **given).get("items", [])
        return [self.traces.index(row["item_id"]) for row in rows]


def answered(server: Server, name: str) -> Experiment:
    """An experiment of four traces with answers of two people to a question of either kind."""
    forms = {
        "correct": {"categorical": {"options": ["yes", "no"]}},
        "safe": {"pass_fail": {"positive_label": "Safe", "negative_label": "Harmful"}},
    }
    made = server.experiment(name, 4, forms)
    for n in range(3):
        made.say(n, "ann", "yes" if n % 2 else "no")
        made.say(n, "bob", "yes")
        made.say(n, "ann", bool(n % 2), "safe")
    return made


PASSWORD = "a-password-of-mlflow"
LOGIN = """[mlflow]
default_permission = READ
database_uri = sqlite:///{folder}/users.db
admin_username = admin
admin_password = {PASSWORD}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""


@contextmanager
def running(folder: Path, login: bool = False) -> Iterator[Server]:
    """A server with an empty database in this folder, until the block ends. With `login`, the client is the admin."""
    port = free_port()
    command = [str(installed("mlflow[auth]", VERSION) / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", f"{folder}/artifacts"]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "PYTHONWARNINGS": "ignore"}
    if login:
        (folder / "login.ini").write_text(LOGIN.format(folder=folder, PASSWORD=PASSWORD))
        quiet |= {"MLFLOW_AUTH_CONFIG_PATH": f"{folder}/login.ini", "MLFLOW_FLASK_SERVER_SECRET_KEY": "of forms"}
        command += ["--app-name", "basic-auth"]
    with served(command, folder, quiet, f"http://127.0.0.1:{port}", "/health") as http:
        http.auth = ("admin", PASSWORD) if login else None
        yield Server(f"http://127.0.0.1:{port}", http)
