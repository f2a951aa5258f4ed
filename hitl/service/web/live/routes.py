"""Hints of the platform come in, events go out.

    POST /webhook/{project}             X-Hitl-Secret: ...    200 {"queued": true} when the hint is durable
    GET  /projects/{project}/events     server-sent events; Last-Event-ID takes up where it was

Whoever can reach the port can send a webhook: the secret is compared before the body is read, and of the body, which
has a size and a time that it may take, only the action counts.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from hitl.errors import StoreError
from hitl.service.web.live.broadcast import Broadcast, Client, TooMany
from hitl.service.web.live.live import Live
from hitl.service.webhook import LARGEST_BODY, SECONDS, SECRET_HEADER, concerns_labels

DURABLE_WITHIN = 0.8
"""Seconds that a webhook waits for its hint to be durable: Label Studio gives up after one, and its annotator waits."""

STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Nothing on the way keeps events back."""

Endpoint = Callable[..., Any]


class Queued(BaseModel):
    """What a webhook is answered: whether it was a hint; if not, it concerns no labels."""

    queued: bool


def router(live: Live, viewer: Endpoint, secret: str | None, public: Callable[[Endpoint], Endpoint]) -> APIRouter:
    """The routes of webhooks and events.

    Args:
        live: where hints go, and where events come from.
        viewer: the dependency of those who may read a project.
        secret: what the platform sends in its header; None: webhooks are refused.
        public: marks a route that everybody may call (the webhook's secret is its own guard).
    """
    made = APIRouter()

    async def webhook(project: str, request: Request) -> JSONResponse:
        """Look at the platform soon: something may have changed there."""
        _require_secret(request, secret)
        return JSONResponse({"queued": await _hinted(live, project, request)})

    async def events(
        project: str, request: Request, last_event_id: Annotated[str | None, Header(max_length=64)] = None
    ) -> StreamingResponse:
        """What changes, as server-sent events: belief, cycle, plan, reload."""
        try:
            return _Stream(live.broadcast, project, last_event_id, repr(getattr(request.state, "caller", None)))
        except TooMany:
            raise HTTPException(503, "too many listen already; try again later", {"Retry-After": "60"}) from None

    said = {401: "the secret is missing or wrong", 404: "no such project", 503: "not durable in time; looked at anyway"}
    made.add_api_route(
        "/webhook/{project}",
        public(webhook),
        methods=["POST"],
        response_model=Queued,
        responses={code: {"description": text} for code, text in said.items()},
        summary="A hint of the labeling platform",
        tags=["live"],
    )
    made.add_api_route(
        "/projects/{project}/events",
        events,
        methods=["GET"],
        dependencies=[Depends(viewer)],
        response_class=StreamingResponse,
        responses={
            200: {
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
                "description": "events",
            },
            503: {"description": "too many listen"},
        },
        summary="Events of a project",
        tags=["live"],
    )
    return made


def _require_secret(request: Request, secret: str | None) -> None:
    """Raise 401 unless the header carries the secret; in a time that does not depend on what it carries."""
    given = request.headers.get(SECRET_HEADER, "").encode("latin-1", "replace")
    if not hmac.compare_digest(given, (secret or "").encode()) or not secret:
        raise HTTPException(401, f"the header {SECRET_HEADER} is missing or wrong")


async def _hinted(live: Live, project: str, request: Request) -> bool:
    if project not in live.projects:
        raise HTTPException(404, f"there is no project {project!r}")
    if not concerns_labels(await _body(request)):
        return False
    try:
        async with asyncio.timeout(DURABLE_WITHIN):
            await asyncio.wrap_future(live.hint(project))
    except (TimeoutError, StoreError):
        raise HTTPException(503, "the hint could not be written down in time; it is looked at all the same") from None
    return True


async def _body(request: Request) -> bytes:
    """The body; b"" of one that is too large, too slow or broken off: it counts as a hint unread."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 19 or int(length) > LARGEST_BODY):
        return b""
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_BODY:
                    return b""
    except (TimeoutError, ClientDisconnect):
        return b""
    return bytes(body)


class _Stream(StreamingResponse):
    """The events of a project, to one client."""

    def __init__(self, broadcast: Broadcast, project: str, last: str | None, who: str) -> None:
        self._leave = broadcast.leave, project
        self._client: Client = broadcast.subscribe(project, last, who)
        super().__init__(broadcast.sent(self._client), headers=STREAM, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until either side goes."""
        leave, project = self._leave
        try:
            await super().__call__(scope, receive, send)
        finally:
            leave(project, self._client)
