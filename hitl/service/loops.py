"""Run several project loops as one service: alone in `hitl schedule`, next to the pages in `hitl serve`."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hitl.connectors.catalog import connector_of
from hitl.errors import BadSettings, HitlError, MissingExtra
from hitl.events.sender import Sender
from hitl.platform import Progress, silent
from hitl.service import loop as looping
from hitl.service.loop import ProjectLoop, Tell
from hitl.service.project import Project
from hitl.settings import WEBHOOK_SECRET

if TYPE_CHECKING:
    from hitl.service.webhook import Listener

GRACE = 20.0
"""Seconds that a run has to reach its next step when the loops stop. After that it is abandoned, as in a crash."""


class Loops:
    """Loops of several projects, the listeners for their webhooks, and the sender of their events.

    Args:
        projects: one loop is made for each.
        runs: do the runs of scheduled projects; False if another process does them.
        tell, progress, follows, pulled: as in `ProjectLoop`.
    """

    def __init__(
        self,
        projects: Sequence[Project],
        tell: Tell,
        progress: Progress = silent,
        *,
        runs: bool = True,
        follows: bool = False,
        pulled: Callable[[], object] = lambda: None,
    ) -> None:
        self.projects, self._stop, self._listeners = tuple(projects), threading.Event(), list["Listener"]()
        self.loops = [
            ProjectLoop(project, tell, progress, runs=runs and project.is_scheduled, follows=follows, pulled=pulled)
            for project in projects
        ]
        self._sender = Sender((project.settings, project.store) for project in projects)

    def __enter__(self) -> Loops:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Listen on the addresses of webhooks, without starting the loops. Raise BadSettings if that fails."""
        require_secrets(self.projects)
        for address in filter(None, dict.fromkeys(project.schedule.webhook for project in self.projects)):
            try:
                from hitl.service.webhook import Listener
            except ImportError as error:
                if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "h11"):
                    raise
                raise MissingExtra(
                    "schedule.webhook needs more packages: pip install 'hitl-toolkit[service]'"
                ) from None
            at = [loop for loop in self.loops if loop.project.schedule.webhook == address]
            hints = {loop.project.name: loop.hint for loop in at}
            self._listeners.append(Listener(address, at[0].project.secret, hints, self.trouble))

    def start(self) -> None:
        """Start the threads."""
        for thread in (*self._listeners, *self.loops):
            thread.start()
        self._sender.start()

    def wait(self) -> None:
        """Wait until `ask_to_stop` is called. Raise HitlError if a loop has ended by itself, which is a bug."""
        while not self._stop.wait(2.0):
            if not self.alive:
                raise HitlError("schedule: a thread has ended by itself; start it again (nothing is lost)")

    @property
    def alive(self) -> bool:
        """True if all loops are running."""
        return all(loop.is_alive() for loop in self.loops)

    def trouble(self) -> Mapping[str, Any] | None:
        """Return what is wrong, for /health and /readyz, or None if every project is served."""
        if not self.alive:
            return {"status": "the scheduler has stopped"}
        now, late = looping.clock(), {}
        for loop in self.loops:
            since = loop.late_since(now) if loop.project.is_scheduled else None
            if since is not None:
                late[loop.project.name] = f"no run has finished since {since:%Y-%m-%d %H:%M:%S}Z"
        return {"status": "late", "projects": late} if late else None

    def next_runs(self) -> list[dict[str, Any]]:
        """List what is due next in all projects, the earliest first."""
        rows = [row for loop in self.loops for row in loop.next_runs()]
        return sorted(rows, key=lambda row: (row["next"], row["project"]))

    def next_run(self, project: str) -> datetime | None:
        """Return when the next run of this project is due, or None if unknown."""
        times = [row["next"] for row in self.next_runs() if row["project"] == project and row["kind"] != "look"]
        return min(times, default=None)

    def webhooks(self) -> list[dict[str, str]]:
        """List the webhook addresses: project, listens (host:port) and the URL to enter on the platform."""
        return [
            {"project": project.name, "listens": address, "url": url_of(address, project.name)}
            for project in self.projects
            if (address := project.schedule.webhook) is not None
        ]

    def ask_to_stop(self) -> None:
        """Make `wait` return soon. Safe in a signal handler."""
        self._stop.set()

    def stop(self, grace: float = GRACE) -> bool:
        """Stop the loops at their next step. Return True if all stopped within `grace` seconds."""
        self._stop.set()
        deadline = time.monotonic() + grace
        for listener in self._listeners:
            listener.stop()
        for loop in self.loops:
            loop.stop()
        for loop in self.loops:
            if loop.ident is not None:
                loop.join(max(deadline - time.monotonic(), 0.0))
        self._sender.stop()
        if stopped := not any(loop.is_alive() for loop in self.loops):
            for project in self.projects:
                project.store.close()
        return stopped


def projects_of(configs: Sequence[Path]) -> tuple[Project, ...]:
    """Load the projects to schedule. Raise BadSettings if one is given twice, or has no schedule."""
    projects = tuple(map(Project, configs))
    seen: dict[tuple[str, str], Path] = {}
    for project in projects:
        schedule = project.schedule
        if not project.is_scheduled:
            raise BadSettings(
                f'{project.config}: nothing says when to run; expected schedule.every = "15m", schedule.cron, '
                "schedule.after_annotations or schedule.webhook"
            )
        for where, message in (
            (project.address, "project {!r} of the same store is in {} too"),
            (schedule.webhook, f"a project {{!r}} listens at {schedule.webhook} already ({{}}); expected another name"),
        ):
            other = project.config if where is None else seen.setdefault((where, project.name), project.config)
            if other is not project.config:
                raise BadSettings(f"{project.config}: {message.format(project.name, other)}")
    return projects


def require_secrets(projects: Iterable[Project]) -> None:
    """Raise BadSettings unless each project has its platform's token, and a secret if it listens for webhooks."""
    for project in projects:
        connector_of(project.settings.source, project.config.parent)  # raises if the token is missing
        if project.schedule.webhook is not None and project.secret == "":
            raise BadSettings(f"{project.config}: schedule.webhook needs a secret: set {WEBHOOK_SECRET}")


def url_of(address: str, project: str) -> str:
    """Return the URL to enter on the platform. A wildcard address is replaced by the name of this machine."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host in ("0.0.0.0", "::"):  # nosec B104  # compared, not bound to
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/webhook/{quote(project, safe='')}"
