"""Run the cycles of projects when they are due, in one thread per project.

    while not stopped:
        run the cycle that is due, else pull what is new
        wait for the next time, or for a webhook

When a cycle is due follows from `[schedule]` and from when the last one ended, which the store knows. Nothing else is
remembered between processes: a run that was missed is made up for once, however late, and a cycle that was killed after
it was recorded is due at once and sends what is left. The lease keeps two loops of one project apart.

    Busy, Unreachable, StoreError, OSError    tried again, later and later, or when the platform says
    any other error                           reported; the next cycle is due at its next time
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hitl.connectors.catalog import connector_of
from hitl.cycle import CycleReport, Unchanged, pull, run_if_changed
from hitl.errors import BadSettings, Busy, HitlError, MissingExtra, StoreError, Unreachable
from hitl.platform import Connector, Progress, silent
from hitl.project import lease_seconds, load, opened, recalled, store_url
from hitl.settings import WEBHOOK_SECRET, ScheduleSettings, Settings
from hitl.store import Store
from hitl.store.cycles import BASIS
from hitl.tables.limits import within
from hitl.settings.times import spelled

if TYPE_CHECKING:
    from hitl.service.webhook import Listener

FIRST_RETRY, LAST_RETRY = 5.0, 600.0
"""Seconds to the first retry, doubled with each, up to the last; whatever the platform asks for."""

LAST_BUSY_RETRY = 60.0
"""Seconds between retries, at most, while another process holds the project."""

FIRST_LOOK_RETRY, LAST_LOOK_RETRY = 0.5, 60.0
"""Seconds to the first retry of a pull between cycles, doubled with each, up to the last."""

GAP = 0.25
"""Seconds between two pulls that webhooks ask for, at least: others who wait for the lease get it."""

LONGEST = 60.0
"""Seconds until the clock is read again, at most: it may have been set."""

GRACE = 20.0
"""Seconds a running cycle has to reach its next step when the loops stop; then it is left as by a crash."""

MAY_PASS = (Busy, Unreachable, StoreError, OSError)
"""Errors after which the same run is tried again."""

PROBLEMS = 10
"""Problems of a cycle that are reported; `hitl run` reports as many."""

Tell = Callable[[str, str, Mapping[str, Any]], None]
"""Called with (event, project, figures): began, done, failed, waits, looked."""

_log = logging.getLogger(__name__)


class Stopped(BaseException):
    """Ends a cycle between two steps; the next start resumes it."""


def clock() -> datetime:
    """Return the time; replaced in tests."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Project:
    """A project that is served: its hitl.toml and settings."""

    config: Path
    settings: Settings

    @property
    def name(self) -> str:
        """Name of the project in its store."""
        return self.settings.name

    @property
    def schedule(self) -> ScheduleSettings:
        """When its cycles run."""
        return self.settings.schedule

    @property
    def store(self) -> str:
        """Address of its store."""
        return store_url(self.settings.store, self.config.parent)

    @property
    def is_scheduled(self) -> bool:
        """Return True if its settings say when a cycle runs."""
        schedule = self.schedule
        starts = (schedule.every, schedule.cron, schedule.after_annotations, schedule.webhook)
        return any(start is not None for start in starts)

    @property
    def secret(self) -> str:
        """Secret that its webhooks carry, or ""."""
        return "" if self.settings.webhook_secret is None else self.settings.webhook_secret.get_secret_value()


def projects_of(configs: Sequence[Path]) -> tuple[Project, ...]:
    """Load the projects to schedule. Raise BadSettings for one that is there twice, or that nothing starts."""
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
        if schedule.cron is not None and schedule.next_after(clock()) is None:
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
    """Raise BadSettings unless each project has its platform's token, and a secret where it listens for webhooks."""
    for project in projects:
        connector_of(project.settings.source, project.config.parent)  # finds a missing token
        if project.schedule.webhook is not None and project.secret == "":
            raise BadSettings(f"{project.config}: schedule.webhook needs a secret: set {WEBHOOK_SECRET}")


