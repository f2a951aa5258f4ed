"""Serve projects: pages, API, webhooks, model backend, and the loops that pull and do runs, in one process."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from hitl.errors import BadSettings
from hitl.service.door import LineLimit, bounds
from hitl.service.loops import Loops
from hitl.service.web.access.accounts import Accounts
from hitl.service.web.access.guard import is_loopback
from hitl.service.web.access.hosts import ANY, own_names
from hitl.service.web.access.proxies import NO_PROXIES, Proxies
from hitl.service.web.access.roles import Role
from hitl.service.web.app import application
from hitl.service.web.projects import Projects

FIRST = "admin"  # name of the user that is created if there is no user and no token yet

LEAST_SECONDS = 20  # seconds that open requests get to finish when the service stops

LINES_PER_SECOND = 10.0  # lines of one kind in the log, such as requests; more may come in a burst

LOGGED = (
    "due",
    "new",
    "labels",
    "done",
    "items",
    "asks",
    "operations",
    "changed",
    "seconds",
    "stop",
    "error",
    "message",
)
"""Metrics of a run that go to the log. The page of runs has the rest."""


def serve(
    configs: Sequence[Path],
    host: str,
    port: int,
    say: Callable[[str], None],
    *,
    access: str | None = None,
    scheduler: bool = True,
    proxies: Proxies = NO_PROXIES,
    as_json: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT. Raise BadSettings if the service would be open to everybody.

    See the help of `hitl serve` for the arguments; `say` prints a line for the person who started the service.
    """
    log(as_json)
    projects = Projects(configs)
    try:
        accounts = Accounts(access or next(iter(projects.values())).store.database)
        require_credentials(host, accounts, proxies)
        say(f"serving {', '.join(projects)} at http://{f'[{host}]' if ':' in host else host}:{port}")
        if not accounts.anybody():
            say(_first_user(accounts))
        names = own_names((project.settings.serve for project in projects.values()), host, proxies)
        app = service(projects, accounts, proxies, scheduler=scheduler, names=names)
        uvicorn.run(app, host=host, port=port, timeout_graceful_shutdown=LEAST_SECONDS, **bounds())
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
    loops = Loops(tuple(projects.values()), _log_run, runs=scheduler, follows=True, pulled=projects.wake)
    for one, loop in zip(projects.values(), loops.loops, strict=True):
        one.loop = loop
    return application(projects, accounts, proxies, loops, names)


def require_credentials(host: str, accounts: Accounts, proxies: Proxies = NO_PROXIES) -> None:
    """Raise BadSettings if others can reach the host and there is no user, token or proxy login."""
    if not (is_loopback(host) or proxies.header or accounts.anybody()):
        raise BadSettings(
            f"serve: others can reach {host or 'every address'}, and there is no user and no token yet. Make one with "
            "`hitl users add NAME --role admin`, or listen at 127.0.0.1"
        )


def log(as_json: bool) -> None:
    """Configure the log: one line per event on standard error, as JSON or as text."""
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            LineLimit(LINES_PER_SECOND),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _log_run(event: str, project: str, figures: Mapping[str, Any]) -> None:
    logged = {name: figures[name] for name in LOGGED if figures.get(name) is not None}
    structlog.get_logger("hitl.schedule").info(event, project=project, **logged)


def _first_user(accounts: Accounts) -> str:
    """Create a user to log in with, and return how. The password is shown only here."""
    password = secrets.token_urlsafe(12)
    accounts.add_user(FIRST, password, Role.ADMIN)
    return (
        f"there is no user yet: log in as {FIRST!r} with the password {password}; it is shown once "
        f"(`hitl users password {FIRST}` sets another)"
    )
