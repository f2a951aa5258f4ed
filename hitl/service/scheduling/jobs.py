"""APScheduler's jobs in our own database, so that what is due survives the process that should have run it.

APScheduler 3 moves a job on to its next time as soon as it has handed it to a thread, and a process killed then has
lost the run. Here a job that is due is written into the ledger before it is handed out; only then does it move on.

Several schedulers may keep different projects in one store, and two may keep the same one: each reads only the jobs of
its own projects, and a job that another has moved on or removed meanwhile is no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa
from apscheduler.job import Job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.util import utc_timestamp_to_datetime

from hitl.service.scheduling import ledger
from hitl.service.scheduling.ledger import Ledger
from hitl.store.database import Database

TABLE = "hitl_job"

Kind = Literal["every", "cron", "hint", "look", "peek"]
"""A run at times of its own (every, cron) or soon, because of a webhook (hint); the same of a look for new annotations
(look, peek)."""

KINDS: tuple[Kind, ...] = ("every", "cron", "hint", "look", "peek")
LOOKS: tuple[Kind, ...] = ("look", "peek")
"""Nothing is lost with one of them: the next look sees what it would have seen."""

FORGOTTEN = timedelta(days=1)
"""A job that far overdue belongs to a project that is no longer configured anywhere."""


def job_id(project: str, kind: Kind) -> str:
    """The stable id of a project's job: "look:reviews"."""
    return f"{kind}:{project}"


def parts_of(identity: str) -> tuple[Kind, str]:
    """Kind and project of a job's id."""
    kind, _, project = identity.partition(":")
    return kind, project  # type: ignore[return-value]


class Jobs(SQLAlchemyJobStore):  # type: ignore[misc]
    """The jobs of some projects in one store, and the ledger beside them."""

    def __init__(self, database: Database, projects: Iterable[str]) -> None:
        super().__init__(engine=database.engine, tablename=TABLE, metadata=sa.MetaData())
        self.ledger = Ledger(database)
        self._mine = self.jobs_t.c.id.in_([job_id(project, kind) for project in projects for kind in KINDS])
        ledger.create(database, (ledger.schedule, self.jobs_t))

    def start(self, scheduler: Any, alias: str) -> None:
        """Take the scheduler; the tables are there."""
        self._scheduler, self._alias = scheduler, alias

    def shutdown(self) -> None:
        """The connections are the store's."""

    def get_due_jobs(self, now: datetime) -> list[Job]:
        """The jobs that are due, each in the ledger by the time it was due at; the error of a database is raised."""
        jobs: list[Job] = super().get_due_jobs(now)
        runs = [
            (project, job.next_run_time) for job in jobs for kind, project in [parts_of(job.id)] if kind not in LOOKS
        ]
        if runs:
            self.ledger.mark(runs)
        return jobs

    def get_next_run_time(self) -> datetime | None:
        """When the next job of these projects is due."""
        query = sa.select(sa.func.min(self.jobs_t.c.next_run_time)).where(self._mine)
        with self.engine.begin() as connection:
            found: datetime | None = utc_timestamp_to_datetime(connection.execute(query).scalar())
        return found

    def lookup_job(self, job_id: str) -> Job | None:
        """The job of this id; None also for one that cannot be read (of another version): it will be made again."""
        try:
            return super().lookup_job(job_id)
        except Exception:
            self.remove_job(job_id)
            return None

    def update_job(self, job: Job) -> None:
        """Write a job; nothing happens when it is gone."""
        with suppress(JobLookupError):
            super().update_job(job)

    def remove_job(self, job_id: str) -> None:
        """Remove a job; nothing happens when it is gone."""
        with suppress(JobLookupError):
            super().remove_job(job_id)

    def clean(self, wanted: Sequence[str], now: datetime) -> None:
        """Remove the jobs of these projects that are not wanted, and those of others that are no longer kept."""
        mine = self._mine & self.jobs_t.c.id.not_in(wanted)
        forgotten = ~self._mine & (self.jobs_t.c.next_run_time < (now - FORGOTTEN).astimezone(UTC).timestamp())
        with self.engine.begin() as connection:
            connection.execute(sa.delete(self.jobs_t).where(mine | forgotten))

    def _get_jobs(self, *conditions: Any) -> list[Job]:
        jobs: list[Job] = super()._get_jobs(self._mine, *conditions)
        return jobs
