"""The access of every route of `hitl serve`, asked by everybody: no login, each role, tokens, other projects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI

from hitl.service.web.access import Accounts, Role, public, requires
from hitl.service.web.access.passwords import Passwords
from hitl.service.web.app import Parts, application
from hitl.service.web.live import Live
from hitl.service.web.projects import Projects
from tests.scheduled import project
from tests.service.web.access.table import access_table


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FastAPI]:
    """The service over two projects."""
    monkeypatch.setattr(Passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    projects = Projects([project(tmp_path / name, name=name) for name in ("rte", "pets")])
    with Accounts(f"sqlite:///{tmp_path}/access.db") as accounts:
        live = Live(projects)
        yield application(Parts(projects, accounts, routers=[live.router(requires(Role.VIEWER), "secret", public)]))
    projects.stop()


@pytest.mark.parametrize(("here", "other"), [("rte", "pets"), ("rte", "unknown"), ("unknown", "rte")])
def test_every_route_gives_the_access_that_it_declares(app: FastAPI, here: str, other: str) -> None:
    """Also of a project that is not served: who may do nothing in it learns no more of it."""
    rows = access_table(app, here, other)
    assert [row for row in rows if row.wrong] == []
    assert len({(row.method, row.path) for row in rows}) > 25
