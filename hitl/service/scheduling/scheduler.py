"""`hitl schedule`: APScheduler says when, the ledger remembers what is due, a worker a project does it.

    clock      every, cron, hint, look, peek: jobs in the store -> ledger -> wake the project's worker
    webhook    hint -> debounced -> a job of its own time, in the store too: an accepted hint survives a crash
    worker     the run that is due, one at a time a project

A missed run is done as soon as the scheduler is back, however late, and once, however many were missed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from apscheduler.executors.base import BaseExecutor
from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_STOPPED

from hitl.connectors.catalog import connector_of
from hitl.errors import BadSettings, HitlError
from hitl.platform import Progress, silent
from hitl.project import load, store_url
from hitl.service.scheduling.health import is_late
from hitl.service.scheduling.hints import Debounce
from hitl.service.scheduling.jobs import KEPT, KINDS, LOOKS, Jobs, Kind, job_id, parts_of
from hitl.service.scheduling.triggers import Cron, Every, Soon, Trigger
from hitl.service.scheduling.worker import Assignment, Tell, Worker, once
from hitl.service.webhook import Webhooks, url_of
from hitl.settings import WEBHOOK_SECRET, ScheduleSettings, Settings
from hitl.settings.times import spelled
from hitl.store.database import Database

GRACE = 20.0
"""Seconds a running cycle has to come to its next step when the scheduler stops; then it is left as by a crash."""

RETRY = 10.0
"""Seconds until the jobs are read again after the database has failed."""

LONGEST = 60.0
"""Seconds until the clock is looked at again, at most: it may have been set meanwhile."""


@dataclass(frozen=True)
class Project:
    """One hitl.toml that is kept."""

    config: Path
    settings: Settings

    @property
    def name(self) -> str:
        """The project's name in its store."""
        return self.settings.name

    @property
    def schedule(self) -> ScheduleSettings:
        """When its cycles run."""
        return self.settings.schedule

    @property
    def store(self) -> str:
        """The address of its store."""
        return store_url(self.settings.store, self.config.parent)


@dataclass(frozen=True)
class Wanted:
    """A job as the settings want it: `said` in words, which also tell whether they have changed."""

    kind: Kind
    said: str
    trigger: Trigger
    at_once: bool = False


def projects_of(configs: Sequence[Path]) -> tuple[Project, ...]:
    """The projects of these files. Raises BadSettings for one twice, or one that nothing is to start."""
    projects = [Project(config.resolve(), load(config)) for config in configs]
    seen: dict[tuple[str, str], Path] = {}
    listening: dict[tuple[str, str], Path] = {}
    for project in projects:
        schedule = project.schedule
        starts = (schedule.every, schedule.cron, schedule.after_annotations, schedule.webhook)
        if not any(start is not None for start in starts):
            raise BadSettings(
                f'{project.config}: nothing says when to run; expected schedule.every = "15m", schedule.cron, '
                "schedule.after_annotations or schedule.webhook"
            )
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


def need_secrets(projects: Sequence[Project]) -> None:
    """Raise BadSettings unless each project has its platform's token, and a secret where it listens for webhooks.

    A list of jobs needs neither.
    """
    for project in projects:
        connector_of(project.settings.source, project.config.parent)  # finds a missing token
        if project.schedule.webhook is not None and _secret(project) == "":
            raise BadSettings(f"{project.config}: schedule.webhook needs a secret: set {WEBHOOK_SECRET}")


def _secret(project: Project) -> str:
    secret = project.settings.webhook_secret
    return "" if secret is None else secret.get_secret_value()


def wanted_jobs(schedule: ScheduleSettings, now: datetime) -> tuple[Wanted, ...]:
    """The jobs that keep coming back. Raises BadSettings for a cron line that never comes."""
    jobs = []
    if schedule.every is not None:
        jobs.append(Wanted("every", f"every {spelled(schedule.every)}", Every(schedule.every, now), True))
    if schedule.cron is not None:
        trigger = Cron(schedule.cron, schedule.timezone)
        if trigger.get_next_fire_time(None, now) is None:
            raise BadSettings(f"schedule.cron: {schedule.cron!r} never comes")
        jobs.append(Wanted("cron", f"cron {schedule.cron} ({schedule.timezone})", trigger))
    if schedule.after_annotations is not None:
        said = f"look every {spelled(schedule.poll)} for {schedule.after_annotations} new annotations"
        jobs.append(Wanted("look", said, Every(schedule.poll, now), True))
    return tuple(jobs)


class Clock(BackgroundScheduler):  # type: ignore[misc]
    """APScheduler's thread; it outlives a database that fails, and a clock that is set."""

    def _process_jobs(self) -> float | None:
        try:
            seconds: float | None = super()._process_jobs()
        except Exception as error:
            self._logger.warning("The jobs could not be read or moved on (%s); again in %s s", error, RETRY)
            return RETRY
        return LONGEST if seconds is None else min(seconds, LONGEST)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()


