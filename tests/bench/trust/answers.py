"""Hostile answers of Label Studio: those of a real server, one or a few of them changed at random.

    python -m tests.bench.trust.answers           record them anew from a real Label Studio into tests/data

`replay` takes the part of the server in a cycle: the answers as they were recorded, request by request. What changed
answers make the cycle ask for that was never asked is 404, as it would be.
"""

from __future__ import annotations

import base64
import copy
import gzip
import json
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import httpx

from tests.bench.trust import hostile

RECORDED = Path(__file__).parents[2] / "data" / "label_studio_answers.json.gz"
NOON = 1_764_000_000.0
TOKEN, MARK = "hidden", "f00dcafe"
"""What a store would draw at random, and what recorded answers name."""
Answer = tuple[str, str, int, str]
"""Method, path with query, status and body of one request."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "x", "0", "\x00", "\ud800",
    "=1+1", "\u202e", "x" * 100_000, "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "2026-13-45", [], {}, [[]],
    [None], [{}], {"id": 1}, {"id": "1"}, {"tasks": []}, {"results": []}, "<View/>", "<View><Choices/></View>",
    "<!DOCTYPE a [<!ENTITY b 'c'>]><View>&b;</View>",
)  # fmt: skip


def seeds() -> list[bytes]:
    """One case: nothing is changed."""
    return [json.dumps({}).encode()]


def changed(_base: bytes, _others: list[bytes], chance: random.Random) -> bytes:
    """A case: number of the request -> the body that it is answered with, in base64."""
    recorded = _recorded()["answers"]
    case = {}
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        number = chance.randrange(len(recorded))
        body = str(recorded[number][3]).encode()
        told = _told_otherwise(body, chance) if chance.random() < 0.8 else hostile.mutated(body, [body], chance)
        case[str(number)] = base64.b64encode(told).decode()
    return json.dumps(case).encode()


def _told_otherwise(body: bytes, chance: random.Random) -> bytes:
    """The JSON with a few other values in it; bytes that are none are left alone."""
    try:
        holder = {"": json.loads(body)}
    except ValueError:
        return body
    for _ in range(chance.choice((1, 1, 2, 8))):
        spots = list(_spots(holder))
        inside, key = chance.choice(spots)
        how = chance.randrange(4)
        if how == 0 and isinstance(inside, dict) and key != "":
            del inside[key]
        elif how == 1 and isinstance(inside, list):
            inside.append(inside[key])
        elif how == 2:
            other, name = chance.choice(spots)
            inside[key] = json.loads(json.dumps(other[name]))
        else:
            inside[key] = copy.deepcopy(chance.choice(VALUES))
    return json.dumps(holder[""]).encode("utf-8", "surrogatepass")


def _spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in it that has a value: what holds it, and the key or index there."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from _spots(inner)


def cycle(path: Path) -> None:
    """A first cycle, a later one, an audit and a check, with the answers that the case changes."""
    from hitl import cycle as cycles
    from hitl.audit import audit
    from hitl.connectors.label_studio import LabelStudio
    from hitl.connectors.label_studio import client as client_module
    from hitl.store import Store

    client_module.WAITS = (0.0,) * 4
    recorded, case = _recorded(), json.loads(path.read_bytes())
    bodies = {int(number): base64.b64decode(body) for number, body in case.items()}
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, Store(f"sqlite:///{folder}/hitl.db") as store:
        connector = _connector(LabelStudio, recorded, Replay(recorded["answers"], bodies))
        settings = _settings(recorded)
        with _as_recorded():
            try:
                cycles.run(settings, store, connector, now=NOON)
                cycles.run(settings, store, connector, now=NOON)
                found = audit(settings, store, connector)
                assert case or found.agrees
            finally:
                list(connector.check())


@contextmanager
def _as_recorded() -> Iterator[None]:
    """Hold still what requests depend on: the mark of the store, and the clock that windows of changes end with."""
    clock, package = SimpleNamespace(time=lambda: NOON), "hitl.connectors.label_studio"
    with (
        patch("secrets.token_hex", lambda _: MARK),
        patch(f"{package}.pull.time", clock),
        patch(f"{package}.compare.time", clock),
    ):
        yield


def _connector(kind: Any, recorded: Mapping[str, Any], transport: httpx.BaseTransport) -> Any:
    return kind(
        "http://annotations.example", TOKEN, recorded["project"], abstain=("Unsure",), page_size=4, transport=transport
    )


def _settings(recorded: Mapping[str, Any]) -> Any:
    from tests.connectors.label_studio.projects import settings_for

    return settings_for(recorded["project"], recorded["crew"], open_questions=6)


class Replay(httpx.BaseTransport):
    """Answers as they were recorded: the same request again has the next answer to it, and in the end the last."""

    def __init__(self, recorded: list[Answer], bodies: Mapping[int, bytes]) -> None:
        self.bodies = bodies
        self.asked: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
        self.alike: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
        for number, (method, target, status, body) in enumerate(recorded):
            self.asked[method, target].append((number, status, body))
            self.alike[method, target.partition("?")[0]].append((number, status, body))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        target = request.url.raw_path.decode()
        answers = self.asked.get((request.method, target)) or self.alike.get((request.method, request.url.path))
        if not answers:
            return httpx.Response(404, json={"detail": "Not found."})
        number, status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        return httpx.Response(status, content=self.bodies.get(number, body.encode()))


class Recording(httpx.HTTPTransport):
    """Notes what a real server answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answer] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        response.read()
        self.answers.append((request.method, request.url.raw_path.decode(), response.status_code, response.text))
        return response


_kept: dict[str, Any] = {}


def _recorded() -> dict[str, Any]:
    if not _kept:
        _kept.update(json.loads(gzip.decompress(RECORDED.read_bytes())))
    return _kept


def record() -> int:
    """Two cycles, an audit and a check of a project on a real Label Studio; how many answers that are."""
    from hitl import cycle as cycles
    from hitl.audit import audit
    from hitl.connectors.label_studio import LabelStudio
    from hitl.connectors.label_studio.server import LocalServer
    from hitl.store import Store
    from tests.connectors.label_studio.conftest import SENTIMENT, Project
    from tests.connectors.label_studio.trust.scenes import Scene

    transport = Recording()
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
        people = [server.sign_up(f"annotator{k}@example.com", "a-long-password") for k in range(4)]
        number = LabelStudio.create_project(server.url, server.token, "test project", SENTIMENT)
        scene = Scene(Project(server, people, number), server.url, Path(folder) / "scene")
        scene.fill()
        row = {"task": scene.tasks[0], "model_version": "net", "score": 0.8, "result": _PREDICTED}
        scene.project.admin.post(f"{scene.project.path}/import/predictions", [row])
        crew = [person.email for person in people[1:3]]
        recorded: dict[str, Any] = {"project": number, "crew": crew}
        connector = LabelStudio(server.url, server.token, number, abstain=("Unsure",), page_size=4, transport=transport)
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            settings = _settings(recorded)
            with _as_recorded():
                cycles.run(settings, store, connector, now=NOON)
            scene.answer()
            cycles.run(settings, store, connector, now=NOON)
            audit(settings, store, connector)
            list(connector.check())
        recorded["answers"] = [
            (*asked, body.replace(server.token, TOKEN).replace(server.url, "http://annotations.example"))
            for *asked, body in transport.answers
        ]
    RECORDED.write_bytes(gzip.compress(json.dumps(recorded).encode(), mtime=0))
    return len(recorded["answers"])


_PREDICTED = [{"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": ["good"]}}]

if __name__ == "__main__":
    print(record(), "answers")
    sys.exit()
