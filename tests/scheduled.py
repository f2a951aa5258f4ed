"""What the tests of the scheduler share."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hitl.service.scheduling import scheduler as scheduling
from hitl.service.scheduling import worker as workers
from hitl.service.scheduling.jobs import KEPT, Jobs, Kind, job_id, next_run
from hitl.service.scheduling.triggers import Every
from hitl.store.database import Database


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def make_due(url: str, project: str, kind: Kind = "every") -> datetime:
    """The project's job of this kind, at intervals, is due now; when that is."""
    when = datetime.now(UTC)
    database = Database(url)
    Jobs(database, [project])
    with database.write() as connection:
        moved = sa.update(next_run).where(next_run.c.id == job_id(project, kind))
        assert connection.execute(moved.values(time=when.timestamp())).rowcount == 1
    database.close()
    return when


T0 = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROWS = [f"{n},{who},{(n + (who == 'cyd' and n % 3 == 0)) % 2}" for n in range(9) for who in ("ann", "bob", "cyd")]


def project(folder: Path, schedule: str = 'every = "1h"', name: str = "p", store: str = "sqlite:///hitl.db") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "annotations.csv").write_text("\n".join(["item,annotator,label", *ROWS]) + "\n")
    config = folder / "hitl.toml"
    config.write_text(
        f'name = "{name}"\nstore = "{store}"\n[source]\nkind = "tables"\npath = "."\n[schedule]\n{schedule}\n'
    )
    return config


def plainly(line: str, when: datetime) -> bool:
    """Whether a local time is one of a cron line: every number of a field tried, by name or number."""
    names = {name: n for n, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
    names |= {name: n for n, name in enumerate(("jan", "feb", "mar"), start=1)}
    weekday = (when.weekday() + 1) % 7
    values = (when.minute, when.hour, when.day, when.month, weekday)
    for word, value, low, high in zip(line.split(), values, (0, 0, 1, 1, 0), (59, 23, 31, 12, 6), strict=True):
        fits = False
        for part in word.split(","):
            span, _, step = part.partition("/")
            ends = [names.get(end, -1) if end in names else int(end) for end in span.split("-")] if span != "*" else []
            first = ends[0] if ends else low
            last = ends[1] if len(ends) == 2 else high if step or not ends else first
            fits |= value in range(first, last + 1, int(step or 1))
            fits |= word is line.split()[4] and 7 in ends and value == 0
        if not fits:
            return False
    return True


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, Mapping[str, Any]]] = []

    def __call__(self, event: str, project: str, said: Mapping[str, Any]) -> None:
        self.events.append((event, project, said))

    def __getitem__(self, event: str) -> list[Mapping[str, Any]]:
        return [said for name, _, said in self.events if name == event]


class Clockwork:
    """APScheduler's scheduler with a clock that is set by hand, its thread never started."""

    def __init__(self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.woken, self.jobs = T0, list[str](), jobs
        clock = self

        class Fake(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
                return clock.now.astimezone(tz)

        monkeypatch.setattr("apscheduler.schedulers.base.datetime", Fake)
        self.clock = scheduling.Clock(timezone=UTC, job_defaults=KEPT)
        self.clock.add_jobstore(jobs, "default")
        self.clock.add_executor(scheduling.Waking(self.woken.append), "default")
        super(type(self.clock).__mro__[2], self.clock).start(paused=False)  # BaseScheduler.start: no thread

    def every(self, project: str, seconds: float) -> None:
        first = {"next_run_time": self.now}
        self.clock.add_job(
            workers.once, Every(seconds, self.now), args=("x",), id=job_id(project, "every"), name="e", **first
        )

    def next_run(self) -> datetime | None:
        """When the next job is due."""
        return self.jobs.get_next_run_time()

    def tick(self, to: datetime) -> float | None:
        self.now = to
        return self.clock._process_jobs()


def clockwork(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Clockwork:
    monkeypatch.setattr(scheduling.Clock, "wakeup", lambda self: None)
    return Clockwork(jobs, monkeypatch)