class Waking(BaseExecutor):  # type: ignore[misc]
    """Hands a job that is due to its project's worker: the ledger knows already what it stands for."""

    def __init__(self, wake: Callable[[str], None]) -> None:
        super().__init__()
        self._wake = wake

    def submit_job(self, job: Job, run_times: Sequence[datetime]) -> None:
        """Wake the worker; how often it was due does not matter."""
        self._wake(job.id)

    def _do_submit_job(self, job: Job, run_times: Sequence[datetime]) -> None:
        raise AssertionError("submit_job does it all")


class Scheduler:
    """Keeps the cycles of some projects going until it is stopped.

    `tell` is called for every cycle that begins, ends, fails or waits; `progress` within cycles. With `listens` False
    it takes no addresses for webhooks: somebody else calls `hint_of`.

    Attributes:
        projects: those that are kept; jobs: store -> its jobs and ledger.
    """

    def __init__(
        self, projects: Sequence[Project], tell: Tell, progress: Progress = silent, *, listens: bool = True
    ) -> None:
        self._stop, self._listens = threading.Event(), listens
        self._databases: dict[str, Database] = {}
        self.jobs: dict[str, Jobs] = {}
        try:
            for project in projects:
                if project.store not in self._databases:
                    self._databases[project.store] = Database(project.store)
                    names = [each.name for each in projects if each.store == project.store]
                    self.jobs[project.store] = Jobs(self._databases[project.store], names)
        except BaseException:
            self._close()
            raise
        self._clock = Clock(timezone=UTC, jobstore_retry_interval=RETRY, job_defaults=KEPT)
        for store, jobs in self.jobs.items():
            self._clock.add_jobstore(jobs, store)
            self._clock.add_executor(Waking(partial(self._wake, store)), store)
        self._workers = {
            (project.store, project.name): Worker(
                Assignment(project.name, project.config, project.schedule.after_annotations),
                self.jobs[project.store].ledger,
                self._stop,
                tell,
                progress,
            )
            for project in projects
        }
        self.projects = tuple(projects)
        self._webhooks: list[Webhooks] = []
        self._hints = _Hints(self._hint_job, self._stop)

    # -- life ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Take the addresses of the webhooks and bring the jobs in the store up to the settings; nothing runs yet."""
        if self._listens:
            self._listen()
        now = datetime.now(UTC)
        self._clock.start(paused=True)
        for jobs in self.jobs.values():
            jobs.get_due_jobs(now)  # what was missed is in the ledger, whatever becomes of the job
        for project in self.projects:
            self._keep(project, now)
        for store, jobs in self.jobs.items():
            jobs.clean([identity for each in self.projects if each.store == store for identity in _ids(each)])

    def start(self) -> None:
        """Take up what was left, and keep going in threads."""
        if self._clock.state == STATE_STOPPED:
            self.prepare()
        self._hints.start()
        for webhooks in self._webhooks:
            webhooks.start()
        for worker in self._workers.values():
            worker.start()  # it begins with what the ledger has
        self._clock.resume()

    def wait(self) -> None:
        """Until `stop` is asked for. Raises HitlError when a thread has ended by itself, which none should."""
        while not self._stop.wait(2.0):
            if not self.alive:
                raise HitlError("schedule: a thread has ended by itself; start it again (nothing is lost)")

    @property
    def alive(self) -> bool:
        """Whether everything runs."""
        return self._clock.alive and all(worker.is_alive() for worker in self._workers.values())

    def trouble(self) -> Mapping[str, Any] | None:
        """What is wrong, for /health; None: every project is served."""
        if not self.alive:
            return {"status": "the scheduler has stopped"}
        now, late = datetime.now(UTC), {}
        for project in self.projects:
            finished, begun = self._workers[project.store, project.name].finished()
            if is_late(project.schedule, finished, begun, now):
                late[project.name] = f"no cycle has finished since {finished:%Y-%m-%d %H:%M:%S}Z"
        return {"status": "late", "projects": late} if late else None

    def ask_to_stop(self) -> None:
        """From a signal or another thread: `wait` returns soon."""
        self._stop.set()

    def stop(self, grace: float = GRACE) -> bool:
        """Stop; a running cycle is left at its next step. Whether all came to that within `grace` seconds."""
        self._stop.set()
        for webhooks in self._webhooks:
            webhooks.stop()
        self._hints.stop()
        with suppress(Exception):
            self._clock.shutdown()
        deadline = datetime.now(UTC) + timedelta(seconds=grace)
        for worker in self._workers.values():
            worker.wake()
            if worker.ident is not None:
                worker.join(max((deadline - datetime.now(UTC)).total_seconds(), 0.0))
        stopped = not any(worker.is_alive() for worker in self._workers.values())
        if stopped:
            self._close()
        return stopped

    def _close(self) -> None:
        for database in self._databases.values():
            database.close()

    # -- jobs ----------------------------------------------------------------------------------------------

    def _keep(self, project: Project, now: datetime) -> None:
        """Leave a job whose settings are the same, with its next time, which may be past: then it was missed."""
        jobs = self.jobs[project.store]
        for kind in ("hint", "peek"):
            jobs.know(job_id(project.name, kind), Soon(project.schedule.debounce_at_most))
        for wanted in wanted_jobs(project.schedule, now):
            identity = job_id(project.name, wanted.kind)
            before = jobs.row(identity)
            if before is not None and before[1:] == (wanted.said, str(project.config)):
                jobs.know(identity, _going_on(wanted.trigger, before.time))
                continue
            self._add(project, wanted, **({"next_run_time": now} if wanted.at_once else {}))

    def _add(self, project: Project, wanted: Wanted, **first: datetime) -> None:
        self._clock.add_job(
            once,
            wanted.trigger,
            args=(str(project.config),),
            id=job_id(project.name, wanted.kind),
            name=wanted.said,
            jobstore=project.store,
            executor=project.store,
            replace_existing=True,
            **first,
        )

    def _wake(self, store: str, identity: str) -> None:
        kind, name = parts_of(identity)
        self._workers[store, name].wake(look=kind in LOOKS)

    def next_runs(self) -> list[dict[str, Any]]:
        """The jobs in the store, the next one first: project, kind, when (in words), next (a time or None)."""
        rows = [
            {"project": project.name, "kind": parts_of(identity)[0], "when": row.said, "next": row.time}
            for project in self.projects
            for identity in _ids(project)
            if (row := self.jobs[project.store].row(identity)) is not None
        ]
        return sorted(rows, key=lambda row: (row["next"], row["project"]))

    def next_run(self, project: str) -> datetime | None:
        """When the next cycle of the projects of this name is due, as far as is known."""
        times = [row["next"] for row in self.next_runs() if row["project"] == project and row["kind"] not in LOOKS]
        return min(times, default=None)

    # -- webhooks ------------------------------------------------------------------------------------------

    def webhooks(self) -> list[dict[str, str]]:
        """Where webhooks are taken: project, listens (host:port) and the url to give to the platform."""
        return [
            {"project": project.name, "listens": address, "url": url_of(address, project.name)}
            for project in self.projects
            if (address := project.schedule.webhook) is not None
        ]

    def _listen(self) -> None:
        need_secrets(self.projects)
        by_address: dict[str, list[Project]] = {}
        for project in self.projects:
            if project.schedule.webhook is not None:
                by_address.setdefault(project.schedule.webhook, []).append(project)
        for address, projects in by_address.items():
            hints = {project.name: self.hint_of(project) for project in projects}
            webhooks = Webhooks(address, _secret(projects[0]), hints, self.trouble)
            self._webhooks.append(webhooks)

    def hint_of(self, project: Project) -> Callable[[], None]:
        """What a webhook of this project calls."""
        debounce = Debounce(project.schedule.debounce, project.schedule.debounce_at_most)
        return lambda: self._hints.take(project, debounce)

    def _hint_job(self, project: Project, when: datetime) -> None:
        kind: Kind = "hint" if project.schedule.after_annotations is None else "peek"
        trigger = Soon(project.schedule.debounce_at_most)
        self._add(project, Wanted(kind, "soon, because of a webhook", trigger), next_run_time=when)


