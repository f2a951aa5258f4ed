"""Load projects with a schedule, merge webhook hints into runs, and detect late runs."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from hitl.connectors.catalog import connector_of
from hitl.errors import BadSettings
from hitl.project import load, store_url
from hitl.settings import WEBHOOK_SECRET, ScheduleSettings, Settings

LAST_RETRY = 600.0
"""Maximum seconds between two attempts of a failing run."""


@dataclass(frozen=True)
class Project:
    """A served project: the path of its hitl.toml and its settings."""

    config: Path
    settings: Settings

    @property
    def name(self) -> str:
        """Name of the project in its store."""
        return self.settings.name

    @property
    def schedule(self) -> ScheduleSettings:
        """Schedule of its runs."""
        return self.settings.schedule

    @property
    def store(self) -> str:
        """Address of its store."""
        return store_url(self.settings.store, self.config.parent)

    @property
    def is_scheduled(self) -> bool:
        """True if its settings schedule runs."""
        schedule = self.schedule
        starts = (schedule.every, schedule.cron, schedule.after_annotations, schedule.webhook)
        return any(start is not None for start in starts)

    @property
    def secret(self) -> str:
        """Secret in the header of its webhooks, or ""."""
        return "" if self.settings.webhook_secret is None else self.settings.webhook_secret.get_secret_value()


def projects_of(configs: Sequence[Path]) -> tuple[Project, ...]:
    """Load the projects to schedule. Raise BadSettings if one is given twice, or has no schedule."""
    projects = [Project(config.resolve(), load(config)) for config in configs]
    seen: dict[tuple[str, str], Path] = {}
    listening: dict[tuple[str, str], Path] = {}
    for project in projects:
        schedule = project.schedule
        if not project.is_scheduled:
            raise BadSettings(
                f'{project.config}: nothing says when to run; expected schedule.every = "15m", schedule.cron, '
                "schedule.after_annotations or schedule.webhook"
            )
        if schedule.cron is not None and schedule.next_after(datetime.now(UTC)) is None:
            raise BadSettings(f"schedule.cron: {schedule.cron!r} never comes")
        other = seen.setdefault((project.store, project.name), project.config)
        if other is not project.config:
            raise BadSettings(f"{project.config}: project {project.name!r} of the same store is in {other} too")
        if schedule.webhook is None:
            continue
        other = listening.setdefault((schedule.webhook, project.name), project.config)
        if other is not project.config:
            raise BadSettings(
                f"{project.config}: a project {project.name!r} listens at {schedule.webhook} already ({other}); "
                "expected another name, or another schedule.webhook"
            )
    return tuple(projects)


def require_secrets(projects: Iterable[Project]) -> None:
    """Raise BadSettings unless each project has its platform's token, and a secret if it listens for webhooks."""
    for project in projects:
        connector_of(project.settings.source, project.config.parent)  # raises if the token is missing
        if project.schedule.webhook is not None and project.secret == "":
            raise BadSettings(f"{project.config}: schedule.webhook needs a secret: set {WEBHOOK_SECRET}")


@dataclass
class Debounce:
    """Merge a burst of hints into one run: `quiet` seconds after the last hint, and `at_most` after the first."""

    quiet: float
    at_most: float
    first: datetime | None = None
    due: datetime | None = None

    def hint(self, now: datetime) -> datetime:
        """Record a hint at this time. Return when to run."""
        # A hint before `first` means a clock was set back.
        if self.first is None or self.due is None or not self.first <= now < self.due:
            self.first = now
        self.due = min(now + timedelta(seconds=self.quiet), self.first + timedelta(seconds=self.at_most))
        return self.due


def is_late(schedule: ScheduleSettings, finished: datetime, begun: datetime | None, now: datetime) -> bool:
    """Return True if a run should have finished by now.

    With a period (every, cron), a run is late if `late_after` scheduled times have passed since the last one
    `finished`. Without a period, it is late if a run has `begun` and not finished for `late_after` times the longest
    retry pause.
    """
    if schedule.every is not None:
        return now > finished + timedelta(seconds=schedule.every * schedule.late_after)
    if schedule.cron is not None:
        when: datetime | None = finished
        for _ in range(schedule.late_after + 1):  # the last of them has only just become due
            when = None if when is None else schedule.next_after(when)
        return when is not None and when <= now
    return begun is not None and now > begun + timedelta(seconds=LAST_RETRY * schedule.late_after)


def url_of(address: str, project: str) -> str:
    """Return the URL to enter on the platform. A wildcard address is replaced by the name of this machine."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host in ("0.0.0.0", "::"):  # nosec B104  # compared, not bound to
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/webhook/{quote(project, safe='')}"
