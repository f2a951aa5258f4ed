"""Serve the pages to log in and out, to change one's password, and for admins to grant and revoke access.

These are for browsers. Programs have tokens, and `hitl users` and `hitl tokens` do the same on the command line.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import anyio
from fastapi import APIRouter, Depends, Form, HTTPException, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hitl.errors import BadInput
from hitl.service import log
from hitl.service.web.access.accounts import Accounts, TooManyLogins, WrongLogin
from hitl.service.web.access.guard import (
    LOGIN,
    accounts_of,
    caller_of,
    cookie_name,
    is_own,
    is_secure,
    own_path,
    public,
    requires,
    set_cookie,
)
from hitl.service.web.access.logins import SHORTEST
from hitl.service.web.access.roles import Caller, Role

LARGEST_FORM = 16_384
"""Maximum bytes of a form. /login is open to everybody."""
AT_ONCE = 2
"""Maximum number of passwords hashed at a time, because each takes 64 MiB."""

router = APIRouter(include_in_schema=False, max_body_size=LARGEST_FORM)

_hashing = anyio.CapacityLimiter(AT_ONCE)
_log = logging.getLogger("hitl.access")

Result = TypeVar("Result")
Text = Annotated[str, Form()]
Viewer = Annotated[Caller, Depends(requires(Role.VIEWER))]
Admin = Annotated[Caller, Depends(requires(Role.ADMIN))]


@router.get(LOGIN)
@public
async def login_form(request: Request, next: Annotated[str, Query()] = "/") -> Response:
    """Show the form. Callers who are logged in and may see anything go on."""
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
    try:
        begun = await _hashed(accounts_of(request).log_in, name, password, _address(request))
    except TooManyLogins as error:
        page = _login_page(request, next, str(error), 429)
        page.headers["Retry-After"] = str(math.ceil(error.seconds))
        return page
    except WrongLogin as error:
        return _login_page(request, next, str(error), 401)
    request.state.caller = await run_in_threadpool(accounts_of(request).in_session, begun)  # for the log
    return await _with_session(request, own_path(next), begun)


@router.post("/logout")
async def logout(request: Request, caller: Viewer) -> Response:
    """End the session."""
    return await _with_session(request, LOGIN, "")


@router.get("/account")
def account(request: Request, caller: Viewer) -> Response:
    """Show the caller's roles, and the form for another password."""
    return _account_page(request, caller)


@router.post("/account")
async def change_password(
    request: Request, caller: Viewer, old: Text = "", new: Text = "", again: Text = ""
) -> Response:
    """Change the password. All sessions end, and this browser begins a new one."""
    if caller.how != "session":
        raise HTTPException(403, "this takes a login with a password")
    try:
        if new != again:
            raise BadInput("the new password was not typed twice in the same way")
        begun = await _hashed(accounts_of(request).change_password, caller.name, old, new, _address(request))
    except BadInput as error:
        return _account_page(request, caller, str(error), 429 if isinstance(error, TooManyLogins) else 400)
    return await _with_session(request, "/account?changed=1", begun)


@router.get("/admin/users")
def users(request: Request, caller: Admin) -> Response:
    """Show all users with their roles."""
    return _users_page(request, caller)


@router.post("/admin/users")
async def add_user(
    request: Request, caller: Admin, name: Text = "", password: Text = "", role: Text = "", project: Text = ""
) -> Response:
    """Add a user. Without a password it logs in by a proxy."""

    def add(accounts: Accounts) -> None:
        accounts.add_user(name, password or None, Role.of(role), project or None)

    return await _change(request, caller, "user added", add, user=name, role=role, project=project or None)


@router.post("/admin/users/role")
async def set_role(request: Request, caller: Admin, name: Text = "", role: Text = "", project: Text = "") -> Response:
    """Set a user's role in a project or in all; "none" takes it away."""

    def change(accounts: Accounts) -> None:
        accounts.set_role(name, None if role == "none" else Role.of(role), project or None)

    return await _change(request, caller, "role given", change, user=name, role=role, project=project or None)


@router.post("/admin/users/password")
async def set_password(request: Request, caller: Admin, name: Text = "", password: Text = "") -> Response:
    """Change a user's password; all its sessions end."""
    return await _change(request, caller, "password set", lambda each: each.set_password(name, password), user=name)


@router.post("/admin/users/remove")
async def remove_user(request: Request, caller: Admin, name: Text = "") -> Response:
    """Remove a user with its sessions."""
    return await _change(request, caller, "user removed", lambda each: each.remove_user(name), user=name)


@router.get("/admin/tokens")
def tokens(request: Request, caller: Admin) -> Response:
    """Show all API tokens, without their secrets."""
    return _tokens_page(request, caller)


@router.post("/admin/tokens")
async def create_token(
    request: Request, caller: Admin, name: Text = "", role: Text = "", project: Text = ""
) -> Response:
    """Create an API token. Only this response shows it."""
    try:
        made = await run_in_threadpool(accounts_of(request).create_token, name, Role.of(role), project or None)
    except BadInput as error:
        return _tokens_page(request, caller, str(error), 400)
    log.event(_log, "token made", by=caller.name, token=name, role=role, project=project or None)
    return _tokens_page(request, caller, made=made)


@router.post("/admin/tokens/revoke")
async def revoke_token(request: Request, caller: Admin, token: Text = "") -> Response:
    """Revoke a token."""
    return await _change(request, caller, "token revoked", lambda each: each.revoke(token), token=token)


async def _hashed(work: Callable[..., Result], *given: Any) -> Result:
    """Run work that hashes a password in a thread, at most `AT_ONCE` at a time."""
    return await anyio.to_thread.run_sync(partial(work, *given), limiter=_hashing)


async def _change(
    request: Request, caller: Caller, event: str, change: Callable[[Accounts], None], **logged: str | None
) -> Response:
    """Make a change, log it, and show the page of the form again, with the reason if the change failed.

    Admins cannot change their own account, because the last admin could lose the role.
    """
    page, path = (_users_page, "/admin/users") if "user" in logged else (_tokens_page, "/admin/tokens")
    try:
        if event != "user added" and caller.how != "token" and caller.name == logged.get("user"):
            raise BadInput("you cannot do this to yourself; your own password is changed on the page of your account")
        await _hashed(change, accounts_of(request))
    except BadInput as error:
        return await run_in_threadpool(page, request, caller, str(error), 400)
    log.event(_log, event, logging.INFO, by=caller.name, **logged)
    return _go(path)


async def _with_session(request: Request, path: str, secret: str) -> Response:
    """End the browser's session, set the cookie of the new one (empty `secret`: no session), and go to a page."""
    former = request.cookies.get(cookie_name(request))
    if former:
        await run_in_threadpool(accounts_of(request).log_out, former)
    response = _go(path)
    set_cookie(response, request, secret)
    return response


def _address(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _go(path: str) -> Response:
    return RedirectResponse(quote(path, safe="/?&=%#:;,+@!$'()*~[]"), 303, {"Cache-Control": "no-store"})


def _page(request: Request, name: str, title: str, status: int, **values: Any) -> Response:
    html = request.app.state.templates.render(f"access/{name}.html.j2", title=title, **values)
    return HTMLResponse(html, status, {"Cache-Control": "no-store"})


def _login_page(request: Request, next: str, error: str = "", status: int = 200) -> Response:
    stored = not is_secure(request) or request.url.scheme == "https"
    return _page(request, "login", "Log in", status, next=own_path(next), error=error, cookies_are_kept=stored)


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
