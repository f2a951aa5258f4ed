"""Check what a route requires of its caller: `caller: Caller = Depends(requires(Role.VIEWER))`.

    no caller                           401; a browser is sent to the login, and back to its page
    no role in the project of the path  404, with the same message as for a project that does not exist
    too low a role                      403
    an unsafe request with another body
    than a form                         415
    an unsafe request by a session      403, unless it has the session's CSRF token and comes from one of our pages

A route with `{project}` in its path requires a role in that project. Without `{project}`, a viewer's route is open to
everyone who may see any project, and shows only those projects (`Caller.role_in`). Routes of leads and admins require
the role in all projects. So does a viewer's route with `everywhere`, which shows all projects. Routes that require
nothing are marked as `public`. `declared` rejects routes that neither require a role nor are public.

If a request has several credentials, a token comes first, then a trusted proxy's header, then the session.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from fastapi import FastAPI, HTTPException, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hitl.errors import BadSettings
from hitl.formatting import short
from hitl.service.web.access.accounts import LIFETIME, TOKEN_PREFIX, Accounts
from hitl.service.web.access.roles import Caller, Role

CSRF_HEADER, CSRF_FIELD = "X-CSRF-Token", "csrf_token"
"""Header and form field for the CSRF token. An unsafe request must have one of them."""
PLAIN, SECURE = "hitl-session", "__Host-hitl-session"
"""Names of the session cookie: PLAIN for http on this machine, SECURE for all else. Browsers accept SECURE only over
https.
"""
SAFE = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
LOGIN = "/login"
LONGEST_NEXT = 2_000  # maximum characters of an address to return to

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_PUBLIC, _REQUIRED = "hitl_public", "hitl_required"

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


# -- declarations ------------------------------------------------------------------------------------------


def public(endpoint: Endpoint) -> Endpoint:
    """Mark an endpoint as open to everybody."""
    setattr(endpoint, _PUBLIC, True)
    return endpoint


def marked(dependency: Endpoint, role: Role, everywhere: bool = False) -> Endpoint:
    """Mark a dependency that requires at least this role; `everywhere`: in all projects."""
    setattr(dependency, _REQUIRED, (role, everywhere or role > Role.VIEWER))
    return dependency


@dataclass(frozen=True, slots=True)
class Declared:
    """Declared access of a route. `role` None: open to everybody.

    Attributes:
        path: as declared, with parameters such as `{project}`.
        everywhere: if the path names no project, the role is required in all projects instead of in any.
    """

    path: str
    methods: tuple[str, ...]
    role: Role | None
    everywhere: bool = False

    @property
    def of_project(self) -> bool:
        """True if the role is required in the project that the path names."""
        return "{project}" in self.path


def declared(app: FastAPI) -> list[Declared]:
    """Return the access of every route. Raise BadSettings unless each has either `requires(...)` or `@public`."""
    routes, wrong = [], []
    for route in iter_route_contexts(app.routes):
        path, is_public = route.path or "", getattr(route.endpoint, _PUBLIC, False)
        if not isinstance(route.original_route, APIRoute):
            wrong.append(f"{path}: it is no route of FastAPI, so that nothing can be required of its callers")
            continue
        required = list(_required(route.dependant))
        if bool(required) == is_public:
            both = "has both requires(...) and @public" if is_public else "has neither requires(...) nor @public"
            wrong.append(f"{path}: {both}; expected one of them")
            continue
        role, everywhere = max((role for role, _ in required), default=None), any(each for _, each in required)
        one = Declared(path, tuple(sorted(route.methods or ())), role, everywhere)
        if role is not None and not one.of_project and not everywhere and _names_project(route.dependant):
            wrong.append(f"{path}: its project is no part of the path, so that no role in it is asked for")
        routes.append(one)
    if wrong:
        raise BadSettings("access: " + "; ".join(wrong))
    return routes


def _required(dependant: Dependant) -> Iterator[tuple[Role, bool]]:
    """Yield (role, True if in all projects) for each role that a route's dependencies require, recursively."""
    for inner in dependant.dependencies:
        if hasattr(inner.call, _REQUIRED):
            yield getattr(inner.call, _REQUIRED)
        yield from _required(inner)


def _names_project(dependant: Dependant) -> bool:
    given = (*dependant.query_params, *dependant.body_params, *dependant.header_params, *dependant.cookie_params)
    return any(field.alias == "project" for field in given)


# -- callers -----------------------------------------------------------------------------------------------


