"""Choose the format of a response (HTML, JSON or CSV), and return all errors in one format.

`?format=json` or `?format=csv` chooses the format, else the Accept header, else HTML. All three have the same rows. In
CSV, cells that a spreadsheet would run as a formula are defused.

An error is {"error": {"code", "message", "request_id"}}, or a page with the same content. Errors that hitl raises on
purpose show their own message. Others show only the request id, and the log has the details.
"""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import quote

import pyarrow as pa
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pyarrow import csv
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from hitl.errors import BadInput, Busy, HitlError, PlatformError, StoreError, Unreachable, public_name
from hitl.events.bodies import json_value
from hitl.formatting import masked
from hitl.tables.write import defused

Format = Literal["html", "json", "csv"]

ROWS = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "object"}}}, "required": ["rows"]}
FORMATS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The page, its rows as JSON, or as CSV",
        "content": {
            "text/html": {"schema": {"type": "string"}},
            "application/json": {"schema": ROWS},
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}
"""OpenAPI description of a page."""


def format_of(request: Request) -> Format:
    """Return the requested format."""
    named = request.query_params.get("format")
    if named in ("html", "json", "csv"):
        return cast("Format", named)
    wanted = [part.split(";")[0].strip() for part in request.headers.get("accept", "").split(",")]
    for kind, name in (("text/html", "html"), ("application/json", "json"), ("text/csv", "csv")):
        if kind in wanted:
            return cast("Format", name)
    return "html"


def is_page(request: Request) -> bool:
    """Return True if a browser asks for a page. After an action, it is redirected to one."""
    return "text/html" in request.headers.get("accept", "") and format_of(request) == "html"


def here(request: Request) -> str:
    """Return the path of the request as it appears in links, with names still escaped."""
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


def _cell(value: Any) -> str | None:
    value = json_value(value)
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- errors ------------------------------------------------------------------------------------------------

STATUS = ((BadInput, 400), (Busy, 409), (Unreachable, 503), (PlatformError, 502), (StoreError, 503), (HitlError, 500))
"""HTTP status by error class; the first match counts."""

TITLES = {
    400: "That cannot be done",
    401: "Log in first",
    403: "Not allowed",
    404: "Not found",
    409: "Busy",
    413: "Too large",
}

LARGE = "what was sent is too large for this address: send less at a time"

_log = logging.getLogger("hitl.serve")


class Description(BaseModel):
    """Description of an error: a code for programs, a message for people, and the id of the request in the log."""

    code: str
    message: str
    request_id: str


class Problem(BaseModel):
    """Body of every error response."""

    error: Description


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of error responses with these statuses."""
    return {status: {"model": Problem, "description": TITLES.get(status, "Error")} for status in statuses}


def problem(
    request: Request, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error in the requested format."""
    number, message = getattr(request.state, "request_id", ""), masked(message)
    if not is_page(request):
        body = {"error": {"code": code, "message": message, "request_id": number}}
        return JSONResponse(body, status, headers)
    title = TITLES.get(status, "Something went wrong")
    html = request.app.state.templates.render("error.html.j2", title=title, message=message, number=number)
    return HTMLResponse(html, status, headers)


def listed(errors: Sequence[Any], *before: str) -> str:
    """Describe errors of pydantic in one line, each with the path of its field."""
    return "; ".join(f"{'.'.join(map(str, (*before, *each['loc'])))}: {each['msg']}" for each in errors)


def handle(app: FastAPI) -> None:
    """Install the error handlers in an application."""

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code in (301, 302, 303, 307, 308):
            return Response(status_code=error.status_code, headers=error.headers)
        message = LARGE if error.detail == "Content Too Large" else str(error.detail)  # the framework's message
        return problem(request, error.status_code, f"http_{error.status_code}", message, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return problem(request, 422, "invalid", listed(error.errors()))

    @app.exception_handler(HitlError)
    async def ours(request: Request, error: HitlError) -> Response:
        status = next(status for kind, status in STATUS if isinstance(error, kind))
        wait = error.retry_after if isinstance(error, Unreachable) else None
        headers = {} if wait is None else {"Retry-After": str(math.ceil(wait))}
        return problem(request, status, public_name(error), str(error), headers)


def unexpected(request: Request, error: Exception) -> Response:
    """Return the response to an unexpected error. The log has the details, under the request id."""
    _log.error("request failed", exc_info=error)
    return problem(request, 500, "internal", "hitl failed to answer; the log says why, by the number of the request")
