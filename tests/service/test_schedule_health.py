"""/health: it fails when no cycle of a project finishes, and says which."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hitl.errors import Refused, Unreachable
from hitl.service.scheduling import worker as workers
from hitl.service.scheduling.health import is_late
from hitl.service.scheduling.ledger import name_of
from hitl.service.scheduling.scheduler import Scheduler, projects_of
from hitl.settings import ScheduleSettings
from tests.scheduled import T0, Told, project


@pytest.mark.parametrize(
    ("schedule", "begun", "minutes", "late"),
    [
        ({"every": "15m"}, None, 45, False),
        ({"every": "15m"}, None, 46, True),
        ({"every": "15m", "late_after": 1}, None, 16, True),
        ({"cron": "*/15 * * * *"}, None, 59, False),
        ({"cron": "*/15 * * * *"}, None, 61, True),
        ({"cron": "0 3 * * *"}, None, 60 * 24 * 3, False),
        ({"cron": "0 3 * * *"}, None, 60 * 24 * 4, True),
        ({"webhook": "127.0.0.1:1"}, None, 60 * 24 * 365, False),
        ({"webhook": "127.0.0.1:1"}, T0, 30, False),
        ({"webhook": "127.0.0.1:1"}, T0, 31, True),
        ({"after_annotations": 5}, T0, 31, True),
    ],
)
def test_so_many_periods_without_a_finished_cycle_are_too_many(
    schedule: dict[str, Any], begun: Any, minutes: int, late: bool
) -> None:
    assert is_late(ScheduleSettings(**schedule), T0, begun, T0 + timedelta(minutes=minutes)) == late


@pytest.mark.parametrize("error", [Refused("no"), Unreachable("down")])
def test_health_names_the_project_whose_cycles_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One of two fails time and again; the other is served."""
    now, store = T0, f"sqlite:///{tmp_path}/hitl.db"
    monkeypatch.setattr(workers, "clock", lambda: now)
    configs = [project(tmp_path / name, name=name, store=store) for name in ("good", "bad")]
    scheduler = Scheduler(projects_of(configs), Told())
    monkeypatch.setattr(Scheduler, "alive", True)
    monkeypatch.setattr("hitl.service.scheduling.scheduler.datetime", _Clock(lambda: now))
    run = workers.run_if_changed
    monkeypatch.setattr(
        workers, "run_if_changed", lambda s, *a, **o: run(s, *a, **o) if s.name == "good" else _raise(error)
    )
    (jobs,) = scheduler.jobs.values()
    for _ in range(4):
        assert scheduler.trouble() is None or now > T0 + timedelta(hours=3)
        now += timedelta(hours=1)
        jobs.ledger.mark([("good", now), ("bad", now)], now)
        for worker in scheduler._workers.values():
            worker.turn()
    trouble = scheduler.trouble()
    assert trouble == {"status": "late", "projects": {"bad": "no cycle has finished since 2026-11-20 12:00:00Z"}}
    jobs.ledger.mark([("bad", now + timedelta(minutes=1))], now + timedelta(minutes=1))
    now += timedelta(minutes=1)
    monkeypatch.setattr(workers, "run_if_changed", run)
    scheduler._workers[store, "bad"].turn()
    assert scheduler.trouble() is None
    scheduler.stop()


def test_what_another_scheduler_has_done_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = T0
    monkeypatch.setattr(workers, "clock", lambda: now)
    monkeypatch.setattr(Scheduler, "alive", True)
    monkeypatch.setattr("hitl.service.scheduling.scheduler.datetime", _Clock(lambda: now))
    scheduler = Scheduler(projects_of([project(tmp_path)]), Told())
    (jobs,) = scheduler.jobs.values()
    now += timedelta(hours=3, minutes=1)
    assert scheduler.trouble() is not None
    jobs.ledger.mark([("p", now)], now)
    jobs.ledger.done("p", name_of(now))
    assert scheduler.trouble() is None
    scheduler.stop()


def _raise(error: Exception) -> Any:
    raise error


class _Clock:
    def __init__(self, now: Any) -> None:
        self.now = lambda zone: now()


def test_looks_that_fail_time_and_again_are_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run becomes due where nothing new can be seen."""
    now = T0
    monkeypatch.setattr(workers, "clock", lambda: now)
    config = project(tmp_path, name="p", store=f"sqlite:///{tmp_path}/hitl.db")
    scheduler = Scheduler(projects_of([config]), Told())
    (worker,) = scheduler._workers.values()
    with monkeypatch.context() as broken:
        broken.setattr(workers, "pull", lambda *_: _raise(Unreachable("down")))
        for _ in range(3):
            worker.wake(look=True)
            worker.turn()
            now += timedelta(minutes=20)
    assert worker.finished() == (T0, T0)
    now = T0 - timedelta(days=1)  # the clock was ahead
    assert worker.finished() == (now, now)
    worker.wake(look=True)
    worker.turn()
    assert worker.finished()[1] is None


def test_cycles_that_fail_are_late_though_looks_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = T0
    monkeypatch.setattr(workers, "clock", lambda: now)
    monkeypatch.setattr(workers, "run_if_changed", lambda *_, **__: _raise(Unreachable("down")))
    scheduler = Scheduler(projects_of([project(tmp_path, name="p", store=f"sqlite:///{tmp_path}/hitl.db")]), Told())
    (worker,) = scheduler._workers.values()
    for _ in range(3):
        worker.wake(look=True)
        worker.turn()
        now += timedelta(minutes=20)
    assert worker.finished()[1] == T0
