"""Serve the pages to log in and out, to change one's password, and for admins to grant and revoke access.

These are for browsers. Programs have tokens, and `hitl users` and `hitl tokens` do the same on the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import anyio
import structlog
from fastapi import APIRouter, Depends, Form, HTTPException, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hitl.errors import BadInput
from hitl.service.web.access.accounts import Login, TooManyLogins, WrongLogin
from hitl.service.web.access.caller import Caller
from hitl.service.web.access.cookies import cookie_name, delete_cookie, is_own, is_secure, set_cookie
from hitl.service.web.access.declared import public
from hitl.service.web.access.guard import LOGIN, accounts_of, caller_of, own_path, proxies_of, requires
from hitl.service.web.access.passwords import SHORTEST
from hitl.service.web.access.roles import Role

LARGEST_FORM = 16_384
"""Maximum bytes of a form. /login is open to everybody."""

AT_ONCE = 2
"""Maximum passwords hashed at a time. Each takes 64 MiB, and threads keep pages from waiting for them."""

router = APIRouter(include_in_schema=False, max_body_size=LARGEST_FORM)

_hashing = anyio.CapacityLimiter(AT_ONCE)
_log = structlog.get_logger("hitl.access")

Result = TypeVar("Result")
Text = Annotated[str, Form()]
Viewer = Annotated[Caller, Depends(requires(Role.VIEWER))]
Admin = Annotated[Caller, Depends(requires(Role.ADMIN))]


# -- logging in and out ------------------------------------------------------------------------------------


@router.get(LOGIN)
@public
async def login_form(request: Request, next: Annotated[str, Query()] = "/") -> Response:
    """The form; who is logged in already, and may see anything, goes on."""
    caller = await caller_of(request)
    if caller is not None and caller.highest is not None:
        return _go(own_path(next))
    return _login_page(request, next)


@router.post(LOGIN)
@public
async def login(request: Request, name: Text = "", password: Text = "", next: Text = "/") -> Response:
    """Begin a session; the one before ends."""
    if not is_own(request):
        raise HTTPException(403, "a page of another address sent this request")
    accounts, address = accounts_of(request), proxies_of(request).address(request)
    try:
        begun = await _hashed(accounts.log_in, name, password, address)
    except TooManyLogins as error:
        return _login_page(request, next, str(error), 429, {"Retry-After": f"{error.seconds:.0f}"})
    except WrongLogin as error:
        return _login_page(request, next, str(error), 401)
    await _end_session(request)
    return _with_cookie(request, _go(own_path(next)), begun)


@router.post("/logout")
async def logout(request: Request, caller: Viewer) -> Response:
    """End the session."""
    await _end_session(request)
    response = _go(LOGIN)
    delete_cookie(response, request, proxies_of(request))
    return response


# -- one's own account -------------------------------------------------------------------------------------


@router.get("/account")
def account(request: Request, caller: Viewer) -> Response:
    """What one may do, and the form for another password."""
    return _account_page(request, caller)


@router.post("/account")
async def change_password(
    request: Request, caller: Viewer, old: Text = "", new: Text = "", again: Text = ""
) -> Response:
    """Another password: all sessions end but this one, which begins anew."""
    if caller.how != "session":
        raise HTTPException(403, "this takes a login with a password")
    address = proxies_of(request).address(request)
    try:
        if new != again:
            raise BadInput("the new password was not typed twice in the same way")
        begun = await _hashed(accounts_of(request).change_password, caller.name, old, new, address)
    except BadInput as error:
        return _account_page(request, caller, str(error), 429 if isinstance(error, TooManyLogins) else 400)
    return _with_cookie(request, _go("/account?changed=1"), begun)


# -- users -------------------------------------------------------------------------------------------------


@router.get("/admin/users")
def users(request: Request, caller: Admin) -> Response:
    """All users with their roles."""
    return _users_page(request, caller)


@router.post("/admin/users")
async def add_user(
    request: Request, caller: Admin, name: Text = "", password: Text = "", role: Text = "", project: Text = ""
) -> Response:
    """Add a user; without a password it comes by a proxy."""

    def add() -> None:
        accounts_of(request).add_user(name, password or None, Role.of(role), project or None)
        _log.info("user added", by=caller.name, user=name, role=role, project=project or None)

    return await _changed(request, caller, add, "/admin/users", _users_page)


@router.post("/admin/users/role")
async def set_role(request: Request, caller: Admin, name: Text = "", role: Text = "", project: Text = "") -> Response:
    """Give a user another role in a project or in all; "none" takes it away."""

    def change() -> None:
        _not_oneself(caller, name)
        accounts_of(request).set_role(name, None if role == "none" else Role.of(role), project or None)
        _log.info("role given", by=caller.name, user=name, role=role, project=project or None)

    return await _changed(request, caller, change, "/admin/users", _users_page)


@router.post("/admin/users/password")
async def set_password(request: Request, caller: Admin, name: Text = "", password: Text = "") -> Response:
    """Give a user another password; all its sessions end."""

    def change() -> None:
        _not_oneself(caller, name)
        accounts_of(request).set_password(name, password)
        _log.info("password set", by=caller.name, user=name)

    return await _changed(request, caller, change, "/admin/users", _users_page)


@router.post("/admin/users/remove")
async def remove_user(request: Request, caller: Admin, name: Text = "") -> Response:
    """Remove a user with its sessions."""

    def remove() -> None:
        _not_oneself(caller, name)
        accounts_of(request).remove_user(name)
        _log.info("user removed", by=caller.name, user=name)

    return await _changed(request, caller, remove, "/admin/users", _users_page)


# -- tokens ------------------------------------------------------------------------------------------------


@router.get("/admin/tokens")
def tokens(request: Request, caller: Admin) -> Response:
    """All API tokens, without their secrets."""
    return _tokens_page(request, caller)


@router.post("/admin/tokens")
async def create_token(
    request: Request, caller: Admin, name: Text = "", role: Text = "", project: Text = ""
) -> Response:
    """A new API token, which this answer shows, and no other."""
    try:
        made = await run_in_threadpool(accounts_of(request).create_token, name, Role.of(role), project or None)
    except BadInput as error:
        return _tokens_page(request, caller, str(error), 400)
    _log.info("token made", by=caller.name, token=name, role=role, project=project or None)
    return _tokens_page(request, caller, made=made)


@router.post("/admin/tokens/revoke")
async def revoke_token(request: Request, caller: Admin, token: Text = "") -> Response:
    """End a token."""

    def revoke() -> None:
        accounts_of(request).revoke(token)
        _log.info("token revoked", by=caller.name, token=token)

    return await _changed(request, caller, revoke, "/admin/tokens", _tokens_page)


# -- shared helpers ---------------------------------------------------------------------------------------


async def _hashed(work: Callable[..., Result], *given: Any) -> Result:
    """Run work that hashes a password, a few at a time, in a thread."""
    return await anyio.to_thread.run_sync(partial(work, *given), limiter=_hashing)


async def _changed(
    request: Request, caller: Caller, change: Callable[[], None], then: str, page: Callable[..., Response]
) -> Response:
    """Make a change and redirect to a page. If the change fails, show the page with the reason."""
    try:
        await _hashed(change)
    except BadInput as error:
        return await run_in_threadpool(page, request, caller, str(error), 400)
    return _go(then)


def _not_oneself(caller: Caller, name: str) -> None:
    """Raise if admins change their own account: the last admin could lose the role."""
    if caller.how != "token" and caller.name == name:
        raise BadInput("you cannot do this to yourself; your own password is changed on the page of your account")


async def _end_session(request: Request) -> None:
    secret = request.cookies.get(cookie_name(request, proxies_of(request)))
    if secret:
        await run_in_threadpool(accounts_of(request).log_out, secret)


def _with_cookie(request: Request, response: Response, begun: Login) -> Response:
    set_cookie(response, request, proxies_of(request), begun.secret)
    return response


def _go(path: str) -> Response:
    return _private(RedirectResponse(quote(path, safe="/?&=%#:;,+@!$'()*~[]"), 303))


def _private(response: Response) -> Response:
    """Forbid caches to store the response."""
    response.headers["Cache-Control"] = "no-store"
    return response


def _page(request: Request, name: str, title: str, status: int, **values: Any) -> Response:
    shown = request.app.state.templates.render(f"access/{name}.html.j2", title=title, **values)
    return _private(HTMLResponse(shown, status))


def _login_page(
    request: Request, next: str, error: str = "", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    proxies = proxies_of(request)
    kept = not is_secure(request, proxies) or proxies.scheme(request) == "https"
    page = _page(request, "login", "Log in", status, next=own_path(next), error=error, cookies_are_kept=kept)
    page.headers.update(headers or {})
    return page


def _account_page(request: Request, caller: Caller, error: str = "", status: int = 200) -> Response:
    changed = request.query_params.get("changed") == "1" and not error
    values = {"changed": changed, "shortest": SHORTEST, "may_give_access": caller.role_in(None) is Role.ADMIN}
    return _page(request, "account", caller.name, status, caller=caller, error=error, **values)


def _users_page(request: Request, caller: Caller, error: str = "", status: int = 200) -> Response:
    values = {"users": accounts_of(request).users(), "roles": list(Role), "shortest": SHORTEST}
    return _page(request, "users", "Users", status, caller=caller, error=error, **values)


def _tokens_page(request: Request, caller: Caller, error: str = "", status: int = 200, made: str = "") -> Response:
    values = {"tokens": accounts_of(request).tokens(), "roles": list(Role), "made": made}
    return _page(request, "tokens", "API tokens", status, caller=caller, error=error, **values)
