"""One process that serves: projects, accounts, scheduler and application put together, until a signal."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import structlog
import uvicorn
from fastapi import APIRouter

from hitl.errors import BadSettings
from hitl.events.delivery import Couriers
from hitl.service.scheduling.scheduler import Project, Scheduler, projects_of
from hitl.service.web import backend
from hitl.service.web.access import Accounts, Proxies, Role, must_have_credentials, public, requires
from hitl.service.web.app import Parts, application
from hitl.service.web.live import Live
from hitl.service.web.live.metrics import LiveFigures
from hitl.service.web.pages.deliveries import EventFigures
from hitl.service.web.projects import Projects

Say = Callable[[str], None]
"""Tells a line to whoever started it."""

FIRST = "admin"
"""The user that is made where there is none and this machine alone can log in."""

LEAST_SECONDS = 20
"""Seconds that open requests have to end when the service stops."""


TOLD = ("due", "new", "labels", "done", "items", "asks", "operations", "changed", "seconds", "stop", "error", "message")
"""What the log says of an event of the scheduler; the page of runs says the rest."""


@dataclass(frozen=True)
class Wanted:
    """What `hitl serve` was asked for; see its help."""

    configs: list[Path]
    host: str
    port: int
    access: str | None = None
    scheduler: bool = True
    proxies: tuple[str, ...] = ()
    proxy_header: str = ""
    proxy_role: str | None = None
    as_json: bool = False


def serve(wanted: Wanted, say: Say) -> None:
    """Serve until SIGTERM or SIGINT. Raises BadSettings where the service would be open to everybody."""
    log(wanted.as_json)
    projects = Projects(wanted.configs, backend.prepare)
    try:
        trusted = Proxies.of(wanted.proxies, wanted.proxy_header, wanted.proxy_role)
        accounts = Accounts(wanted.access or next(iter(projects.values())).store.database)
        must_have_credentials(wanted.host, accounts, trusted)
        say(f"serving {', '.join(projects)} at http://{_shown(wanted.host)}:{wanted.port}")
        if not accounts.anybody():
            say(_first_user(accounts))
        scheduler = _scheduler(wanted) if wanted.scheduler else None
        live = Live(projects, scheduler)
        couriers = Couriers([(one.settings, one.store) for one in projects.values()])
        beside: list[Couriers | Scheduler] = [couriers, *([] if scheduler is None else [scheduler])]
        parts = Parts(
            projects,
            accounts,
            routers=[live.router(requires(Role.VIEWER), _secret(projects), public), _backend(projects, accounts)],
            collectors=[LiveFigures(live), EventFigures(projects)],
            trouble=lambda: _trouble(live, scheduler),
            starts=[live.start, *(each.start for each in beside)],
            stops=[live.stop, *(each.stop for each in beside)],
        )
        app = application(parts)
        app.state.proxies = trusted
    except BaseException:
        projects.stop()
        raise
    config = uvicorn.Config(
        app,
        host=wanted.host,
        port=wanted.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=LEAST_SECONDS,
    )
    _Server(config, live.broadcast.close).run()


class _Server(uvicorn.Server):
    """Ends the streams of events when it is told to stop: they would keep it open."""

    def __init__(self, config: uvicorn.Config, close: Callable[[], object]) -> None:
        super().__init__(config)
        self._close = close

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal; what it interrupts may hold a lock."""
        threading.Thread(target=self._close, daemon=True).start()
        super().handle_exit(sig, frame)


def log(as_json: bool) -> None:
    """One line an event on standard error: JSON, or words."""
    shown: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            shown,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(_standard_error()),
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _standard_error() -> Any:
    import sys

    return sys.stderr


def _first_user(accounts: Accounts) -> str:
    """Make a user to log in with, and say how; the password is shown here and never again."""
    password = secrets.token_urlsafe(12)
    accounts.add_user(FIRST, password, Role.ADMIN)
    return (
        f"there is no user yet: log in as {FIRST!r} with the password {password}; it is shown once "
        f"(`hitl users password {FIRST}` sets another)"
    )


def _scheduler(wanted: Wanted) -> Scheduler | None:
    """What runs the cycles of the projects that say when; None where none does."""
    found: list[Project] = []
    for config in wanted.configs:
        try:
            found += projects_of([config])
        except BadSettings as error:
            if "nothing says when to run" not in str(error):
                raise
    if not found:
        return None
    told = structlog.get_logger("hitl.schedule")

    def tell(event: str, project: str, said: Mapping[str, Any]) -> None:
        told.info(event, project=project, **{name: said[name] for name in TOLD if said.get(name) is not None})

    return Scheduler(found, tell, listens=False)


def _secret(projects: Projects) -> str | None:
    """What the platform's webhooks carry; None: none is taken."""
    found = [one.settings.webhook_secret for one in projects.values() if one.settings.webhook_secret is not None]
    return found[0].get_secret_value() if found else None


def _backend(projects: Projects, accounts: Accounts) -> APIRouter:
    """Label Studio's model backend, whose password is an API token of the project."""

    def allowed(user: str, password: str, project: str) -> bool:
        caller = accounts.with_token(password)
        return caller is not None and caller.role_in(project) is not None

    return backend.router(projects, allowed)


def _trouble(live: Live, scheduler: Scheduler | None) -> Mapping[str, object] | None:
    if not live.alive:
        return {"status": "a thread that follows a project has ended"}
    return None if scheduler is None else scheduler.trouble()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
