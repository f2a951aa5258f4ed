"""Save views: item searches that a lead has named, for everyone who sees the project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Form, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from hitl.service.web.access.guard import is_plain
from hitl.service.web.callers import Lead, OneProject, Shown, Viewer, question_of
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, is_page, pages
from hitl.service.web.searches import Search
from hitl.service.web.templates import path
from hitl.store.views import SavedView

router = pages("items")

COLUMNS = ("name", "address", "by", "since")
BACK: dict[int | str, dict[str, Any]] = {303: {"description": "A browser goes on to the page"}}

Name = Annotated[str, Form(max_length=80, description="What it is called")]

_search = TypeAdapter(Search)


@router.get("/projects/{project}/views", summary="Saved views", responses=FORMS | responses(401, 404, 422, 503))
def saved(project: str, request: Request, caller: Viewer, one: OneProject) -> Response:
    """The searches of items that have a name."""
    rows = [_line(project, each) for each in one.store.views(project)]
    return answer(request, Page("views.html.j2", "Saved views", rows, COLUMNS), caller, project)


@router.post(
    "/projects/{project}/views",
    summary="Save a view of items",
    status_code=201,
    responses={**responses(401, 403, 404, 413, 422, 503), **BACK},
)
def save(
    project: str,
    request: Request,
    caller: Lead,
    one: OneProject,
    snapshot: Shown,
    name: Name,
    query: Annotated[str, Form(max_length=8000, description="That of the address of the items")] = "",
) -> Response:
    """Give a search of items a name; it takes the place of a view that has it."""
    words = " ".join(name.split())
    if not words or not is_plain(name):
        raise HTTPException(422, "name: expected a word at least, and no control characters")
    wanted = _wanted(query)
    question_of(snapshot, wanted.question)
    made = one.store.save_view(project, words, as_query(wanted), caller.name)
    if is_page(request):
        return RedirectResponse(address(project, made.query), 303)
    return JSONResponse(_line(project, made), 201)


@router.post(
    "/projects/{project}/views/forget",
    summary="Forget a saved view",
    responses={**responses(401, 403, 404, 413, 422, 503), **BACK},
)
def forget(project: str, request: Request, caller: Lead, one: OneProject, name: Name) -> Response:
    """It is in no list any more; its address works on."""
    if not is_plain(name) or not one.store.forget_view(project, name):
        raise HTTPException(404, f"no view {name!r} in project {project!r}")
    if is_page(request):
        return RedirectResponse(f"/projects/{path(project)}/views", 303)
    return JSONResponse({"name": name})


def as_query(wanted: Search) -> str:
    """Return the query string of a search, without defaults, page number and page size."""
    values = {name: value for name, value in vars(wanted).items() if name not in ("page", "size")}
    return urlencode({name: value for name, value in values.items() if value != getattr(Search, name)})


def address(project: str, query: str) -> str:
    """Return the URL of the items of a view."""
    return f"/projects/{path(project)}/items" + (f"?{query}" if query else "")


def named(views: Sequence[SavedView], wanted: Search) -> list[dict[str, Any]]:
    """Return name and query of each view, and whether it is the current search."""
    now = as_query(wanted)
    return [{"name": each.name, "query": each.query, "current": each.query == now} for each in views]


def _wanted(query: str) -> Search:
    given = {name: value for name, value in parse_qsl(query) if name in vars(Search()) and name not in ("page", "size")}
    try:
        return _search.validate_python(given)
    except ValidationError as error:
        said = "; ".join(f"query.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise HTTPException(422, said) from None


def _line(project: str, view: SavedView) -> dict[str, Any]:
    return {"name": view.name, "address": address(project, view.query), "by": view.by, "since": view.since}