def requires(role: Role, everywhere: bool = False) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that provides the caller if it has at least this role, and raises HTTPException otherwise.

    `everywhere`: if the path names no project, even a viewer's role must be in all projects.
    """

    async def allowed(request: Request) -> Caller:
        caller = await caller_of(request)
        if caller is None:
            raise _nobody(request)
        _require_role(caller, role, request.path_params.get("project"), everywhere)
        if request.method not in SAFE:
            await _require_meant(request, caller)
            if (kind := _content_type(request)) not in ("", *_FORMS):  # fields in JSON would count as not given
                raise HTTPException(415, f"expected the fields of a form, as {_FORMS[0]}, got {short(kind)}")
        request.state.allowed = role
        return caller

    return marked(allowed, role, everywhere)


async def caller_of(request: Request) -> Caller | None:
    """Return the sender of a request, whatever their permissions, or None if unknown. Looked up once per request."""
    if not hasattr(request.state, "caller"):
        request.state.caller = await run_in_threadpool(_identified, request)
    caller: Caller | None = request.state.caller
    return caller


def accounts_of(request: Request) -> Accounts:
    """Return the accounts of the application."""
    accounts: Accounts = request.app.state.accounts
    return accounts


def is_plain(text: str) -> bool:
    """Return True if a text has no control characters. Joiners are allowed (Persian words, joined emoji)."""
    return text.translate({0x200C: None, 0x200D: None}).isprintable()


def own_path(text: str) -> str:
    """Return the path to go to after login: the text if it is a path on this site, else "/"."""
    safe = text.startswith("/") and not text.startswith("//") and "\\" not in text  # browsers read \ as /
    return text if safe and is_plain(text) and len(text) <= LONGEST_NEXT else "/"


def _proxy_user(request: Request) -> str | None:
    return getattr(request.state, "proxy_user", None)


def _identified(request: Request) -> Caller | None:
    accounts, name, secret = accounts_of(request), _proxy_user(request), request.cookies.get(cookie_name(request))
    token = _token(request)
    if token is not None:
        return accounts.with_token(token)
    caller = None if name is None else accounts.by_proxy(name, request.app.state.proxies.role)
    return accounts.in_session(secret) if caller is None and secret else caller


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
    if _proxy_user(request) is not None:
        return HTTPException(403, "the proxy let you in, but you have no access here; ask an admin for it")
    if request.headers.get("hx-request") == "true":
        page = _path_of(request.headers.get("hx-current-url", "/"))
        return HTTPException(401, "log in first", {"HX-Redirect": _login(page)})
    if "text/html" in request.headers.get("accept", "") and "authorization" not in request.headers:
        page = str(request.url) if request.method in SAFE else request.headers.get("referer", "/")  # of the form
        return HTTPException(303, "log in first", {"Location": _login(_path_of(page))})
    return HTTPException(
        401, "log in first, or send a token: Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"}
    )


def _login(page: str) -> str:
    return f"{LOGIN}?next={quote(own_path(page), safe='')}"


def _path_of(url: str) -> str:
    parts = _parts(url)
    return "" if parts is None else parts.path + (f"?{parts.query}" if parts.query else "")


def _require_role(caller: Caller, role: Role, project: str | None, everywhere: bool) -> None:
    in_any = project is None and role is Role.VIEWER and not everywhere
    has = caller.highest if in_any else caller.role_in(project)
    if has is None and project is not None:
        raise HTTPException(404, f"there is no project {project!r}")  # as for one that does not exist
    if has is None or has < role:
        where = "of all projects" if project is None else f"of {project!r}"
        raise HTTPException(403, f"this takes the role {role.word} {where}; you have {has.word if has else 'none'}")


# -- cookies and requests by other sites -------------------------------------------------------------------
# A browser sends the cookie with every request, including those made by other sites' pages. An unsafe request must
# therefore include the session's CSRF token, which other sites cannot read.


async def _require_meant(request: Request, caller: Caller) -> None:
    """Raise unless the request was sent by one of our pages, or by a program."""
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return  # browsers never send it on their own
    if not is_own(request):
        raise HTTPException(403, "a page of another address sent this request")
    if caller.how == "token":
        return
    shown = request.headers.get(CSRF_HEADER)
    if shown is None and _content_type(request) in _FORMS:
        # max_files=0, because nothing would close uploaded files. For routes that take files, FastAPI has already read
        # the form.
        field = (await request.form(max_files=0)).get(CSRF_FIELD)
        shown = field if isinstance(field, str) else None
    if not shown or not caller.csrf or not secrets.compare_digest(shown.encode(), caller.csrf.encode()):
        raise HTTPException(403, "the page is too old for this; load it again")


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_own(request: Request) -> bool:
    """Return True if the request comes from one of our pages, or not from a page, according to the browser.

    Browsers report this in Sec-Fetch-Site, over https and on this machine. Otherwise, the page's origin is compared
    with the host, but not its scheme because a proxy may have terminated https.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site in ("same-origin", "none")
    if origin is None:
        return True
    page, host = _parts(origin), _parts(f"//{request.headers.get('host', '')}")
    if page is None or host is None or page.hostname is None:
        return False
    usual = {"http": 80, "https": 443}.get(page.scheme)
    return (page.hostname, page.port or usual) == (host.hostname, host.port or usual)


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return None
    return parts


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the host."""
    if host.casefold() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_secure(request: Request) -> bool:
    """Return True if the cookie is restricted to https: always, except for a browser on this machine using http."""
    return request.url.scheme == "https" or not is_loopback(request.url.hostname or "")


def cookie_name(request: Request) -> str:
    """Return the name of the cookie for this request."""
    return SECURE if is_secure(request) else PLAIN


def set_cookie(response: Response, request: Request, secret: str) -> None:
    """Store the session in the browser, or delete it if the secret is empty."""
    response.set_cookie(
        cookie_name(request), secret, max_age=int(LIFETIME) if secret else 0, secure=is_secure(request),
        httponly=True, samesite="lax",
    )  # fmt: skip
