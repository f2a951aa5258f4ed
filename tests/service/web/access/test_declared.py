"""A route that does not say who may use it is an error at the start, wherever it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from hitl.errors import BadSettings
from hitl.service.web.access import Role, check_declared, public, requires
from hitl.service.web.access.declared import Declared, declared
from tests.service.web.access.serving import Viewer

VIEWER = [Depends(requires(Role.VIEWER))]


@pytest.fixture
def bare() -> FastAPI:
    return FastAPI(openapi_url=None)


def refused(app: FastAPI, words: str) -> None:
    with pytest.raises(BadSettings) as caught:
        check_declared(app)
    assert words in str(caught.value)


def nothing() -> None: ...


def test_an_application_without_routes_is_fine(bare: FastAPI) -> None:
    check_declared(bare)


def test_a_route_says_who_may_use_it(bare: FastAPI) -> None:
    bare.get("/a")(nothing)
    refused(bare, "access: /a: has neither requires(...) nor @public; expected one of them")


def test_all_that_is_wrong_is_said_at_once(bare: FastAPI) -> None:
    for path in ("/a", "/b"):
        bare.get(path)(nothing)
    refused(bare, "/b: has neither")
    refused(bare, "/a: has neither")


def test_what_is_public_has_no_role(bare: FastAPI) -> None:
    bare.get("/a", dependencies=VIEWER)(public(lambda: None))
    refused(bare, "/a: has both requires(...) and @public")


def test_the_documents_of_fastapi_are_routes_too() -> None:
    refused(FastAPI(), "/openapi.json: it is no route of FastAPI, so that it must be marked as public")


def test_a_router_is_looked_into(bare: FastAPI) -> None:
    inner, outer = APIRouter(), APIRouter()
    inner.get("/c")(nothing)
    outer.include_router(inner, prefix="/b")
    bare.include_router(outer, prefix="/a")
    refused(bare, "/a/b/c: has neither")


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


def test_static_files_are_marked(bare: FastAPI, tmp_path: Path) -> None:
    bare.mount("/static", StaticFiles(directory=tmp_path))
    refused(bare, "/static: it is no route of FastAPI")
    other = FastAPI(openapi_url=None)
    other.mount("/static", public(StaticFiles(directory=tmp_path)))
    assert declared(other) == [Declared("/static", ("GET",), None, mounted=True)]


def test_a_mounted_application_is_looked_into(bare: FastAPI) -> None:
    inner = FastAPI(openapi_url=None)
    inner.get("/b")(nothing)
    bare.mount("/a", inner)
    refused(bare, "/a/b: has neither")
    other = FastAPI(openapi_url=None)
    other.mount("/a", Starlette(routes=[Route("/b", lambda request: PlainTextResponse(""))]))
    refused(other, "/a/b: it is no route of FastAPI")


def test_a_plain_route_is_marked(bare: FastAPI) -> None:
    bare.router.routes.append(Route("/a", lambda request: PlainTextResponse("")))
    refused(bare, "/a: it is no route of FastAPI")


def test_a_websocket_has_no_guard(bare: FastAPI) -> None:
    @bare.websocket("/a")
    async def listen(socket: WebSocket) -> None: ...

    refused(bare, "/a: it is no route of FastAPI")


def test_a_frontend_has_no_guard(bare: FastAPI, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("")
    bare.frontend("/app", directory=tmp_path)
    refused(bare, "a frontend: it cannot say who may see it")


def test_a_project_that_is_no_part_of_the_path_is_not_looked_at(bare: FastAPI) -> None:
    """A viewer of any project could name another one."""
    bare.get("/items", dependencies=VIEWER)(lambda project: None)
    refused(bare, "/items: its project is no part of the path")
    other = FastAPI(openapi_url=None)
    other.post("/items", dependencies=[Depends(requires(Role.LEAD))])(lambda project: None)
    other.get("/items")(public(lambda project: None))
    other.get("/all", dependencies=[Depends(requires(Role.VIEWER, everywhere=True))])(lambda project: None)
    check_declared(other)
