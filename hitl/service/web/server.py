"""Serve projects: pages, API, webhooks, model backend, and the loops that pull and do runs, in one process."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from fastapi import APIRouter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hitl.events.sender import Sender
from hitl.service.loop import ProjectLoop
from hitl.service.loops import stop_all, trouble_of
from hitl.service.scheduled import Project
from hitl.service.web import backend
from hitl.service.web.access import Accounts, Proxies, Role, must_have_credentials, public
from hitl.service.web.app import Parts, application
from hitl.service.web.pages.deliveries import EventFigures
from hitl.service.web.projects import Projects
from hitl.service.webhook import Impatient, router

Say = Callable[[str], None]
"""Print a line for whoever started the service."""

FIRST = "admin"
"""User that is created if there is none and only this machine can log in."""

LEAST_SECONDS = 20
"""Seconds that open requests have to finish when the service stops."""

TOLD = ("due", "new", "labels", "done", "items", "asks", "operations", "changed", "seconds", "stop", "error", "message")
"""Metrics of a run that go to the log. The page of runs has the rest."""


@dataclass(frozen=True)
class Wanted:
    """Arguments of `hitl serve`; see its help."""

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
    """Serve until SIGTERM or SIGINT. Raise BadSettings if the service would be open to everybody."""
    log(wanted.as_json)
    projects = Projects(wanted.configs, backend.prepare)
    try:
        accounts = Accounts(wanted.access or next(iter(projects.values())).store.database)
        proxies = Proxies.of(wanted.proxies, wanted.proxy_header, wanted.proxy_role)
        must_have_credentials(wanted.host, accounts, proxies)
        host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
        say(f"serving {', '.join(projects)} at http://{host}:{wanted.port}")
        if not accounts.anybody():
            say(_first_user(accounts))
        app = application(parts_of(projects, accounts, scheduler=wanted.scheduler))
        app.state.proxies = proxies
        uvicorn.run(
            app, host=wanted.host, port=wanted.port, http=Impatient, log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_graceful_shutdown=LEAST_SECONDS,
        )  # fmt: skip
    finally:
        projects.stop()


def parts_of(projects: Projects, accounts: Accounts, *, scheduler: bool = True) -> Parts:
    """Assemble the application for these projects; `scheduler`: also do their runs."""
    loops = []
    for one in projects.values():
        project = Project(one.config, one.settings)
        runs = scheduler and project.is_scheduled
        one.loop = ProjectLoop(project, one.store, _log_cycle, runs=runs, follows=True, pulled=projects.wake)
        loops.append(one.loop)
    sender = Sender([(one.settings, one.store) for one in projects.values()])
    secret = next((loop.project.secret for loop in loops if loop.project.secret), "")
    hints = {loop.project.name: loop.hint for loop in loops}
    return Parts(
        projects,
        accounts,
        routers=[router(hints, secret, public), _backend(projects, accounts)],
        collectors=[LiveFigures(projects), EventFigures(projects)],
        trouble=lambda: trouble_of(loops),
        starts=[*(loop.start for loop in loops), sender.start],
        stops=[partial(stop_all, loops), sender.stop],
    )


class LiveFigures(Collector):
    """Metrics of pulls between runs and loads of snapshots, for Prometheus."""

    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    def collect(self) -> Iterator[Metric]:
        """Yield one metric family per figure."""
        counters: dict[str, tuple[str, Callable[[Any], float]]] = {
            "pulls": ("Looks at the platform that succeeded", lambda one: one.loop.figures.pulls),
            "failures": ("Looks at the platform that failed", lambda one: one.loop.figures.failures),
            "loads": ("Times that everything was read", lambda one: one.loads),
        }
        gauges: dict[str, tuple[str, Callable[[Any], float]]] = {
            "pull_seconds": ("Seconds of the last look at the platform", lambda one: one.loop.figures.seconds),
            "pulled_timestamp_seconds": ("When it ended", lambda one: one.loop.figures.pulled_at),
            "load_seconds": ("Seconds it took to read everything, the last time", lambda one: one.load_seconds),
        }
        kinds: Any = CounterMetricFamily, GaugeMetricFamily
        for families, kind in zip((counters, gauges), kinds, strict=True):
            for figure, (text, value_of) in families.items():
                family: Any = kind(f"hitl_live_{figure}", text, labels=["project"])
                for name, one in self._projects.items():
                    family.add_metric([name], value_of(one))
                yield family


def log(as_json: bool) -> None:
    """Configure the log: one line per event on standard error, as JSON or as text."""
    shown: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            shown,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _log_cycle(event: str, project: str, said: Mapping[str, Any]) -> None:
    told = {name: said[name] for name in TOLD if said.get(name) is not None}
    structlog.get_logger("hitl.schedule").info(event, project=project, **told)


def _first_user(accounts: Accounts) -> str:
    """Create a user to log in with, and return how. The password is shown only here."""
    password = secrets.token_urlsafe(12)
    accounts.add_user(FIRST, password, Role.ADMIN)
    return (
        f"there is no user yet: log in as {FIRST!r} with the password {password}; it is shown once "
        f"(`hitl users password {FIRST}` sets another)"
    )


def _backend(projects: Projects, accounts: Accounts) -> APIRouter:
    """Return Label Studio's model backend. Its password is an API token of the project."""

    def allowed(user: str, password: str, project: str) -> bool:
        caller = accounts.with_token(password)
        return caller is not None and caller.role_in(project) is not None

    return backend.router(projects, allowed)
