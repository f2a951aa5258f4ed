"""Every route of an application, asked by everybody: the access that it gives is the one that it declares.

`access_table(app)` finds the routes by itself. Nothing behind a route is run: a request that the guard has let in ends
there, so that no cycle starts and no stream hangs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from fastapi import FastAPI, HTTPException
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.guard import PLAIN, SAFE, Declared, declared
from hitl.service.web.access.roles import EVERY, Caller, Role

ORIGIN, FOREIGN = "http://localhost", "http://evil.example"
PASSWORD = "a password of the table"

IN, OPEN = "let in", "open"
"""What a row has in place of a status: the guard lets the request through; there is no guard, on purpose."""

_LET_IN = 299
"""The status by which a request that was let in ends; nothing else answers so."""

Expected = int | str


@dataclass(frozen=True, slots=True)
class Row:
    """One route asked by one caller."""

    method: str
    path: str
    caller: str
    expected: Expected
    found: Expected

    @property
    def wrong(self) -> bool:
        return self.expected != self.found


@dataclass(frozen=True, slots=True)
class _Asking:
    """One who asks: what it may do, what it sends, and what it is answered where it may do nothing."""

    name: str
    roles: Mapping[str, Role] | None
    headers: Callable[[], dict[str, str]]
    browser: bool = False
    meant: bool = True

    def expects(self, route: Declared, method: str, project: str) -> Expected:
        """By what the route declares and by nothing else."""
        if route.role is None:
            return OPEN
        if self.roles is None:
            return 303 if self.browser else 401
        where = project if route.of_project else None
        has = Caller("", self.roles, "token").role_in(where)
        if where is None and not route.everywhere:
            has = max(self.roles.values(), default=None)
        if has is None and where is not None:
            return 404
        if has is None or has < route.role:
            return 403
        return IN if self.meant or method in SAFE else 403


def access_table(
    app: FastAPI, project: str = "p", other: str = "other", fill: Mapping[str, str] | None = None
) -> list[Row]:
    """A row for each route, method and caller. Those that are `wrong` give more, or less, than the route declares.

    `app.state.accounts` gets users and tokens of its own. `fill` has values of path parameters that "0" does not fit.
    Raises BadSettings for a route that declares nothing.
    """
    keys, rows = _Keys(app.state.accounts), []
    for route in declared(app):
        probe = _Probe(app, route.role)
        client = TestClient(probe, base_url=ORIGIN, follow_redirects=False, raise_server_exceptions=False)
        path = _filled(route, {"project": project, **(fill or {})})
        for method, asking in product(route.methods, _callers(keys, project, other)):
            if route.role is None and asking.roles is not None:
                continue  # what is open to nobody in particular is open to all
            if not asking.meant and method in SAFE:
                continue
            expected = asking.expects(route, method, project)
            found = _found(client, method, path, asking, route.role is None)
            rows.append(Row(method, route.path, asking.name, expected, found))
    return rows


class _Probe:
    """The application, whose guards end a request when the one of this role, or of a larger one, has let it in."""

    def __init__(self, app: ASGIApp, role: Role | None) -> None:
        self._app, self._role = app, role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["state"] = _State(scope.get("state", {}), self._role)
        await self._app(scope, receive, send)


class _State(dict[str, Any]):
    """What a request carries; the guard notes here that it lets a caller in, and with which role it is content."""

    def __init__(self, given: Mapping[str, Any], role: Role | None) -> None:
        super().__init__(given)
        self._role = role

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if key == "allowed" and self._role is not None and value >= self._role:
            raise HTTPException(_LET_IN)


def _found(client: TestClient, method: str, path: str, asking: _Asking, is_open: bool) -> Expected:
    """The status; `IN` where the guard let the request through, `OPEN` where a route that is open sent nobody away."""
    answer = client.request(method, path, headers=asking.headers())
    if answer.status_code == _LET_IN:
        return IN
    sent_away = answer.headers.get("location", "").startswith("/login?next=")
    sent_away = sent_away or answer.headers.get("www-authenticate") == "Bearer"  # others have guards of their own
    return OPEN if is_open and not sent_away and answer.status_code != 500 else answer.status_code


def _filled(route: Declared, fill: Mapping[str, str]) -> str:
    path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: fill.get(found[1], "0"), route.path)
    return path or "/"


def _callers(keys: _Keys, project: str, other: str) -> Iterator[_Asking]:
    yield _Asking("nobody, a program", None, dict)
    yield _Asking("nobody, a browser", None, lambda: {"Accept": "text/html"}, browser=True)
    yield _Asking("an unknown token", None, lambda: {"Authorization": "Bearer hitl_0"})
    yield _Asking("an unknown session", None, lambda: {"Cookie": f"{PLAIN}=0"})
    places = {"all projects": None, "this project": project, "another project": other}
    for role in Role:
        for words, where in places.items():
            name, roles = f"{role.word} of {words}", {where or EVERY: role}
            yield _Asking(f"{name}, a session", roles, partial(keys.session, name, role, where))
            yield _Asking(f"{name}, a token", roles, partial(keys.token, name, role, where))
            for page, sent in (("without its CSRF token", {"csrf": False}), ("by another page", {"origin": FOREIGN})):
                forged = partial(keys.session, name, role, where, **sent)
                yield _Asking(f"{name}, a session {page}", roles, forged, meant=False)


class _Keys:
    """Users and tokens that are made when they are first needed, and what each sends to say who it is."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._sessions: dict[str, str] = {}
        self._tokens: dict[str, str] = {}

    def session(
        self, name: str, role: Role, project: str | None, csrf: bool = True, origin: str = ORIGIN
    ) -> dict[str, str]:
        if name not in self._sessions:
            self._accounts.add_user(name, PASSWORD, role, project)
            self._sessions[name] = self._accounts.log_in(name, PASSWORD)
        caller = self._accounts.in_session(self._sessions[name])
        assert caller is not None
        shown = {"X-CSRF-Token": caller.csrf} if csrf else {}
        return {"Cookie": f"{PLAIN}={self._sessions[name]}", "Accept": "text/html", "Origin": origin, **shown}

    def token(self, name: str, role: Role, project: str | None) -> dict[str, str]:
        if name not in self._tokens:
            self._tokens[name] = self._accounts.create_token(name, role, project)
        return {"Authorization": f"Bearer {self._tokens[name]}"}
