"""Wrap every request: an id, a log line, metrics, and security headers.

X-Request-ID     taken from the request if it is short and plain, else random; in every response, error and log line
log              one JSON line per request, without query, body and headers, which may hold secrets
/metrics         count and seconds of requests, by route and status
HEAD             the response to GET, without its body
500              for an unexpected error, with the id that finds it in the log
"""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hitl.service.web.access.guard import proxies_of
from hitl.service.web.errors import unexpected

PLAIN = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
"""Pattern of an accepted request id."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Content Security Policy: nothing loads from elsewhere, and pages have no inline scripts."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods counted by name. Anyone can send others, and each would add a time series for good."""


class Measured:
    """Metrics of requests: counts by route, method and status, and seconds by route."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._count = Counter("hitl_requests", "Requests answered", ("method", "route", "status"), registry=registry)
        self._seconds = Histogram(
            "hitl_request_seconds", "Seconds to an answer", ("route",), buckets=BUCKETS, registry=registry
        )

    def took(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._count.labels(method if method in METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)


class Surrounded:
    """ASGI application that wraps another one with all of this."""

    def __init__(self, app: ASGIApp, measured: Measured) -> None:
        self._app, self._measured = app, measured
        self._log = structlog.get_logger("hitl.serve")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        number = given.decode() if PLAIN.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = number
        method, status, start = scope["method"], 0, time.perf_counter()
        scope["scheme"] = proxies_of(Request(scope)).scheme(Request(scope))  # redirects use it
        if method == "HEAD":
            scope = {**scope, "method": "GET"}

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_headers(message, number)]
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, answered)
        except Exception as error:
            if status:
                raise  # part of the response has been sent
            await unexpected(Request(scope), error)(scope, receive, answered)
        finally:
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "none")
            self._measured.took(method, route, status or 500, seconds)
            said: dict[str, Any] = {"status": status or 500, "ms": round(seconds * 1e3, 1), "request_id": number}
            caller = getattr(scope["state"].get("caller"), "name", None)
            if not route.endswith("/state"):  # pages poll it all the time
                self._log.info("request", method=method, route=route, caller=caller, **said)


def _headers(message: Message, number: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that the response does not set itself."""
    there = {name.lower() for name, _ in message.get("headers", ())}
    ours = {**HEADERS, "X-Request-ID": number}
    return [(name.encode(), value.encode()) for name, value in ours.items() if name.lower().encode() not in there]
