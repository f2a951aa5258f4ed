"""What a route asks of its caller, as a dependency of FastAPI: `caller: Caller = Depends(requires(Role.VIEWER))`.

    nobody                              401; a browser that asks for a page goes to the login and comes back
    no role in the project of the path  404, in the words of a project that is not there
    too small a role                    403
    an unsafe request by a session      403, unless it has the session's CSRF token and comes from a page of ours

A route whose path has `{project}` asks for a role in that project. Of the others a viewer's is open to all who see any
project, and shows those that they see (`Caller.role_in`). A lead's and an admin's ask for a role in all projects; so
does a viewer's with `everywhere`, for what shows all of them.

Of a request that shows several things a token counts first, then what a trusted proxy says, then the session.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import quote, urlsplit

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from hitl.service.web.access.accounts import TOKEN_PREFIX, Accounts
from hitl.service.web.access.caller import Caller
from hitl.service.web.access.cookies import SAFE, cookie_name, is_own
from hitl.service.web.access.declared import marked
from hitl.service.web.access.proxies import Proxies
from hitl.service.web.access.roles import Role

CSRF_HEADER, CSRF_FIELD = "X-CSRF-Token", "csrf_token"
"""Where an unsafe request shows the CSRF token of its session: one of them."""

LOGIN = "/login"

LONGEST_NEXT = 2_000
"""Characters of an address to come back to."""

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def requires(role: Role, everywhere: bool = False) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency that gives the caller, if it has at least this role. It raises HTTPException as said above.

    `everywhere`: also a viewer's role must be in all projects, where the path names none.
    """

    async def allowed(request: Request) -> Caller:
        caller = await caller_of(request)
        if caller is None:
            raise _nobody(request)
        _require_role(caller, role, request.path_params.get("project"), everywhere)
        if request.method not in SAFE:
            await _require_meant(request, caller)
        request.state.allowed = role
        return caller

    return marked(allowed, role, everywhere)


async def caller_of(request: Request) -> Caller | None:
    """Who sends a request, whatever it may do; None: nobody that is known. Looked up once a request."""
    if not hasattr(request.state, "caller"):
        request.state.caller = await run_in_threadpool(_identified, request)
    found: Caller | None = request.state.caller
    return found


def accounts_of(request: Request) -> Accounts:
    """The accounts of the application."""
    found: Accounts = request.app.state.accounts
    return found


def proxies_of(request: Request) -> Proxies:
    """The proxies that the application trusts: none, unless it says so."""
    found: Proxies = getattr(request.app.state, "proxies", _NO_PROXIES)
    return found


def no_project(project: str) -> HTTPException:
    """What is answered for a project that is not there, and for one that the caller may not see."""
    return HTTPException(404, f"there is no project {project!r}")


def is_plain(text: str) -> bool:
    """Whether a text has no control characters; joiners are letters' own (Persian words, joined emoji)."""
    return text.translate({0x200C: None, 0x200D: None}).isprintable()


def own_path(text: str) -> str:
    """Where to go after the login: the text if it is a path of ours, else the first page."""
    safe = text.startswith("/") and not text.startswith("//") and "\\" not in text  # browsers take \ for /
    return text if safe and is_plain(text) and len(text) <= LONGEST_NEXT else "/"


_NO_PROXIES = Proxies()


def _identified(request: Request) -> Caller | None:
    accounts, proxies = accounts_of(request), proxies_of(request)
    token = _token(request)
    if token is not None:
        return accounts.with_token(token)
    name, secret = proxies.name(request), request.cookies.get(cookie_name(request, proxies))
    found = accounts.by_proxy(name, proxies.role) if name is not None else None
    return accounts.in_session(secret) if found is None and secret else found


def _token(request: Request) -> str | None:
    """What a program shows: `Bearer TOKEN`, or `Basic` with the token as its password (Label Studio can do no other).

    Anything else may be between the browser and a proxy.
    """
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return None
    try:
        password = base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None
    return password if password.startswith(TOKEN_PREFIX) else None


def _nobody(request: Request) -> HTTPException:
    login = f"{LOGIN}?next={quote(own_path(_address(request)), safe='')}"
    asks_for_a_page = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    if proxies_of(request).name(request) is not None:
        return HTTPException(403, "the proxy let you in, but you have no access here; ask an admin for it")
    if request.headers.get("hx-request") == "true":
        shown = own_path(_path_of(request.headers.get("hx-current-url", "/")))
        return HTTPException(401, "log in first", {"HX-Redirect": f"{LOGIN}?next={quote(shown, safe='')}"})
    if asks_for_a_page and "authorization" not in request.headers:
        return HTTPException(303, "log in first", {"Location": login})
    return HTTPException(
        401, "log in first, or send a token: Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"}
    )


def _path_of(url: str) -> str:
    """Path and query of an address; empty for what is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _address(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _require_role(caller: Caller, role: Role, project: str | None, everywhere: bool) -> None:
    in_any = project is None and role is Role.VIEWER and not everywhere
    has = caller.highest if in_any else caller.role_in(project)
    if has is None and project is not None:
        raise no_project(project)
    if has is None or has < role:
        where = "of all projects" if project is None else f"of {project!r}"
        raise HTTPException(403, f"this takes the role {role.word} {where}; you have {has.word if has else 'none'}")


async def _require_meant(request: Request, caller: Caller) -> None:
    """Raise unless a page of ours, or a program, sent this."""
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return  # no browser sends it by itself
    if not is_own(request):
        raise HTTPException(403, "a page of another address sent this request")
    if caller.how == "token":
        return
    shown = request.headers.get(CSRF_HEADER)
    if shown is None and request.headers.get("content-type", "").partition(";")[0].strip().lower() in _FORMS:
        # A route that takes files says so, and FastAPI has read the form already: of others nobody would close them.
        field = (await request.form(max_files=0)).get(CSRF_FIELD)
        shown = field if isinstance(field, str) else None
    if not shown or not caller.csrf or not secrets.compare_digest(shown.encode(), caller.csrf.encode()):
        raise HTTPException(403, "the page is too old for this; load it again")