class _Hints:
    """Takes hints without waiting for the database, and writes down when to run, in a thread of its own."""

    def __init__(self, write: Callable[[Project, datetime], None], stop: threading.Event) -> None:
        self._write, self._stopping = write, stop
        self._taken: dict[str, tuple[Project, datetime]] = {}
        self._lock, self._news = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="hitl hints", daemon=True)

    def take(self, project: Project, debounce: Debounce) -> None:
        """A hint, now."""
        with self._lock:
            self._taken[f"{project.store} {project.name}"] = (project, debounce.hint(datetime.now(UTC)))
        self._news.set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After the last hint taken was written."""
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping.is_set() or self._taken:
            self._news.wait()
            self._news.clear()
            with self._lock:
                taken, self._taken = self._taken, {}
            for project, when in taken.values():
                with suppress(Exception):  # it was only a hint, and the next one comes
                    self._write(project, when)


def _going_on(trigger: Trigger, when: datetime) -> Trigger:
    """The trigger with the times of a job that was there before."""
    return replace(trigger, start=when) if isinstance(trigger, Every) else trigger


def _ids(project: Project) -> list[str]:
    """The ids of the jobs that a project may have by its settings."""
    schedule = project.schedule
    has: Mapping[Kind, object] = {
        "every": schedule.every,
        "cron": schedule.cron,
        "hint": not schedule.after_annotations,  # whoever hears them: `schedule.webhook`, or the service
        "look": schedule.after_annotations,
        "peek": schedule.after_annotations,
    }
    return [job_id(project.name, kind) for kind in KINDS if has[kind]]
