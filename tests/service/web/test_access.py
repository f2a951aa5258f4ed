"""The access of every route of `hitl serve`, asked by everybody: no login, each role, tokens, other projects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI
from starlette.testclient import TestClient

from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.guard import declared
from hitl.service.web.access.logins import Passwords
from hitl.service.web.projects import Projects
from hitl.service.web.server import service as full_service
from tests.scheduled import project
from tests.service.web.access.table import access_table


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FastAPI]:
    """The service over two projects."""
    monkeypatch.setattr(Passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    projects = Projects([project(tmp_path / name, name=name) for name in ("rte", "pets")])
    with Accounts(f"sqlite:///{tmp_path}/access.db") as accounts:
        yield full_service(projects, accounts)
    projects.stop()


@pytest.mark.parametrize(
    ("here", "other"),
    [
        ("rte", "pets"),
        pytest.param("rte", "unknown", marks=pytest.mark.journey),
        pytest.param("unknown", "rte", marks=pytest.mark.journey),
    ],
)
def test_every_route_gives_the_access_that_it_declares(app: FastAPI, here: str, other: str) -> None:
    """Also of a project that is not served: who may do nothing in it learns no more of it."""
    rows = access_table(app, here, other)
    assert [row for row in rows if row.wrong] == []
    assert len({(row.method, row.path) for row in rows}) > 25


OPEN = {"/healthz", "/readyz", "/static/{name}", "/login", "/webhook/{project}", "/ml/{project}/webhook"}
"""What shows nothing of a project, or asks for a secret of its own."""

BACKEND = {
    f"/ml/{{project}}/{part}": method
    for part, method in zip(("health", "versions", "setup", "predict"), ("GET", "GET", "POST", "POST"), strict=True)
}
"""What asks for a token as the password of basic authentication, as Label Studio sends it."""


def test_what_is_open_to_everybody_is_known(app: FastAPI) -> None:
    """A route more that is marked as public has to be written here too."""
    assert {route.path for route in declared(app) if route.role is None} == OPEN | BACKEND.keys()
    client = TestClient(app)
    for path, method in BACKEND.items():
        for name in ("rte", "unknown"):
            answer = client.request(method, path.format(project=name), auth=("any", "hitl_wrong"))
            assert answer.status_code == 401, path
    for given in ({}, {"X-Hitl-Secret": "wrong"}):
        assert client.post("/webhook/rte", headers=given).status_code == 401
