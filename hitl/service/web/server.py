"""Serve projects: pages, API, webhooks, model backend, and the loops that pull and do runs, in one process."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI

import hitl
from hitl.errors import BadSettings, HitlError
from hitl.service import log
from hitl.service.door import bounds, listen
from hitl.service.loops import Loops
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.guard import is_loopback
from hitl.service.web.access.hosts import ANY, own_names
from hitl.service.web.access.proxies import NO_PROXIES, Proxies
from hitl.service.web.access.roles import Role
from hitl.service.web.app import application
from hitl.service.web.projects import Projects

FIRST = "admin"  # name of the user that is created if there is no user and no token yet

_log = logging.getLogger("hitl.serve")

LEAST_SECONDS = 20  # seconds that open requests get to finish when the service stops


def serve(
    configs: Sequence[Path],
    host: str,
    port: int,
    say: Callable[[Mapping[str, str], str], None],
    *,
    access: str | None = None,
    scheduler: bool = True,
    proxies: Proxies = NO_PROXIES,
) -> None:
    """Serve until SIGTERM or SIGINT. Raise BadSettings if the service would be open to everybody, or the port is taken.

    See the help of `hitl serve` for the arguments; `say` prints data or a line for the person who started the service.
    """
    projects = Projects(configs)
    try:
        accounts = Accounts(access or next(iter(projects.values())).store.database)
        require_credentials(host, accounts, proxies)
        with listen(host, port, "--address") as listening:
            url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
            say(
                {"event": "serving", "url": url, "version": hitl.__version__}, f"serving {', '.join(projects)} at {url}"
            )
            if not accounts.anyone():
                say(*_first_user(accounts))
            for project in projects.values():
                if scheduler and project.schedule.webhook is not None:
                    where = f"{url}/webhook/{project.name}"
                    log.event(_log, "schedule.webhook is for `hitl schedule`; webhooks arrive here", webhook=where)
            names = own_names((project.settings.serve for project in projects.values()), host, proxies)
            app = service(projects, accounts, proxies, scheduler=scheduler, names=names)
            server = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=LEAST_SECONDS, **bounds()))
            server.run([listening])
        if not server.started:
            raise HitlError("serve: it could not start; the lines before this one say why")
    finally:
        projects.stop()


def service(
    projects: Projects,
    accounts: Accounts,
    proxies: Proxies = NO_PROXIES,
    *,
    scheduler: bool = True,
    names: frozenset[str] = frozenset({ANY}),
) -> FastAPI:
    """Build the application of `hitl serve`, with the projects' loops; `scheduler`: the loops also do the runs."""
    loops = Loops(tuple(projects.values()), log.run, runs=scheduler, follows=True, pulled=projects.wake)
    for one, loop in zip(projects.values(), loops.loops, strict=True):
        one.loop = loop
    return application(projects, accounts, proxies, loops, names)


def require_credentials(host: str, accounts: Accounts, proxies: Proxies = NO_PROXIES) -> None:
    """Raise BadSettings if others can reach the host and there is no user, token or proxy login."""
    if not (is_loopback(host) or proxies.header or accounts.anyone()):
        raise BadSettings(
            f"serve: others can reach {host or 'every address'}, and there is no user and no token yet. Make one with "
            "`hitl users add NAME --role admin`, or listen at 127.0.0.1"
        )


def _first_user(accounts: Accounts) -> tuple[dict[str, str], str]:
    """Create a user to log in with, and return how. The password is shown only here."""
    password = secrets.token_urlsafe(12)
    accounts.add_user(FIRST, password, Role.ADMIN)
    return {"event": "first user", "user": FIRST, "password": password}, (
        f"there is no user yet: log in as {FIRST!r} with the password {password}; it is shown once "
        f"(`hitl users password {FIRST}` sets another)"
    )
