"""Build the application: routers over the projects, with access control, errors and metrics around them.

    /                                  projects                 /login /account /admin/...   access
    /projects/{project}                overview                 /webhook/{project}           hints of the platform
    /projects/{project}/items ...      items, and one item      /ml/{project}/...            Label Studio's ML backend
    /projects/{project}/annotators     annotators, and one      /healthz /readyz /metrics    for operators
    /projects/{project}/team                                    /openapi.json                the API
    /projects/{project}/models  plan  runs

Requests read snapshots and never wait for the platform.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import hitl
from hitl.service import log
from hitl.service.loops import Loops
from hitl.service.web import operating, responses
from hitl.service.web.access import routes as access_routes
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.guard import declared, public
from hitl.service.web.access.hosts import ANY, OwnHosts
from hitl.service.web.access.proxies import NO_PROXIES, Proxies, TrustProxies
from hitl.service.web.backend import router as backend_router
from hitl.service.web.background import Studies
from hitl.service.web.pages import items, models, overview, people, plan
from hitl.service.web.projects import Projects
from hitl.service.web.templates import Templates
from hitl.service.webhook import router as webhook_router

DESCRIPTION = """Labels, annotators and plans of hitl projects.

Give an API token as `Authorization: Bearer hitl_...` (`hitl tokens create`). Every page is an address: add
`?format=json` or `?format=csv`, or say so in the Accept header."""

PLAIN = re.compile(rb"[A-Za-z0-9_.-]{1,64}")  # pattern of an accepted request id

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr "
    "'unsafe-inline'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
"""Headers added to every response unless it sets them itself. Pages load nothing from other sites, and have no inline
scripts.
"""

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
PROBES = ("/healthz", "/readyz", "/metrics", "/static/{name}")
LONGEST_PATH = 200  # maximum characters of a path in the log
CUT_OFF = 499  # status in log and metrics, as nginx has it
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods counted by name. Others are counted together, because clients can send any and each adds a time series."""

_log = logging.getLogger("hitl.serve")


def application(
    projects: Projects,
    accounts: Accounts,
    proxies: Proxies = NO_PROXIES,
    loops: Loops | None = None,
    names: frozenset[str] = frozenset({ANY}),
) -> FastAPI:
    """Build the service, which also runs the projects' loops. Raises BadSettings if a route declares no access.

    `names`: its host names (`own_names`).
    """
    loops = loops or Loops((), lambda *_: None)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loops.start()
        projects.start()
        try:
            yield
        finally:
            log.event(_log, "stopping")
            for stop in (loops.stop, app.state.studies.stop, projects.stop):
                stop()

    def allowed(user: str, password: str, project: str) -> bool:
        """Return True if the password is an API token with a role in the project."""
        caller = accounts.with_token(password)
        return caller is not None and caller.role_in(project) is not None

    app = FastAPI(
        title="hitl", version=hitl.__version__, description=DESCRIPTION, docs_url=None, redoc_url=None,
        openapi_url=None, lifespan=lifespan,
        generate_unique_id_function=lambda route: f"{route.name}_{'_'.join(sorted(route.methods or ())).lower()}",
    )  # fmt: skip
    app.state.accounts, app.state.projects, app.state.proxies = accounts, projects, proxies
    app.state.templates, app.state.studies, app.state.registry = Templates(), Studies(), CollectorRegistry()
    app.state.trouble, app.state.last_trouble = loops.trouble, {}
    app.state.registry.register(operating.ProjectFigures(projects))
    responses.handle(app)
    hints = {loop.project.name: loop.hint for loop in loops.loops}
    secret = next((project.secret for project in loops.projects if project.secret), "")
    for family in (operating, access_routes, overview, items, people, models, plan):
        app.include_router(family.router)
    app.include_router(webhook_router(hints, secret, public))
    app.include_router(backend_router(projects, allowed))
    declared(app)
    app.add_middleware(OwnHosts, names=names)
    app.add_middleware(RequestContext, registry=app.state.registry)
    app.add_middleware(TrustProxies, proxies=proxies)
    return app


class RequestContext:
    """ASGI middleware that gives every request an id, a log line, metrics and security headers.

    The id is the request's X-Request-ID if it is short and plain, else random. The log leaves out query, body and
    headers, which may hold secrets. The response to HEAD is that to GET without its body. The response to an unexpected
    error is 500, with the id. A client that hangs up within its request counts as CUT_OFF. Redirects name no host.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._count = Counter(
            "hitl_requests", "HTTP requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "hitl_request_seconds",
            "Seconds from an HTTP request to its response.",
            ("route",),
            buckets=BUCKETS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        number = given.decode() if PLAIN.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = number
        method, status, replaced, start = scope["method"], 0, False, time.perf_counter()
        if method == "HEAD":
            scope = {**scope, "method": "GET"}

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _headers(message, number)
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        async def checked(message: Message) -> None:
            """Replace the framework's plain-text response to a request that is too large by our own."""
            nonlocal replaced
            if message["type"] == "http.response.start" and message["status"] == 413:
                kind = dict(message.get("headers", ())).get(b"content-type", b"")
                replaced = kind.startswith(b"text/plain")
                if replaced:
                    response = responses.problem(Request(scope), 413, "http_413", responses.LARGE)
                    await response(scope, receive, answer)
            if not replaced:
                await answer(message)

        try:
            await self._app(scope, receive, checked)
        except ClientDisconnect:
            status = status or CUT_OFF
        except Exception as error:
            if status:
                raise  # part of the response has been sent
            await responses.unexpected(Request(scope), error)(scope, receive, answer)
        finally:
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "none")
            self._count.labels(method if method in METHODS else "other", route, str(status or 500)).inc()
            self._seconds.labels(route).observe(seconds)
            log.event(
                _log,
                "request",
                _level(status or 500, route),
                method=method,
                path=scope["path"][:LONGEST_PATH],
                status=status or 500,
                ms=round(seconds * 1e3, 1),
                client=(scope.get("client") or ("",))[0],
                caller=getattr(scope["state"].get("caller"), "name", None),
                request_id=number,
            )


def _level(status: int, route: str) -> int:
    """Return the level at which a request is logged: lower for those that probes and pages repeat all the time."""
    if status in (401, 403, 429):
        return logging.WARNING
    if route in PROBES or route.endswith("/state"):
        return logging.DEBUG
    return logging.ERROR if status >= 500 else logging.INFO


def _headers(message: Message, number: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response with ours added. Redirects become paths: the framework repeats any Host."""
    headers = [
        (name, _path(value) if name.lower() == b"location" else value) for name, value in message.get("headers", ())
    ]
    there, ours = {name.lower() for name, _ in headers}, {**HEADERS, "X-Request-ID": number}
    added = ((name.encode(), value.encode()) for name, value in ours.items() if name.lower().encode() not in there)
    return [*headers, *added]


def _path(location: bytes) -> bytes:
    """Return path and query of a URL. It starts with a single slash, because browsers read a host after two."""
    _, _, path, query, fragment = urlsplit(location)
    return urlunsplit((b"", b"", b"/" + path.lstrip(b"/"), query, fragment))
