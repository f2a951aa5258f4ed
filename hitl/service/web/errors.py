"""Return all errors in one format: {"error": {"code", "message", "request_id"}}, or a page with the same content.

Errors that hitl raises on purpose show their own message. Others show only the request id, and the log has the details.
"""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hitl.errors import BadInput, Busy, HitlError, PlatformError, StoreError, Unreachable
from hitl.service.web.formats import is_page

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

_log = logging.getLogger("hitl.serve")
_FRAMEWORKS = "Content Too Large"  # its message for a body without a declared length

LARGE = "what was sent is too large for this address: send less at a time"


class Told(BaseModel):
    """Description of an error: a code for programs, a message for people, and the id of the request in the log."""

    code: str
    message: str
    request_id: str


class Problem(BaseModel):
    """Body of every error response."""

    error: Told


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of error responses with these statuses."""
    return {status: {"model": Problem, "description": TITLES.get(status, "Error")} for status in statuses}


def told(request: Request, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error in the requested format."""
    number = getattr(request.state, "request_id", "")
    if not is_page(request):
        body = {"error": {"code": code, "message": message, "request_id": number}}
        return JSONResponse(body, status, headers)
    title = TITLES.get(status, "Something went wrong")
    html = request.app.state.templates.render("error.html.j2", title=title, message=message, number=number)
    return HTMLResponse(html, status, headers)


def handle(app: FastAPI) -> None:
    """Install these error handlers in an application."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HitlError, _ours)
    app.add_middleware(_Large)


class _Large:
    """Reformat the framework's plain-text response to a body that is too large."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        replaced = False

        async def answered(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start" and message["status"] == 413:
                kind = dict(message.get("headers", ())).get(b"content-type", b"")
                replaced = kind.startswith(b"text/plain")
                if replaced:
                    await told(Request(scope), 413, "http_413", LARGE)(scope, receive, send)
            if not replaced:
                await send(message)

        await self._app(scope, receive, answered)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = None if error.headers is None else dict(error.headers)
    if error.status_code in (301, 302, 303, 307, 308):
        return Response(status_code=error.status_code, headers=headers)
    said = LARGE if error.detail == _FRAMEWORKS else str(error.detail)
    return told(request, error.status_code, f"http_{error.status_code}", said, headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    return told(request, 422, "invalid", said)


async def _ours(request: Request, error: Exception) -> Response:
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    wait = error.retry_after if isinstance(error, Unreachable) else None
    headers = {} if wait is None else {"Retry-After": f"{wait:.0f}"}
    return told(request, status, type(error).__name__, str(error), headers)


def unexpected(request: Request, error: Exception) -> Response:
    """Return the response to an unexpected error. The log has the details, under the request id."""
    _log.error("request failed", exc_info=error)
    return told(request, 500, "internal", "hitl failed to answer; the log says why, by the number of the request")
