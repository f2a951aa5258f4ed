"""The table of access finds what is wrong: a guard that is left out or too weak, a project that is not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request

from hitl.service.web.access import guard as guard_module
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.guard import marked, requires
from hitl.service.web.access.roles import Caller, Role
from tests.service.web.access.serving import Admin, Lead
from tests.service.web.access.table import IN, OPEN, Row, access_table


def wrong(rows: list[Row]) -> list[tuple[str, str, str]]:
    return [(row.method, row.path, row.caller) for row in rows if row.wrong]


def test_every_route_gives_the_access_that_it_declares(app: FastAPI) -> None:
    rows = access_table(app)
    assert wrong(rows) == []
    found = Counter(row.found for row in rows)
    assert set(found) == {IN, OPEN, 303, 401, 403, 404}
    routes = {(row.method, row.path) for row in rows}
    assert len(routes) == 19
    assert {
        ("POST", "/projects/{project}/plan"),
        ("DELETE", "/projects/{project}/items/{item:path}"),
        ("GET", "/login"),
        ("POST", "/admin/tokens/revoke"),
    } <= routes


@pytest.mark.parametrize("instead", [None, Role.VIEWER])
def test_a_guard_that_is_left_out_is_found(here: Accounts, instead: Role | None) -> None:
    """The route declares a lead's role, and has no guard behind it, or another one."""
    app = FastAPI(openapi_url=None)
    app.state.accounts = here

    async def left_out(request: Request) -> Caller | None:
        return None if instead is None else await requires(instead)(request)

    app.post("/projects/{project}/plan", dependencies=[Depends(marked(left_out, Role.LEAD))])(lambda project: "done")
    found = wrong(access_table(app))
    callers = {caller for _, _, caller in found}
    assert "viewer of this project, a session" in callers
    assert ("nobody, a program" in callers) == (instead is None)
    assert ("viewer of another project, a token" in callers) == (instead is None)


async def unchecked(request: Request, caller: Caller) -> None: ...


@pytest.mark.journey
@pytest.mark.parametrize(
    ("name", "broken", "caller"),
    [
        ("_require_meant", unchecked, "viewer of this project, a session without its CSRF token"),
        ("_require_role", lambda *asked: None, "viewer of another project, a token"),
        ("is_own", lambda request: True, "admin of this project, a session by another page"),
        ("_token", lambda request: None, "viewer of this project, a token"),
    ],
)
def test_a_guard_that_is_broken_is_found(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., object], caller: str
) -> None:
    monkeypatch.setattr(guard_module, name, broken)
    assert caller in {caller for _, _, caller in wrong(access_table(app))}


def test_the_strongest_of_several_guards_counts(here: Accounts) -> None:
    app, router = FastAPI(openapi_url=None), APIRouter(dependencies=[Depends(requires(Role.VIEWER))])
    app.state.accounts = here

    @router.post("/projects/{project}/a")
    def first(project: str, caller: Lead) -> None: ...

    @router.post("/projects/{project}/b")
    def second(project: str, caller: Admin) -> None: ...

    app.include_router(router, prefix="/v1", dependencies=[Depends(requires(Role.LEAD))])
    rows = access_table(app)
    assert wrong(rows) == []
    let_in = {row.path: set() for row in rows}
    for row in rows:
        if row.found == IN:
            let_in[row.path].add(row.caller.split()[0])
    assert let_in == {"/v1/projects/{project}/a": {"lead", "admin"}, "/v1/projects/{project}/b": {"admin"}}
