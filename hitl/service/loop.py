"""Run projects when they are due, in one thread per project.

    while not stopped:
        start the run that is due, else pull new data
        wait for the next time, or for a webhook

The next run follows from `[schedule]` and the time of the last run, which is in the store. Nothing else is remembered
between processes. Missed runs are made up for by one run, however late. A run that was killed after it was recorded is
due at once and sends the remaining changes. The lease prevents two loops from running a project at the same time.

    Busy, Unreachable, StoreError, OSError    retried with growing pauses, or after the pause that the platform asks for
    any other error                           reported; the next run takes place as scheduled
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from apscheduler.schedulers.background import BackgroundScheduler

from hitl.connectors.catalog import connector_of
from hitl.cycle import CycleReport, Unchanged, pull, run_if_changed
from hitl.errors import BadSettings, Busy, HitlError, StoreError, Unreachable, public_name
from hitl.platform import Connector, Progress, silent
from hitl.project import lease_seconds, load, opened, recalled
from hitl.settings import Settings
from hitl.settings.schedule import ScheduleSettings
from hitl.settings.times import spelled
from hitl.store.results import BASIS
from hitl.tables.limits import within

if TYPE_CHECKING:
    from hitl.service.project import Project

FIRST_RETRY, LAST_RETRY = 5.0, 600.0
"""Seconds before the first retry of a run, and the maximum. The pause doubles with each retry. The maximum also limits
a pause that a platform asks for.
"""
LAST_BUSY_RETRY = 60.0  # maximum seconds between retries while another process holds the project
FIRST_LOOK_RETRY, LAST_LOOK_RETRY = 0.5, 60.0
"""Seconds before the first retry of a pull between runs, and the maximum. The pause doubles with each retry."""
GAP = 0.25  # minimum seconds between two pulls, so that other processes can get the lease
LONGEST = 60.0  # maximum seconds between readings of the clock, because someone may set it
ONE_JOB: dict[str, Any] = {"id": "next", "replace_existing": True, "misfire_grace_time": None}
"""Options of the scheduler job that wakes a loop at its next time, however late. A loop has one such job."""
PROBLEMS = 10  # maximum problems of a run that are reported, as in `hitl run`
MAY_PASS = (Busy, Unreachable, StoreError, OSError)  # errors after which the same run is retried

Tell = Callable[[str, str, Mapping[str, Any]], None]
"""Called with (event, project, figures). Events: began, done, failed, waits, looked."""

_log = logging.getLogger(__name__)


class Stopped(BaseException):
    """Ends a run between two steps. The next start resumes it."""


def clock() -> datetime:
    """Return the current time. Replaced in tests."""
    return datetime.now(UTC)


@dataclass
class Debounce:
    """Merge a burst of hints into one run: `quiet` seconds after the last hint, at most `at_most` after the first."""

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

    With `every`, a run is late `late_after` periods after the last one `finished`. With `cron`, it is late at scheduled
    time number `late_after` + 1 after that. Without both, it is late if a run has `begun` and not finished for
    `late_after` times the longest retry pause.
    """
    if schedule.every is not None:
        return now > finished + timedelta(seconds=schedule.every * schedule.late_after)
    if schedule.cron is not None:
        when: datetime | None = finished
        for _ in range(schedule.late_after + 1):  # one more, because the last time has only just come
            when = None if when is None else schedule.next_after(when)
        return when is not None and when <= now
    return begun is not None and now > begun + timedelta(seconds=LAST_RETRY * schedule.late_after)


