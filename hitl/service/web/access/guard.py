"""Check what a route requires of its caller: `caller: Caller = Depends(requires(Role.VIEWER))`.

    no caller                           401; a browser that asks for a page is sent to the login and back
    no role in the project of the path  404, with the same message as for a project that does not exist
    too low a role                      403
    an unsafe request by a session      403, unless it has the session's CSRF token and comes from one of our pages

A route with `{project}` in its path requires a role in that project. Among the others, a viewer's route is open to
everyone who sees any project, and shows only those projects (`Caller.role_in`). Routes of leads and admins require the
role in all projects. So does a viewer's route with `everywhere`, which shows all projects.

If a request has several credentials, a token comes first, then a trusted proxy's header, then the session.
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
"""Header and form field for the CSRF token of an unsafe request; it must have one of them."""

LOGIN = "/login"

LONGEST_NEXT = 2_000
"""Maximum characters of an address to return to."""

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def requires(role: Role, everywhere: bool = False) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that provides the caller if it has at least this role, and raises HTTPException otherwise.

    `everywhere`: if the path names no project, a viewer's role must also be in all projects.
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
    """Return the sender of a request regardless of permissions, or None if unknown. Looked up once per request."""
    if not hasattr(request.state, "caller"):
        request.state.caller = await run_in_threadpool(_identified, request)
    found: Caller | None = request.state.caller
    return found


def accounts_of(request: Request) -> Accounts:
    """Return the accounts of the application."""
    found: Accounts = request.app.state.accounts
    return found


def proxies_of(request: Request) -> Proxies:
    """Return the proxies that the application trusts; none by default."""
    found: Proxies = getattr(request.app.state, "proxies", _NO_PROXIES)
    return found


def no_project(project: str) -> HTTPException:
    """Return the error for a project that does not exist, or that the caller may not see."""
    return HTTPException(404, f"there is no project {project!r}")


def is_plain(text: str) -> bool:
    """Return True if a text has no control characters. Joiners are allowed (Persian words, joined emoji)."""
    return text.translate({0x200C: None, 0x200D: None}).isprintable()


def own_path(text: str) -> str:
    """Return the path to go to after login: the text if it is a path of ours, else the first page."""
    safe = text.startswith("/") and not text.startswith("//") and "\\" not in text  # browsers read \ as /
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
    """Return a program's token: `Bearer TOKEN`, or `Basic` with the token as password, as Label Studio sends it.

    Ignore anything else, which may be meant for a proxy in between.
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
    """Return the path and query of a URL; empty if it is invalid."""
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
    """Raise unless the request was sent by one of our pages, or by a program."""
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return  # browsers never send it on their own
    if not is_own(request):
        raise HTTPException(403, "a page of another address sent this request")
    if caller.how == "token":
        return
    shown = request.headers.get(CSRF_HEADER)
    if shown is None and request.headers.get("content-type", "").partition(";")[0].strip().lower() in _FORMS:
        # FastAPI has already read the form of a route that takes files. Elsewhere nothing would close uploaded files.
        field = (await request.form(max_files=0)).get(CSRF_FIELD)
        shown = field if isinstance(field, str) else None
    if not shown or not caller.csrf or not secrets.compare_digest(shown.encode(), caller.csrf.encode()):
        raise HTTPException(403, "the page is too old for this; load it again")
