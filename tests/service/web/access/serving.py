"""A small application: the pages of access, and routes of a project that answer with the name of the caller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI
from httpx import Response
from starlette.testclient import TestClient

from hitl.service.web import access
from hitl.service.web.access import guard, routes
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.guard import PLAIN, SECURE, public, requires
from hitl.service.web.access.proxies import NO_PROXIES, Proxies, TrustProxies
from hitl.service.web.access.roles import Caller, Role
from hitl.service.web.templates import Templates

PASSWORD = "correct horse battery"
TEMPLATES = Path(access.__file__).parents[1] / "templates"

Viewer = Annotated[Caller, Depends(requires(Role.VIEWER))]
Lead = Annotated[Caller, Depends(requires(Role.LEAD))]
Admin = Annotated[Caller, Depends(requires(Role.ADMIN))]


class Clock:
    """Seconds since the epoch that a test moves."""

    def __init__(self) -> None:
        self.now = 1_795_000_000.0

    def __call__(self) -> float:
        return self.now


def application(accounts: Accounts) -> FastAPI:
    app = FastAPI(openapi_url=None)
    app.state.accounts, app.state.templates = accounts, Templates()
    app.include_router(routes.router)

    @app.get("/healthz")
    @public
    def health() -> str:
        return "ok"

    @app.get("/")
    def projects(caller: Viewer) -> str:
        return caller.name

    @app.get("/metrics")
    def metrics(caller: Annotated[Caller, Depends(requires(Role.VIEWER, everywhere=True))]) -> str:
        return caller.name

    @app.get("/projects/{project}")
    def overview(project: str, caller: Viewer) -> str:
        return caller.name

    @app.post("/projects/{project}/plan")
    def approve(project: str, caller: Lead) -> str:
        return caller.name

    @app.delete("/projects/{project}/items/{item:path}")
    def delete(project: str, item: str, caller: Admin) -> str:
        return caller.name

    guard.declared(app)
    return app


class Browser:
    """A client that keeps the cookie of its session, and knows its CSRF token."""

    def __init__(
        self,
        app: FastAPI,
        origin: str = "http://localhost:8000",
        address: str = "127.0.0.1",
        proxies: Proxies = NO_PROXIES,
    ) -> None:
        self.app, app.state.proxies = app, proxies
        trusting = TrustProxies(app, proxies)
        self.client = TestClient(trusting, base_url=origin, client=(address, 50_000), follow_redirects=False)
        self.headers = {"Accept": "text/html,application/xhtml+xml"}

    def get(self, path: str, **headers: str) -> Response:
        return self.client.get(path, headers=self.headers | headers)

    def post(self, path: str, data: dict[str, str] | None = None, **headers: str) -> Response:
        return self.client.post(path, data=data or {}, headers=self.headers | headers)

    def send(self, path: str, **fields: str) -> Response:
        """A form of one of our pages, with its CSRF token."""
        return self.post(path, fields | {"csrf_token": self.csrf})

    def log_in(self, name: str, password: str = PASSWORD, next: str = "/") -> Response:
        return self.post("/login", {"name": name, "password": password, "next": next})

    @property
    def secret(self) -> str:
        """What the cookie holds; empty without one."""
        return self.client.cookies.get(SECURE) or self.client.cookies.get(PLAIN) or ""

    @property
    def csrf(self) -> str:
        found = self.app.state.accounts.in_session(self.secret)
        return found.csrf if found else ""