@dataclass
class Debounce:
    """Merge a burst of hints into one run: `quiet` seconds after the last, `at_most` after the first."""

    quiet: float
    at_most: float
    first: datetime | None = None
    due: datetime | None = None

    def hint(self, now: datetime) -> datetime:
        """Return when to run, after a hint at this time."""
        if self.first is None or self.due is None or not self.first <= now < self.due:  # before: a clock was set back
            self.first = now
        self.due = min(now + timedelta(seconds=self.quiet), self.first + timedelta(seconds=self.at_most))
        return self.due


@dataclass
class PullFigures:
    """Counts of pulls between cycles, for Prometheus; times in seconds, 0 before the first."""

    pulls: int = 0
    failures: int = 0
    seconds: float = 0.0
    pulled_at: float = 0.0


class ProjectLoop(threading.Thread):
    """Run the cycles of one project, and pull between them, until it is stopped.

    Args:
        project: whose cycles; store: where it is kept.
        tell: called for every cycle that begins, ends, fails or waits; progress: within cycles.
        runs: run cycles; False where another process does.
        follows: pull at every webhook and every `schedule.poll`, so that pages show new labels.
        pulled: called after each of these pulls.
    """

    def __init__(
        self,
        project: Project,
        store: Store,
        tell: Tell,
        progress: Progress = silent,
        *,
        runs: bool = True,
        follows: bool = False,
        pulled: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(name=f"hitl {project.name}", daemon=True)  # a fit cannot be stopped half-way, but abandoned
        self.project, self.figures = project, PullFigures()
        self.unread: str | None = None  # why the last pull failed
        self._store, self._told, self._shown = store, tell, progress
        self._runs, self._follows, self._pulled = runs, follows, pulled
        self._counts = runs and project.schedule.after_annotations is not None
        self._debounce = Debounce(project.schedule.debounce, project.schedule.debounce_at_most)
        self._woken, self._stopping, self._lock = threading.Event(), False, threading.Lock()
        self._since = self._finished = clock()
        self._begun: datetime | None = None  # since when a run is tried
        self._blind: datetime | None = None  # since when pulls fail
        self._ended: datetime | None = None  # when the last run ended here, well or not
        self._run_at: datetime | None = None  # because of webhooks, or of enough new annotations
        self._look_at = self._since if follows or self._counts else None
        self._not_before = self._since
        self._again: tuple[datetime, datetime] | None = None  # a run that failed and was due, and when to retry it
        self._attempts = self._failed_looks = 0
        self._resumes = True

    # -- life ----------------------------------------------------------------------------------------------

    def hint(self) -> None:
        """Note that the platform may have news. Safe from any thread."""
        with self._lock:
            now = clock()
            due = self._debounce.hint(now)
            if self._runs and not self._counts:
                self._run_at = due
            if self._look_at is not None:
                self._look_at = min(self._look_at, now if self._follows else due)
        self._woken.set()

    def stop(self) -> None:
        """Leave at the next step; `join` waits for it."""
        self._stopping = True
        self._woken.set()

    def run(self) -> None:
        """Loop until stopped."""
        with within(self.project.settings.limits.limits()):
            while not self._stopping:
                try:
                    seconds = self.turn()
                except Stopped:
                    return
                except Exception as error:  # the store cannot be read: nothing is known to be due
                    if not isinstance(error, HitlError | OSError):
                        _log.exception("the loop of %s", self.project.name)
                    seconds = self._later(error)
                self._woken.wait(seconds)
                self._woken.clear()

    def turn(self) -> float:
        """Do what is due. Return the seconds to wait for more, at most."""
        now, due = clock(), None
        if self._runs:
            due = self.due(now)
            if due is not None and due <= now:
                self._cycle(now if self._again is None else self._again[0])
                return 0.0
        look = self._next_look(now)
        if look is not None and look <= now:
            self._look()
            return 0.0
        return min([LONGEST, *((when - now).total_seconds() for when in (due, look) if when is not None)])

    # -- when ----------------------------------------------------------------------------------------------

    def due(self, now: datetime) -> datetime | None:
        """Return when the next cycle is due; past where one was missed, None where nothing says when."""
        if self._again is not None:
            return _within(self._again[1], now, LAST_RETRY)
        schedule, name = self.project.schedule, self.project.name
        last, ended = self._store.last_cycle(name), [self._store.looked_at(name), self._ended]
        if last is not None:
            ended.append(last.recorded_at)
            if self._resumes and "due" in last.metrics and self._store.count_pending(name):
                self._again = datetime.fromisoformat(last.metrics["due"]), now
                return now
        self._resumes = False
        times: list[datetime | None] = []
        if self._run_at is not None:
            times.append(_within(self._run_at, now, schedule.debounce_at_most))
        before = [when for when in ended if when is not None and when <= now]  # a clock may have been ahead
        if before or schedule.every is None:
            times.append(schedule.next_after(max(before, default=min(self._since, now))))
        else:
            times.append(now)
        return min((when for when in times if when is not None), default=None)

    def _next_look(self, now: datetime) -> datetime | None:
        if self._look_at is None:
            return None
        at = _within(self._look_at, now, self.project.schedule.poll)
        return max(at, _within(self._not_before, now, LAST_LOOK_RETRY))

    def next_runs(self) -> list[dict[str, Any]]:
        """List what is due next: project, kind, when (in words), next (a time)."""
        schedule, now = self.project.schedule, clock()
        words = None if schedule.every is None else ("every", f"every {spelled(schedule.every)}")
        if schedule.cron is not None:
            words = "cron", f"cron {schedule.cron} ({schedule.timezone})"
        rows: list[tuple[str, str, datetime | None]] = []
        if words is not None:
            rows.append((*words, self.due(now)))
        if schedule.after_annotations is not None:
            said = f"look every {spelled(schedule.poll)} for {schedule.after_annotations} new annotations"
            rows.append(("look", said, self._next_look(now)))
        return [
            {"project": self.project.name, "kind": kind, "when": when, "next": max(at or now, now)}
            for kind, when, at in rows
        ]

    # -- what ----------------------------------------------------------------------------------------------

    def _cycle(self, due: datetime) -> None:
        """Run the cycle that was due at this time."""
        with self._lock:
            self._run_at = None
        self._begun = self._begun or clock()
        name, start = due.astimezone(UTC).isoformat(timespec="microseconds"), time.monotonic()
        self._tell("began", due=name)
        try:
            with opened(self.project.config) as (settings, store, connector):
                self._require_same_name(settings)
                report = run_if_changed(settings, store, connector, self._progress, due=name)
        except MAY_PASS as error:
            seconds = self._later(error)
            self._again = due, clock() + timedelta(seconds=seconds)
            return
        except Exception as error:
            self._tell("failed", due=name, **_in_words(error))
        else:
            self._finished, self._begun = clock(), None
            self._tell("done", due=name, seconds=round(time.monotonic() - start, 1), **figures(report))
        self._ended, self._again, self._attempts = clock(), None, 0

    def _look(self) -> None:
        """Pull, and make a run due when enough annotations are new. A failure is retried by the next look."""
        with self._lock:
            self._look_at = clock() + timedelta(seconds=self.project.schedule.poll)
        start = time.monotonic()
        try:
            self._pull()
            new = self._new_annotations() if self._counts else 0
        except (HitlError, OSError) as error:
            self._look_failed(error)
            return
        took = time.monotonic() - start
        self._failed_looks, self._blind = 0, None
        self._reached(None)
        self.figures.pulls += 1
        self.figures.seconds, self.figures.pulled_at = took, time.time()
        self._not_before = clock() + timedelta(seconds=max(GAP, took))
        self._pulled()
        if self._counts and (new is None or new >= (self.project.schedule.after_annotations or 1)):
            self._tell("looked", new=new)
            self._run_at = clock()

    @cached_property
    def _connector(self) -> Connector:
        connector = connector_of(self.project.settings.source, self.project.config.parent)
        return recalled(connector, self._store, self.project.name)

    def _pull(self) -> None:
        if self._counts:
            self._require_same_name(load(self.project.config))
        with self._store.lease(self.project.name, seconds=lease_seconds(self._connector), brief=True) as lease:
            pull(lease, self._store, self._connector, self._progress)

    def _new_annotations(self) -> int | None:
        """Return how many annotations more or fewer than at the last cycle there are; None if no cycle counted."""
        name = self.project.name
        last = self._store.last_cycle(name)
        if last is None:
            return None
        if "annotations" not in last.metrics:  # a cycle by hand does not count them: then anything new is enough
            return 0 if last.revision == self._store.revision(name) else None
        return abs(self._store.annotation_count(name) - int(last.metrics["annotations"]))

    def _look_failed(self, error: Exception) -> None:
        self._failed_looks += 1
        wait = FIRST_LOOK_RETRY * 2.0 ** min(self._failed_looks - 1, 10)
        with self._lock:
            self._look_at = self._not_before = clock() + timedelta(seconds=min(wait, LAST_LOOK_RETRY))
        if isinstance(error, Busy):
            return
        self.__dict__.pop("_connector", None)  # a new one asks again for what it had learned of its platform
        self._blind = self._blind or clock()
        self.figures.failures += 1
        if self._counts:
            self._tell("failed", look=True, **_in_words(error))
        self._reached(str(error))

    def _reached(self, why: str | None) -> None:
        if self._follows and why != self.unread:
            _log.warning("%s: %s", self.project.name, "the platform is read again" if why is None else why)
        self.unread = why

    def _require_same_name(self, settings: Settings) -> None:
        if settings.name != self.project.name:
            raise BadSettings(
                f"{self.project.config}: name is {settings.name!r} now, was {self.project.name!r}; "
                "restart `hitl schedule`"
            )

    def _later(self, error: Exception) -> float:
        self._attempts += 1
        delay = retry_delay(self._attempts, error)
        self._tell("waits", seconds=round(delay, 1), **_in_words(error))
        return delay

    def _progress(self, what: str, done: int, total: int | None) -> None:
        if self._stopping:
            raise Stopped
        self._shown(what, done, total)

    def _tell(self, event: str, **said: Any) -> None:
        self._told(event, self.project.name, said)

    # -- health --------------------------------------------------------------------------------------------

    def late_since(self, now: datetime) -> datetime | None:
        """Return when a cycle last ended well, if one should have since; None: all is well."""
        self._finished = min(self._finished, now)  # a clock that was ahead must not make it look well until then
        stored = self._store.last_cycle(self.project.name), self._store.looked_at(self.project.name)
        ended = [stored[0].recorded_at if stored[0] else None, stored[1]]
        if self._begun is None:  # what another loop has done counts
            self._finished = max([self._finished, *(when for when in ended if when is not None and when <= now)])
        tried = min((min(when, now) for when in (self._begun, self._blind) if when is not None), default=None)
        return self._finished if is_late(self.project.schedule, self._finished, tried, now) else None


def is_late(schedule: ScheduleSettings, finished: datetime, begun: datetime | None, now: datetime) -> bool:
    """Return True if a cycle should have finished by now.

    With a period (every, cron): `late_after` of its times have passed since the last one `finished`. Without: one was
    `begun` and none has finished for `late_after` of the longest retries.
    """
    if schedule.every is not None:
        return now > finished + timedelta(seconds=schedule.every * schedule.late_after)
    if schedule.cron is not None:
        when: datetime | None = finished
        for _ in range(schedule.late_after + 1):  # the last of them has just become due
            when = None if when is None else schedule.next_after(when)
        return when is not None and when <= now
    return begun is not None and now > begun + timedelta(seconds=LAST_RETRY * schedule.late_after)


def retry_delay(attempt: int, error: Exception) -> float:
    """Return the seconds until the next attempt, after `attempt` that failed (1, 2, ...)."""
    hint = error.retry_after if isinstance(error, Unreachable) else None
    wait = FIRST_RETRY * 2.0 ** min(attempt - 1, 20) if hint is None else hint
    return min(wait, LAST_BUSY_RETRY if isinstance(error, Busy) else LAST_RETRY)


def figures(report: CycleReport | Unchanged) -> dict[str, Any]:
    """Return what is reported of a cycle."""
    pushed: dict[str, Any] = {"operations": len(report.receipts), "changed": report.changed}
    if report.pulled.problems:
        pushed["problems"] = list(report.pulled.problems[:PROBLEMS])
    if isinstance(report, Unchanged):
        return {"unchanged": True, **pushed}
    metrics = {
        key: value for key, value in report.judgement.metrics.items() if key not in ("due", "annotations", BASIS)
    }
    pulled = {"new": report.pulled.changed, "deleted": report.pulled.deleted}
    return {**pulled, **metrics, "asks": len(report.judgement.plan.asks), **pushed}


def _in_words(error: Exception) -> dict[str, str]:
    return {"error": type(error).__name__, "message": str(error)}


def _within(when: datetime, now: datetime, seconds: float) -> datetime:
    """Return the time; `now` if it is further away than it can be meant, as after a clock was set back."""
    return when if when <= now + timedelta(seconds=seconds) else now


class Loops:
    """The loops of several projects, each with a store of its own, and where they listen for webhooks.

    Example:
        >>> with Loops((), lambda event, project, said: None) as loops:
        ...     loops.alive
        True
    """

    def __init__(self, projects: Sequence[Project], tell: Tell, progress: Progress = silent) -> None:
        self.projects = tuple(projects)
        self._stop, self._listeners = threading.Event(), list["Listener"]()
        self._stores: list[Store] = []
        self.loops: list[ProjectLoop] = []
        for project in projects:
            self._stores.append(Store(project.store))
            self.loops.append(ProjectLoop(project, self._stores[-1], tell, progress))

    def __enter__(self) -> Loops:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Take the addresses of webhooks; nothing runs yet. Raise BadSettings where that cannot be done."""
        require_secrets(self.projects)
        addresses = dict.fromkeys(project.schedule.webhook for project in self.projects)
        for address in filter(None, addresses):
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
        """Run in threads."""
        for thread in (*self._listeners, *self.loops):
            thread.start()

    def wait(self) -> None:
        """Wait until `ask_to_stop`. Raise HitlError when a thread has ended by itself, which none should."""
        while not self._stop.wait(2.0):
            if not self.alive:
                raise HitlError("schedule: a thread has ended by itself; start it again (nothing is lost)")

    @property
    def alive(self) -> bool:
        """Return True if all loops run."""
        return all(loop.is_alive() for loop in self.loops)

    def trouble(self) -> Mapping[str, Any] | None:
        """Return what is wrong, for /health; None: every project is served."""
        return trouble_of(self.loops)

    def next_runs(self) -> list[dict[str, Any]]:
        """List what is due next in all projects, the next one first."""
        rows = [row for loop in self.loops for row in loop.next_runs()]
        return sorted(rows, key=lambda row: (row["next"], row["project"]))

    def next_run(self, project: str) -> datetime | None:
        """Return when the next cycle of this project is due, as far as is known."""
        times = [row["next"] for row in self.next_runs() if row["project"] == project and row["kind"] != "look"]
        return min(times, default=None)

    def webhooks(self) -> list[dict[str, str]]:
        """List where webhooks are taken: project, listens (host:port) and the url to give to the platform."""
        return [
            {"project": project.name, "listens": address, "url": url_of(address, project.name)}
            for project in self.projects
            if (address := project.schedule.webhook) is not None
        ]

    def ask_to_stop(self) -> None:
        """Have `wait` return soon. Safe from a signal."""
        self._stop.set()

    def stop(self, grace: float = GRACE) -> bool:
        """Stop; a running cycle is left at its next step. Return True if all came to that within `grace` seconds."""
        self._stop.set()
        for listener in self._listeners:
            listener.stop()
        stopped = stop_all(self.loops, grace)
        if stopped:
            for store in self._stores:
                store.close()
        return stopped


def url_of(address: str, project: str) -> str:
    """Return the URL to enter on the platform; an address that stands for all is this machine's name there."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host in ("0.0.0.0", "::"):  # nosec B104  # compared, not bound to
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/webhook/{quote(project, safe='')}"


def stop_all(loops: Sequence[ProjectLoop], grace: float = GRACE) -> bool:
    """Stop loops; return True if all ended within `grace` seconds."""
    deadline = time.monotonic() + grace
    for loop in loops:
        loop.stop()
    for loop in loops:
        if loop.ident is not None:
            loop.join(max(deadline - time.monotonic(), 0.0))
    return not any(loop.is_alive() for loop in loops)


def trouble_of(loops: Sequence[ProjectLoop]) -> Mapping[str, Any] | None:
    """Return what is wrong with these loops; None: nothing is."""
    if not all(loop.is_alive() for loop in loops):
        return {"status": "the scheduler has stopped"}
    now, late = clock(), {}
    for loop in loops:
        since = loop.late_since(now) if loop.project.is_scheduled else None
        if since is not None:
            late[loop.project.name] = f"no cycle has finished since {since:%Y-%m-%d %H:%M:%S}Z"
    return {"status": "late", "projects": late} if late else None