class ProjectLoop(threading.Thread):
    """Do the runs of one project, and pull in between, until stopped.

    Args:
        project: the project to run.
        tell: called when a run begins, ends, fails or waits, and when a pull triggers one.
        progress: called within runs and pulls.
        runs: do the runs; False if another process does them.
        follows: pull at every webhook and every `schedule.poll`, so that pages show new labels.
        pulled: called after each of these pulls.
    """

    def __init__(
        self,
        project: Project,
        tell: Tell,
        progress: Progress = silent,
        *,
        runs: bool = True,
        follows: bool = False,
        pulled: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(name=f"hitl {project.name}", daemon=True)  # a fit cannot be stopped midway, only abandoned
        self.project, self.unread = project, ""  # why the last pull failed
        self._problems: tuple[str, ...] = ()  # of the last pull between runs
        # For Prometheus: pulls between runs. Times are in seconds, 0 before the first pull.
        self.figures = dict.fromkeys(("pulls_total", "failures_total", "pull_seconds", "pulled_timestamp_seconds"), 0.0)
        self._store, self._told, self._shown = project.store, tell, progress
        self._runs, self._follows, self._pulled = runs, follows, pulled
        self._counts = runs and project.schedule.after_annotations is not None
        self._debounce = Debounce(project.schedule.debounce, project.schedule.debounce_at_most)
        self._woken, self._stopping, self._lock = threading.Event(), False, threading.Lock()
        self._since = self._finished = self._not_before = clock()
        self._begun: datetime | None = None  # since when a run has been tried without success
        self._blind: datetime | None = None  # since when pulls have failed
        self._ended: datetime | None = None  # when the last run here ended, successfully or not
        self._run_at: datetime | None = None  # due because of webhooks, or of enough new annotations
        self._look_at = self._since if follows or self._counts else None
        self._again: tuple[datetime, datetime] | None = None  # when a failed run was due, and when to retry it
        self._attempts = self._failed_looks = 0
        self._resumes = True

    def hint(self) -> None:
        """Record that the platform may have news. Safe from any thread."""
        with self._lock:
            now = clock()
            due = self._debounce.hint(now)
            if self._runs and not self._counts:
                self._run_at = due
            if self._look_at is not None:
                self._look_at = min(self._look_at, now if self._follows else due)
        self._woken.set()

    def stop(self) -> None:
        """Stop at the next step. Use `join` to wait for it."""
        self._stopping = True
        self._woken.set()

    def run(self) -> None:
        """Loop until stopped."""
        times = BackgroundScheduler(timezone=UTC)  # in memory only: the next time follows from the store
        times.start()
        try:
            with within(self.project.settings.limits.limits()):
                while not self._stopping:
                    try:
                        seconds = self.turn()
                    except Stopped:
                        return
                    except Exception as error:  # the store cannot be read, so due times are unknown
                        if not isinstance(error, HitlError | OSError):
                            _log.exception("the loop of %s", self.project.name)
                        seconds = self._later(error)
                    if seconds > 0:
                        next_time = datetime.now(UTC) + timedelta(seconds=seconds)
                        times.add_job(self._woken.set, "date", run_date=next_time, **ONE_JOB)
                        self._woken.wait(LONGEST)
                    self._woken.clear()
        finally:
            times.shutdown(wait=False)

    def turn(self) -> float:
        """Do what is due. Return the maximum seconds to wait before the next turn."""
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

    def due(self, now: datetime) -> datetime | None:
        """Return when the next run is due: a past time if one was missed, None if nothing triggers one."""
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
        # Skip times in the future, from a clock that was ahead.
        before = [when for when in ended if when is not None and when <= now]
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

    def _cycle(self, due: datetime) -> None:
        with self._lock:
            self._run_at = None
        self._begun = self._begun or clock()
        name, start = due.astimezone(UTC).isoformat(timespec="microseconds"), time.monotonic()
        self._tell("began", due=name)
        try:
            with opened(self.project.config) as (settings, store, connector):
                self._require_same_name(settings)
                if old := self.project.outdated(settings):
                    _log.warning("%s: restart the service, which works with the old %s", self.project.config, old)
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
        """Pull, and make a run due if there are enough new annotations. A failure is retried by the next pull."""
        with self._lock:
            self._look_at = clock() + timedelta(seconds=self.project.schedule.poll)
        start = time.monotonic()
        try:
            problems = self._pull()
            new = self._new_annotations() if self._counts else 0
        except (HitlError, OSError) as error:
            self._look_failed(error)
            return
        took = time.monotonic() - start
        self._failed_looks, self._blind = 0, None
        self._reached("")
        if problems and problems != self._problems:
            _log.warning("%s: the last pull found problems: %s", self.project.name, "; ".join(problems[:PROBLEMS]))
        self._problems = problems
        self.figures["pulls_total"] += 1
        self.figures |= {"pull_seconds": took, "pulled_timestamp_seconds": time.time()}
        self._not_before = clock() + timedelta(seconds=max(GAP, took))
        self._pulled()
        if self._counts and (new is None or new >= (self.project.schedule.after_annotations or 1)):
            self._tell("looked", new=new)
            self._run_at = clock()

    @cached_property
    def _connector(self) -> Connector:
        connector = connector_of(self.project.settings.source, self.project.config.parent)
        return recalled(connector, self._store, self.project.name)

    def _pull(self) -> tuple[str, ...]:
        if self._counts:
            self._require_same_name(load(self.project.config))
        with self._store.lease(self.project.name, seconds=lease_seconds(self._connector), brief=True) as lease:
            return pull(lease, self._store, self._connector, self._progress).problems

    def _new_annotations(self) -> int | None:
        """Return by how much the number of annotations has changed since the last run. None: unknown, treat as news."""
        name = self.project.name
        last = self._store.last_cycle(name)
        if last is None:
            return None
        if "annotations" not in last.metrics:  # A manual run does not count annotations: then any change is enough.
            return 0 if last.revision == self._store.revision(name) else None
        return abs(self._store.annotation_count(name) - int(last.metrics["annotations"]))

    def _look_failed(self, error: Exception) -> None:
        self._failed_looks += 1
        wait = FIRST_LOOK_RETRY * 2.0 ** min(self._failed_looks - 1, 10)
        with self._lock:
            self._look_at = self._not_before = clock() + timedelta(seconds=min(wait, LAST_LOOK_RETRY))
        if isinstance(error, Busy):
            return
        self.__dict__.pop("_connector", None)  # a new connector has nothing outdated cached about its platform
        self._blind = self._blind or clock()
        self.figures["failures_total"] += 1
        if self._counts:
            self._tell("failed", look=True, **_in_words(error))
        self._reached(str(error))

    def _reached(self, why: str) -> None:
        if self._follows and why != self.unread:
            _log.warning("%s: %s", self.project.name, why or "the platform is read again")
        self.unread = why

    def _require_same_name(self, settings: Settings) -> None:
        if settings.name != self.project.name:
            raise BadSettings(
                f"{self.project.config}: name is {settings.name!r} now, was {self.project.name!r}; "
                "restart `hitl schedule` or `hitl serve`"
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

    def late_since(self, now: datetime) -> datetime | None:
        """Return when the last successful run ended if the next one is overdue, else None."""
        self._finished = min(self._finished, now)  # a clock that was ahead must not hide a late run
        name, begun = self.project.name, self._begun
        stored = self._store.last_cycle(name), self._store.looked_at(name)
        ended = [stored[0].recorded_at if stored[0] else None, stored[1]]
        if begun is None or self._store.failure(name) is None:  # runs by another process count
            self._finished = max([self._finished, *(when for when in ended if when is not None and when <= now)])
            begun = None if begun is not None and begun <= self._finished else begun
        tried = min((min(when, now) for when in (begun, self._blind) if when is not None), default=None)
        return self._finished if is_late(self.project.schedule, self._finished, tried, now) else None


def retry_delay(attempt: int, error: Exception) -> float:
    """Return the seconds before the next attempt, after `attempt` failures (1, 2, ...)."""
    hint = error.retry_after if isinstance(error, Unreachable) else None
    wait = FIRST_RETRY * 2.0 ** min(attempt - 1, 20) if hint is None else hint
    return min(wait, LAST_BUSY_RETRY if isinstance(error, Busy) else LAST_RETRY)


def figures(report: CycleReport | Unchanged) -> dict[str, Any]:
    """Return the reported figures of a run."""
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
    return {"error": public_name(error), "message": str(error)}


def _within(when: datetime, now: datetime, seconds: float) -> datetime:
    """Return `when`, or `now` if it is more than `seconds` away, as happens after a clock was set back."""
    return when if when <= now + timedelta(seconds=seconds) else now
