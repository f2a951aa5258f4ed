"""A route that does not say who may use it is an error at the start, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from hitl.errors import BadSettings
from hitl.service.web.access.guard import Declared, declared, public, requires
from hitl.service.web.access.roles import Role
from tests.service.web.access.serving import Viewer

VIEWER = [Depends(requires(Role.VIEWER))]


def nothing() -> None: ...


def included(app: FastAPI) -> None:
    inner, outer = APIRouter(), APIRouter()
    inner.get("/c")(nothing)
    outer.include_router(inner, prefix="/b")
    app.include_router(outer, prefix="/a")


def a_websocket(app: FastAPI) -> None:
    async def listen(socket: WebSocket) -> None: ...

    app.websocket("/a")(listen)


WRONG: dict[str, tuple[Callable[[FastAPI], object], str]] = {
    "bare": (lambda app: app.get("/a")(nothing), "/a: has neither requires(...) nor @public; expected one of"),
    "both": (lambda app: app.get("/a", dependencies=VIEWER)(public(lambda: None)), "/a: has both requires(...) and"),
    "included": (included, "/a/b/c: has neither"),
    "mounted": (lambda app: app.mount("/a", FastAPI(openapi_url=None)), "/a: it is no route of FastAPI"),
    "files": (lambda app: app.mount("/a", public(StaticFiles(directory="/"))), "/a: it is no route of FastAPI"),
    "plain": (
        lambda app: app.router.routes.append(Route("/a", lambda request: PlainTextResponse(""))),
        "/a: it is no route of FastAPI",
    ),
    "websocket": (a_websocket, "/a: it is no route of FastAPI"),
    "project": (  # a viewer of any project could name another one
        lambda app: app.get("/items", dependencies=VIEWER)(lambda project: None),
        "/items: its project is no part of the path",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_route_says_who_may_use_it(name: str) -> None:
    add, words = WRONG[name]
    app = FastAPI(openapi_url=None)
    app.get("/b")(nothing)
    add(app)
    with pytest.raises(BadSettings) as caught:
        declared(app)
    assert words in str(caught.value)
    assert "/b: has neither" in str(caught.value), "all that is wrong is said at once"


def test_the_documents_of_fastapi_are_routes_too() -> None:
    with pytest.raises(BadSettings, match=r"/openapi\.json: it is no route of FastAPI"):
        declared(FastAPI())


@pytest.mark.parametrize("where", ["route", "router", "inclusion", "application", "dependency"])
def test_a_role_may_stand_anywhere(where: str) -> None:
    def inner(caller: Viewer) -> str:
        return caller.name

    at = {name: VIEWER if name == where else [] for name in ("route", "router", "inclusion", "application")}
    at["route"] += [Depends(inner)] if where == "dependency" else []
    app, router = FastAPI(openapi_url=None, dependencies=at["application"]), APIRouter(dependencies=at["router"])
    router.get("/a", dependencies=at["route"])(lambda: None)
    app.include_router(router, dependencies=at["inclusion"])
    assert declared(app) == [Declared("/a", ("GET",), Role.VIEWER)]


def test_who_sees_all_projects_may_name_one() -> None:
    app = FastAPI(openapi_url=None)
    app.post("/items", dependencies=[Depends(requires(Role.LEAD))])(lambda project: None)
    app.get("/items")(public(lambda project: None))
    app.get("/all", dependencies=[Depends(requires(Role.VIEWER, everywhere=True))])(lambda project: None)
    assert [route.role for route in declared(app)] == [Role.LEAD, None, Role.VIEWER]
