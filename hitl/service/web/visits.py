"""Define what every page needs: the caller, the project in the path, and the response in the requested format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException

from hitl.events.bodies import json_value, path
from hitl.service.web.access.guard import requires
from hitl.service.web.access.roles import Caller, Role
from hitl.service.web.projects import Watched
from hitl.service.web.responses import FORMATS, Format, as_csv, format_of, here, is_page, responses
from hitl.service.web.snapshot import QuestionView, Snapshot

LARGEST_FORM = 16_384  # maximum bytes of a form

PAGE = FORMATS | responses(401, 403, 404, 422, 503)
ACTION = {**responses(401, 403, 404, 409, 413, 422, 503), 303: {"description": "A browser goes to the page"}}
"""OpenAPI descriptions of the responses to a page request, and to an action."""

QuestionName = Annotated[str | None, Query(description="One of the project's questions; else the first")]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
Size = Annotated[int, Query(ge=1, le=1000, description="Rows per page")]


class _Named(PathConvertor):
    """Match a name of any characters as the last part of a path. The framework's own convertor stops at a newline."""

    regex = "(?s:.*)"


register_url_convertor("named", _Named())


def _format(format: Annotated[Format | None, Query(description="Else what the Accept header says")] = None) -> None:
    """Declare the parameter that `format_of` reads, for the OpenAPI document. Other values are errors."""


def pages(tag: str) -> APIRouter:
    """Return a router for pages and the forms on them."""
    return APIRouter(tags=[tag], dependencies=[Depends(_format)], max_body_size=LARGEST_FORM)


@dataclass(frozen=True)
class Visit:
    """A request by a caller who may see the project."""

    request: Request
    caller: Caller
    one: Watched

    @property
    def snapshot(self) -> Snapshot:
        """Newest snapshot of the project. Raises HTTPException (503) if there is none yet."""
        if self.one.snapshot is None:
            said = self.one.trouble or "it is being loaded; try again in a moment"
            raise HTTPException(503, f"project {self.one.name!r} has nothing to show: {said}", {"Retry-After": "2"})
        return self.one.snapshot

    def view(self, question: str | None) -> tuple[str, QuestionView]:
        """Return the name and view of a question; None: the first. Raises HTTPException (404) if it is unknown."""
        try:
            view = self.snapshot.view(question)
        except KeyError:
            names = ", ".join(map(repr, self.snapshot.views))
            raise HTTPException(404, f"no question {question!r} in this project; expected one of {names}") from None
        return view.page.name, view

    def page(self, template: str, title: str, *tables: Any, **more: Any) -> Response:
        """Return a page about the project; see `page`."""
        around: dict[str, Any] = {
            "project": self.one.name,
            "questions": list(self.one.snapshot.views) if self.one.snapshot else [],
        }
        return page(self.request, self.caller, template, title, *tables, **around | more)

    def done(self, part: str, data: Mapping[str, Any], status: int = 200) -> Response:
        """Return the outcome of an action as JSON, or redirect a browser to this part of the project."""
        if is_page(self.request):
            return RedirectResponse(f"/projects/{path(self.one.name)}/{part}", 303)
        return JSONResponse(dict(data), status)


def _visit(role: Role) -> Any:
    required = Depends(requires(role))

    def visit(project: str, request: Request, caller: Caller = required) -> Visit:
        one = request.app.state.projects.get(project)
        if one is None:
            raise HTTPException(404, f"no project {project!r} is served here")
        return Visit(request, caller, one)

    return Depends(visit)


Viewing = Annotated[Visit, _visit(Role.VIEWER)]
Leading = Annotated[Visit, _visit(Role.LEAD)]


def page(
    request: Request,
    caller: Caller,
    template: str,
    title: str,
    rows: Sequence[Mapping[str, Any]] = (),
    columns: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
    *,
    figures: Mapping[str, Any] | None = None,
    project: str | None = None,
    **shown: Any,
) -> Response:
    """Return a page in the requested format.

    Args:
        request, caller: the request and its sender.
        template: file name of the template.
        title: heading of the page.
        rows: rows of its table, as JSON values.
        columns: columns of the table if it has no rows; otherwise those of the first row are used.
        facts: other JSON values, next to the rows.
        figures: id -> figure (`hitl.report.plots`), drawn where the template has an element with that id.
        project: name of the project, or None.
        shown: values for the template only.
    """
    form, facts = format_of(request), facts or {}
    if form == "json":
        return JSONResponse(json_value({**facts, "rows": list(rows)}))
    if form == "csv":
        name = " ".join(filter(None, (project, facts.get("question"), title))).lower()
        letters = (letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
        headers = {"Content-Disposition": f'attachment; filename="{"".join(letters)}.csv"'}
        return Response(as_csv(rows, columns), media_type="text/csv; charset=utf-8", headers=headers)
    drawn = json.dumps(json_value(figures or {}), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    around = {"request": request, "here": here(request), "caller": caller, "project": project, "title": title}
    values = {**around, "rows": rows, "figures": drawn, **facts, **shown}
    return HTMLResponse(request.app.state.templates.render(template, **values))


def paged(rows: Any, number: int, size: int) -> tuple[Any, dict[str, int]]:
    """Return page `number` (from 1) of the rows, and the facts about it: rows found, page, pages."""
    facts = {"found": len(rows), "page": number, "pages": max(1, -(-len(rows) // size))}
    return rows[(number - 1) * size : number * size], facts
