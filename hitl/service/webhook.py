"""Receive webhooks from the labeling platform: POST /webhook/{project}, with the secret in X-Hitl-Secret.

A webhook is a hint that something has changed. It is unsigned and sent once, and an annotator's request on the platform
waits for our response. We therefore respond at once, and read the platform afterwards. Anyone who can reach the port
can send anything, so the secret is compared before the body is read. The body is limited in size, and only its action
is used. `hitl.service.door` limits connections and times.

`hitl serve` includes the route. `hitl schedule` serves it with /health at `schedule.webhook`.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from hitl.errors import BadSettings
from hitl.formatting import short
from hitl.service import log
from hitl.service.door import bounds, listen

SECRET_HEADER = "X-Hitl-Secret"
LARGEST_BODY = 1_000_000
"""Maximum bytes of a body that are read for its action. A larger one counts as a hint without being read."""
CONCERNS_LABELS = ("ANNOTATION", "TASK")
"""Prefixes of Label Studio's actions that can change a plan. What a run pushes triggers no such action."""

_log = logging.getLogger("hitl.serve")

Hint = Callable[[], object]
Trouble = Callable[[], Mapping[str, object] | None]
"""Function that returns what is wrong, or None if all is well."""


def router(
    hints: Mapping[str, Hint], secret: str, public: Callable[[Any], Any] = lambda endpoint: endpoint
) -> APIRouter:
    """Return the webhook route, which calls the hint of the project in its path. An empty secret refuses all requests.

    `public`: decorator that marks the route as open to everybody. Raise BadSettings if a header cannot carry the
    secret.
    """
    if not secret.isascii():
        raise BadSettings(
            "schedule.webhook: the secret has letters that headers of HTTP do not carry; expected letters, digits "
            "and signs of an English keyboard"
        )
    routes = APIRouter(tags=["live"])
    errors = {401: "the secret is missing or wrong", 404: "no such project"}

    @routes.post(
        "/webhook/{project}",
        responses={code: {"description": text} for code, text in errors.items()},
        summary="A hint of the labeling platform",
    )
    @public
    async def webhook(project: str, request: Request) -> dict[str, bool]:
        """Look at the platform soon: something may have changed there. `queued`: it concerns labels."""
        sent = request.headers.get(SECRET_HEADER, "").encode("latin-1", "replace")
        if not hmac.compare_digest(sent, secret.encode()) or not secret:
            raise HTTPException(401, f"the header {SECRET_HEADER} is missing or wrong")
        if project not in hints:
            raise HTTPException(404, f"there is no project {project!r}")
        body = await read_body(request, LARGEST_BODY)
        data = parsed(body or b"")
        queued = concerns_labels(data)
        action, sender = (data.get("action"), data.get("project")) if isinstance(data, dict) else (None, None)
        if data is None or body is None:
            log.event(_log, "webhook without readable JSON counts as a hint", logging.WARNING, project=project)
        else:
            number = sender.get("id") if isinstance(sender, dict) else None
            log.event(_log, "webhook", project=project, action=short(action), sent_by=short(number), queued=queued)
        if queued:
            hints[project]()
        return {"queued": queued}

    return routes


def parsed(body: bytes) -> object:
    """Return the JSON of a webhook's body; None if it cannot be read."""
    try:
        return json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return None


def concerns_labels(data: object) -> bool:
    """Return True if a webhook with this JSON may concern a change of labels or tasks. If in doubt, return True."""
    action = data.get("action") if isinstance(data, dict) else None
    return not isinstance(action, str) or action.upper().startswith(CONCERNS_LABELS)


async def read_body(request: Request, most: int, *, keep: bool = True) -> bytes | None:
    """Return the body, or None if it is larger than `most` bytes or cut off. `keep` False: return b"" instead."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 19 or int(length) > most):
        return None
    read, parts = 0, []
    try:
        async for part in request.stream():
            read += len(part)
            if read > most:
                return None
            parts += [part] if keep else []
    except ClientDisconnect:
        return None
    return b"".join(parts)


class Listener(threading.Thread):
    """Serve the webhooks of `hitl schedule`, and /health, at one address. Raise BadSettings if it cannot be used."""

    def __init__(self, address: str, secret: str, hints: Mapping[str, Hint], trouble: Trouble) -> None:
        super().__init__(name="hitl webhook", daemon=True)
        app = FastAPI(openapi_url=None)
        app.include_router(router(hints, secret))

        @app.get("/health")
        def health() -> JSONResponse:
            problem = trouble()
            return JSONResponse(dict(problem or {"status": "ok"}), 503 if problem else 200)

        @app.exception_handler(HTTPException)
        async def refuse(request: Request, error: HTTPException) -> JSONResponse:
            return JSONResponse({"error": str(error.detail)}, error.status_code)

        host, _, port = address.rpartition(":")
        self._socket = listen(host.strip("[]"), int(port), "schedule.webhook")
        self._server = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=1, **bounds()))

    @property
    def port(self) -> int:
        """Port that the server listens on."""
        return int(self._socket.getsockname()[1])

    def run(self) -> None:
        """Serve until stopped."""
        self._server.run([self._socket])

    def stop(self) -> None:
        """Stop listening."""
        self._server.should_exit = True
        if self.is_alive():
            self.join(5.0)
        self._socket.close()
