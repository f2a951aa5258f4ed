"""Return a page in three formats: HTML for browsers, JSON and CSV for programs.

`?format=json` or `?format=csv` chooses the format, else the Accept header, else HTML. All three have the same rows. In
CSV, cells that a spreadsheet would run as a formula are defused.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from urllib.parse import quote

import pyarrow as pa
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pyarrow import csv
from starlette.convertors import PathConvertor, register_url_convertor

from hitl.tables.formulas import defused

if TYPE_CHECKING:
    from hitl.service.web.access import Caller

Format = Literal["html", "json", "csv"]

FORMS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The page, its rows as JSON, or as CSV",
        "content": {
            "text/html": {"schema": {"type": "string"}},
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"rows": {"type": "array", "items": {"type": "object"}}},
                    "required": ["rows"],
                }
            },
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}
"""OpenAPI description of a page."""


def _named(format: Annotated[Format | None, Query(description="Else what the Accept header says")] = None) -> None:
    """Declare the parameter that `form_of` reads, for the OpenAPI document. Other values are errors."""


class _Named(PathConvertor):
    """Match a name as the last part of a path, whatever its characters. The framework's own stops at a newline."""

    regex = "(?s:.*)"


register_url_convertor("named", _Named())

LARGEST_FORM = 16_384
"""Maximum bytes of a form."""


def pages(*tags: str) -> APIRouter:
    """Return a router for pages and the forms on them."""
    return APIRouter(tags=list(tags), dependencies=[Depends(_named)], max_body_size=LARGEST_FORM)


@dataclass(frozen=True)
class Page:
    """Content of a page.

    Attributes:
        template: the file that lays it out.
        title: its heading.
        rows: its table, JSON values.
        columns: for a table without rows; else the columns of the first row are used.
        facts: more JSON values for programs, next to the rows.
        shown: values for the template only.
        figures: id -> figure (`hitl.report.plots`), drawn where the template has an element with that id.
    """

    template: str
    title: str
    rows: Sequence[Mapping[str, Any]] = ()
    columns: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)


def form_of(request: Request) -> Format:
    """Return the requested format."""
    named = request.query_params.get("format")
    if named in ("html", "json", "csv"):
        return cast("Format", named)
    accepted = request.headers.get("accept", "")
    wanted = [part.split(";")[0].strip() for part in accepted.split(",")]
    for kind, name in (("text/html", "html"), ("application/json", "json"), ("text/csv", "csv")):
        if kind in wanted:
            return cast("Format", name)
    return "html"


def is_page(request: Request) -> bool:
    """Return True if a browser asks for a page. After an action, it is redirected to one."""
    return "text/html" in request.headers.get("accept", "") and form_of(request) == "html"


def answer(request: Request, page: Page, caller: Caller, project: str | None = None) -> Response:
    """Return the page in the requested format."""
    form = form_of(request)
    if form == "json":
        return JSONResponse(plain({**page.facts, "rows": list(page.rows)}))
    if form == "csv":
        letters = (letter if letter.isascii() and letter.isalnum() else "-" for letter in page.title.lower())
        headers = {"Content-Disposition": f'attachment; filename="{"".join(letters)}.csv"'}
        return Response(as_csv(page.rows, page.columns), media_type="text/csv; charset=utf-8", headers=headers)
    figures = json.dumps(plain(page.figures), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    html = request.app.state.templates.render(
        page.template,
        request=request,
        here=here(request),
        caller=caller,
        project=project,
        title=page.title,
        rows=page.rows,
        figures=figures,
        **{**page.facts, **page.shown},
    )
    return HTMLResponse(html)


def here(request: Request) -> str:
    """Return the path of the request as links have it, with names still escaped."""
    raw: bytes | None = request.scope.get("raw_path")
    return quote(request.url.path) if raw is None else quote(raw.partition(b"?")[0], safe="/%~")


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> bytes:
    """Return the rows as CSV. Lists and objects are JSON within their cell."""
    names = list(rows[0] if rows else columns)
    table = {name: pa.array([_cell(row.get(name)) for row in rows], pa.string()) for name in names}
    sink = io.BytesIO()
    if names:
        csv.write_csv(defused(pa.table(table)), sink)
    return sink.getvalue()


def plain(value: Any) -> Any:
    """Convert to JSON values: no NaN or infinity, no numpy arrays."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)


def _cell(value: Any) -> str | None:
    value = plain(value)
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
