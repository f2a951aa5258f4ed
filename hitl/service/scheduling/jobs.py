"""APScheduler's jobs, of which our own database keeps the times, so that what is due survives the process.

A row says when a job comes next, and in words what the settings were. How it goes on comes from the settings of the
process that reads it: nothing in the database names code or is unpickled, and a row that was tampered with can at
most make one run come early.

APScheduler 3 moves a job on to its next time as soon as it has handed it to a thread, and a process killed then has
lost the run. Here a job that is due is written into the ledger before it is handed out; only then does it move on.

A time that is further away than the settings can mean was written while a clock was ahead: it is brought back.

Several schedulers may keep different projects in one store, and two may keep the same one: each reads only the jobs of
its own projects, and a job that another has moved on or removed meanwhile is no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa
from apscheduler.job import Job
from apscheduler.jobstores.base import BaseJobStore

from hitl.errors import StoreError
from hitl.service.scheduling import ledger
from hitl.service.scheduling.ledger import TABLES, Ledger
from hitl.service.scheduling.triggers import Soon, Trigger
from hitl.service.scheduling.worker import once
from hitl.store.database import Database
from hitl.store.schema import KEY

next_run = sa.Table(
    "hitl_next_run",
    TABLES,
    sa.Column("id", KEY, primary_key=True),
    sa.Column("time", sa.Double(), nullable=False),
    sa.Column("said", sa.Text(), nullable=False),
    sa.Column("config", sa.Text(), nullable=False),
)

FORMER = "hitl_job"
"""The table that held pickled jobs up to version 0.1.0. It is dropped and never read."""

KEPT = {"coalesce": True, "misfire_grace_time": None, "max_instances": 1}
"""How every job is kept: missed runs are one, however late."""

Kind = Literal["every", "cron", "hint", "look", "peek"]
"""A run at times of its own (every, cron) or soon, because of a webhook (hint); the same of a look for new annotations
(look, peek)."""

KINDS: tuple[Kind, ...] = ("every", "cron", "hint", "look", "peek")
LOOKS: tuple[Kind, ...] = ("look", "peek")
"""Nothing is lost with one of them: the next look sees what it would have seen."""

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""In place of a time that is none: the job is due now."""


def job_id(project: str, kind: Kind) -> str:
    """The stable id of a project's job: "look:reviews"."""
    return f"{kind}:{project}"


def parts_of(identity: str) -> tuple[Kind, str]:
    """Kind and project of a job's id."""
    kind, _, project = identity.partition(":")
    return kind, project  # type: ignore[return-value]


class Row(NamedTuple):
    """A job as it is written: when it comes next, by which settings (in words), for which hitl.toml."""

    time: datetime
    said: str
    config: str


class Jobs(BaseJobStore):  # type: ignore[misc]
    """The jobs of some projects in one store, and the ledger beside them."""

    def __init__(self, database: Database, projects: Iterable[str]) -> None:
        self.ledger = Ledger(database)
        self._database = database
        self._mine = next_run.c.id.in_([job_id(project, kind) for project in projects for kind in KINDS])
        self._triggers: dict[str, Trigger] = {}
        ledger.create(database, (ledger.schedule, next_run), former=FORMER)

    def know(self, identity: str, trigger: Trigger) -> None:
        """How the job of this id goes on, whose time is in the database already."""
        self._triggers[identity] = trigger

    def get_due_jobs(self, now: datetime) -> list[Job]:
        """The jobs that are due, each in the ledger by the time it was due at; the error of a database is raised."""
        jobs = self.get_all_jobs()
        due = [job for job in jobs if job.next_run_time <= now]
        runs = [
            (project, now if job.next_run_time == NO_TIME else job.next_run_time)
            for job in due
            for kind, project in [parts_of(job.id)]
            if kind not in LOOKS
        ]
        if runs:
            self.ledger.mark(runs, now)
        for job in jobs[len(due) :]:
            self._bring_back(job, now)
        return due

    def _bring_back(self, job: Job, now: datetime) -> None:
        latest = job.trigger.latest(now)
        if latest is not None and job.next_run_time > latest:
            job._modify(next_run_time=latest)
            self.update_job(job)

    def get_next_run_time(self) -> datetime | None:
        """When the next job of these projects is due."""
        return min((when for _, when in self._times()), default=None)

    def get_all_jobs(self) -> list[Job]:
        """The jobs of these projects, the next one first."""
        return [self._job(identity, when) for identity, when in sorted(self._times(), key=lambda row: row[1])]

    def lookup_job(self, job_id: str) -> Job | None:
        """The job of this id; None also for one that cannot be read: it will be made again."""
        row = self.row(job_id)
        return None if row is None else self._job(job_id, row.time, name=row.said or job_id, args=(row.config,))

    def row(self, identity: str) -> Row | None:
        """What is written of a job; None also where that cannot be read."""
        columns: tuple[Any, ...] = (sa.cast(next_run.c.time, sa.Double()), next_run.c.said, next_run.c.config)
        try:
            rows = self._database.rows(sa.select(*columns).where(self._mine, next_run.c.id == identity))
        except StoreError:  # text that is none; where the database fails, writing it again fails too
            return None
        found = [Row(_time(seconds), str(said), str(config)) for seconds, said, config in rows]
        return next((row for row in found if row.time != NO_TIME), None)

    def add_job(self, job: Job) -> None:
        """Write a job, in place of any of the same id."""
        self._triggers[job.id] = job.trigger
        row = {"id": job.id, "time": job.next_run_time.timestamp(), "said": job.name, "config": str(job.args[0])}
        with self._database.write() as connection:
            self._database.upsert(connection, next_run, [row])

    def update_job(self, job: Job) -> None:
        """Write when a job comes next; nothing happens when it is gone."""
        moved = sa.update(next_run).where(next_run.c.id == job.id).values(time=job.next_run_time.timestamp())
        with self._database.write() as connection:
            connection.execute(moved)

    def remove_job(self, job_id: str) -> None:
        """Remove a job; nothing happens when it is gone."""
        with self._database.write() as connection:
            connection.execute(sa.delete(next_run).where(next_run.c.id == job_id))

    def remove_all_jobs(self) -> None:
        """Remove the jobs of these projects."""
        with self._database.write() as connection:
            connection.execute(sa.delete(next_run).where(self._mine))

    def clean(self, wanted: Sequence[str]) -> None:
        """Remove the jobs of these projects that are not wanted; those of others are others' (a clock may be wrong)."""
        with self._database.write() as connection:
            connection.execute(sa.delete(next_run).where(self._mine & next_run.c.id.not_in(wanted)))

    def _times(self) -> list[tuple[str, datetime]]:
        # SQLite keeps anything in any column: cast, what is no number is 0.
        query = sa.select(next_run.c.id, sa.cast(next_run.c.time, sa.Double())).where(self._mine)
        return [(identity, _time(seconds)) for identity, seconds in self._database.rows(query)]

    def _job(self, identity: str, when: datetime, **said: Any) -> Job:
        said = {"name": identity, "args": (identity,)} | said
        how = {"trigger": self._triggers.get(identity, Soon()), "executor": self._alias, "kwargs": {}, **KEPT}
        return Job(self._scheduler, id=identity, func=once, next_run_time=when, **how, **said)


def _time(seconds: float) -> datetime:
    """The time, or NO_TIME for what cannot be one."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else NO_TIME
    except (ValueError, OverflowError, OSError):
        return NO_TIME
