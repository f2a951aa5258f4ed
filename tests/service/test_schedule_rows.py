"""Clocks that jump, and rows that somebody else wrote into the scheduler's tables."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from apscheduler.triggers.base import BaseTrigger

from hitl.service.scheduling import worker as workers
from hitl.service.scheduling.hints import Debounce
from hitl.service.scheduling.jobs import FORMER, Jobs, job_id, next_run
from hitl.service.scheduling.ledger import Ledger, name_of, schedule
from hitl.service.scheduling.scheduler import Scheduler, projects_of
from hitl.service.scheduling.triggers import Cron, Every, Soon
from hitl.store.database import Database
from tests.scheduled import T0, Clockwork, Told, clockwork, project
from tests.store.conftest import postgres, postgres_url, sqlite_url, url

__all__ = ["postgres", "postgres_url", "sqlite_url", "url"]


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.close()


# -- clocks ------------------------------------------------------------------------------------------------


def cycles(clock: Clockwork, minutes: int) -> int:
    """How many cycles run in so many minutes from now on, each done at once."""
    ran = 0
    for _ in range(minutes):
        clock.tick(clock.now + timedelta(minutes=1))
        due = clock.jobs.ledger.pending("p")
        if due is not None:
            clock.jobs.ledger.done("p", max(due, name_of(clock.now)))
            ran += 1
    return ran


@pytest.mark.parametrize("ahead", [timedelta(minutes=10), timedelta(days=1), timedelta(days=400)])
@pytest.mark.parametrize("trigger", [Every(900, T0), Cron("*/15 * * * *", "UTC")])
def test_a_clock_that_was_ahead_silences_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch, ahead: timedelta, trigger: BaseTrigger
) -> None:
    clock = clockwork(Jobs(database, ["p"]), monkeypatch)
    clock.clock.add_job(workers.once, trigger, args=("x",), id=job_id("p", "every"), name="e", next_run_time=T0)
    assert cycles(clock, 60) == 5
    clock.now += ahead
    assert cycles(clock, 31) in (2, 3)
    clock.now -= ahead
    assert cycles(clock, 120) in (8, 9)


def test_a_job_first_written_while_the_clock_was_ahead_comes_within_its_period(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clockwork(Jobs(database, ["p"]), monkeypatch)
    clock.now += timedelta(days=1)
    clock.every("p", 900)
    clock.now = T0
    assert cycles(clock, 60) == 4


def test_a_restart_finds_a_job_of_the_future(tmp_path: Path) -> None:
    config, told = project(tmp_path), Told()

    def next_of(scheduler: Scheduler) -> datetime:
        scheduler.prepare()
        (row,) = scheduler.next_runs()
        scheduler.stop()
        when: datetime = row["next"]
        return when

    next_of(Scheduler(projects_of([config]), told))
    database, far = Database(f"sqlite:///{tmp_path}/hitl.db"), datetime.now(UTC) + timedelta(days=30)
    with database.write() as connection:
        connection.execute(sa.update(next_run).values(time=far.timestamp()))
    again = Scheduler(projects_of([config]), told)
    again.prepare()
    (jobs,) = again.jobs.values()
    jobs.get_due_jobs(datetime.now(UTC))  # what the clock does at least every minute
    (row,) = again.next_runs()
    assert row["next"] <= datetime.now(UTC) + timedelta(hours=1)
    again.stop()
    database.close()


def test_a_hint_of_a_clock_that_was_ahead_is_due_soon(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clockwork(Jobs(database, ["p"]), monkeypatch)
    hint = {"args": ("x",), "id": job_id("p", "hint"), "name": "h"}
    clock.clock.add_job(workers.once, Soon(120.0), next_run_time=T0 + timedelta(days=1), **hint)
    assert cycles(clock, 4) == 1
    debounce = Debounce(10.0, 120.0)
    debounce.hint(T0 + timedelta(days=1))
    assert debounce.hint(T0) == T0 + timedelta(seconds=10)


# -- rows --------------------------------------------------------------------------------------------------


class Bomb:
    """What somebody who may write the database would like to have unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (open, (str(self.mark), "w"))


def test_the_pickled_jobs_of_earlier_versions_are_dropped_unread(database: Database, tmp_path: Path) -> None:
    metadata = sa.MetaData()
    former = sa.Table(
        FORMER,
        metadata,
        sa.Column("id", sa.Unicode(191), primary_key=True),
        sa.Column("next_run_time", sa.Double(), index=True),
        sa.Column("job_state", sa.LargeBinary(), nullable=False),
    )
    with database.write() as connection:
        metadata.create_all(connection)
        bomb = pickle.dumps(Bomb(tmp_path / "mark"))
        connection.execute(former.insert().values(id=job_id("p", "every"), next_run_time=0.0, job_state=bomb))
    jobs = Jobs(database, ["p"])
    assert jobs.get_due_jobs(T0) == jobs.get_all_jobs() == []
    assert jobs.lookup_job(job_id("p", "every")) is None
    assert not (tmp_path / "mark").exists()
    assert not sa.inspect(database.engine).has_table(FORMER)


@pytest.mark.parametrize("when", ["time", "said", "config"])
def test_what_stands_in_a_row_is_only_compared(tmp_path: Path, when: str) -> None:
    """Any value in any column, of the type of another: SQLite keeps it."""
    config, told = project(tmp_path), Told()
    Scheduler(projects_of([config]), told).stop()
    bomb = pickle.dumps(Bomb(tmp_path / "mark"))
    for value in (bomb, "__import__('os').abort()", b"\xff\xfe", "x" * 100_000, -1e308, 1e308, 1 << 62, "hitl.toml"):
        raw = sqlite3.connect(tmp_path / "hitl.db")
        row = {"id": job_id("p", "every"), "time": 0.0, "said": "every 1h", "config": str(config)} | {when: value}
        raw.execute("INSERT OR REPLACE INTO hitl_next_run VALUES (:id, :time, :said, :config)", row)
        raw.commit()
        raw.close()
        scheduler = Scheduler(projects_of([config]), told)
        scheduler.prepare()
        (jobs,) = scheduler.jobs.values()
        jobs.get_due_jobs(datetime.now(UTC))
        (job,) = scheduler.next_runs()
        scheduler.stop()
        assert job["when"] == "every 1h"
        assert job["next"] <= datetime.now(UTC) + timedelta(hours=1)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "text", ["", "no time", "2026-13-77", "9999-12-31T23:59:59.999999+00:00", "2099-01-01T00:00:00.000000+00:00", "~"]
)
@pytest.mark.parametrize("column", ["due", "done"])
def test_no_text_in_the_ledger_holds_back_what_is_due(database: Database, column: str, text: str) -> None:
    Jobs(database, ["p"])
    ledger = Ledger(database)
    with database.write() as connection:
        connection.execute(schedule.insert().values({"project": "p", "due": "", "done": ""} | {column: text}))
    for minutes in range(3):
        now = T0 + timedelta(minutes=minutes)
        ledger.mark([("p", now)], now)
        due = ledger.pending("p")
        assert due is not None
        datetime.fromisoformat(due)
        ledger.done("p", due)
        assert ledger.pending("p") is None
