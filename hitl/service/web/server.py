"""A process that serves: projects, accounts, scheduler and application put together, until a signal; or several."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import structlog
import uvicorn
from fastapi import APIRouter

from hitl.errors import BadSettings, HitlError
from hitl.events.delivery import Couriers
from hitl.service.scheduling.scheduler import Project, Scheduler, projects_of
from hitl.service.web import backend
from hitl.service.web.access import Accounts, Proxies, Role, must_have_credentials, public, requires
from hitl.service.web.app import Parts, application
from hitl.service.web.crew import Crew
from hitl.service.web.live import Live
from hitl.service.web.live.metrics import LiveFigures
from hitl.service.web.pages.deliveries import EventFigures
from hitl.service.web.projects import Projects
from hitl.service.web.workers import Place, Workers, listening

Say = Callable[[str], None]
"""Tells a line to whoever started it."""

FIRST = "admin"
"""The user that is made where there is none and this machine alone can log in."""

LEAST_SECONDS = 20
"""Seconds that open requests have to end when the service stops."""


SECONDS_TO_LOAD = 300.0
"""Seconds after which a worker that was started again accepts in any case."""

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
    workers: int = 1


def serve(wanted: Wanted, say: Say) -> None:
    """Serve until SIGTERM or SIGINT. Raises BadSettings where the service would be open to everybody."""
    log(wanted.as_json)
    projects, listener = Projects(wanted.configs, backend.prepare), None
    try:
        accounts = _accounts(wanted, projects)
        must_have_credentials(wanted.host, accounts, _proxies(wanted))
        if wanted.workers > 1:
            _one_database(projects)
            listener = listening(wanted.host, wanted.port)
        say(f"serving {', '.join(projects)} at http://{_shown(wanted.host)}:{wanted.port}")
        if not accounts.anybody():
            say(_first_user(accounts))
        if listener is None:
            _serve(wanted, projects, accounts)
            return
    finally:
        projects.stop()
    Workers(_work, wanted, wanted.workers, listener).run()


def _work(wanted: Wanted, place: Place) -> None:
    """One of several processes."""
    log(wanted.as_json, place.number)
    try:
        projects = Projects(wanted.configs, backend.prepare)
        try:
            _serve(wanted, projects, _accounts(wanted, projects), place)
        finally:
            projects.stop()
    except HitlError as error:  # a database that does not answer, for one: it is tried again
        structlog.get_logger("hitl.serve").error("worker", error=type(error).__name__, message=str(error))
        raise SystemExit(1) from None


def _serve(wanted: Wanted, projects: Projects, accounts: Accounts, place: Place | None = None) -> None:
    """Serve with this process, which is one of several where it has a place among them."""
    scheduler = _scheduler(wanted) if wanted.scheduler else None
    couriers = Couriers([(one.settings, one.store) for one in projects.values()])
    crew = Crew([couriers, *([] if scheduler is None else [scheduler])])
    if place is not None:
        crew.join(place.number, next(iter(projects.values())).store.database, min(projects))
    live = Live(projects, scheduler, crew.lead)
    crew.heard = live.heard
    parts = Parts(
        projects,
        accounts,
        routers=[live.router(requires(Role.VIEWER), _secret(projects), public), _backend(projects, accounts)],
        collectors=[LiveFigures(live, None if place is None else place.number), EventFigures(projects)],
        trouble=lambda: _trouble(live, scheduler if crew.leads else None),
        starts=[live.start, crew.start, lambda: _wait(projects, server, place)],
        stops=[live.stop, crew.stop],
    )
    app = application(parts)
    app.state.proxies = _proxies(wanted)
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
    server = _Server(config, live.broadcast.close)
    crew.end = server.end
    server.run(None if place is None else [place.listener])


def _wait(projects: Projects, server: _Server, place: Place | None) -> None:
    """Accept nothing before there is something to show, where others do meanwhile."""
    until = time.monotonic() + SECONDS_TO_LOAD
    while place is not None and place.again and time.monotonic() < until and not server.should_exit:
        if all(one.snapshot is not None for one in projects.values()):
            return
        time.sleep(0.05)


def _accounts(wanted: Wanted, projects: Projects) -> Accounts:
    return Accounts(wanted.access or next(iter(projects.values())).store.database)


def _proxies(wanted: Wanted) -> Proxies:
    return Proxies.of(wanted.proxies, wanted.proxy_header, wanted.proxy_role)


def _one_database(projects: Projects) -> None:
    """Raise BadSettings unless several processes can serve these."""
    found = {one.store.database.name: one.store.database for one in projects.values()}
    if len(found) > 1 or not all(one.postgres for one in found.values()):
        raise BadSettings(
            f"--workers: found stores in {', '.join(found)}; expected one PostgreSQL database for all projects: set "
            'store = "postgresql://..." in hitl.toml, or serve with one worker'
        )


class _Server(uvicorn.Server):
    """Ends the streams of events when it is told to stop: they would keep it open."""

    def __init__(self, config: uvicorn.Config, close: Callable[[], object]) -> None:
        super().__init__(config)
        self._close = close

    def end(self) -> None:
        """End, as after a signal."""
        self._close()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal; what it interrupts may hold a lock."""
        threading.Thread(target=self._close, daemon=True).start()
        super().handle_exit(sig, frame)


def log(as_json: bool, worker: int | None = None) -> None:
    """One line an event on standard error: JSON, or words; with the number of the worker, where there are several."""
    shown: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            partial(_by, worker),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            shown,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # a line and its end in one write: between two, a line of another worker came
        logger_factory=structlog.WriteLoggerFactory(_standard_error()),
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _by(worker: int | None, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return event if worker is None else {"worker": worker, **event}


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
