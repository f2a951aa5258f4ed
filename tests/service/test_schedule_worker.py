"""One project's worker: what is due is done once, what may pass is tried again, over a real store and tables."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.errors import BadInput, Busy, Refused, StoreError, Unreachable
from hitl.platform import Progress, silent
from hitl.project import opened
from hitl.service.scheduling import worker as workers
from hitl.service.scheduling.jobs import Jobs
from hitl.service.scheduling.ledger import Ledger, name_of
from hitl.service.scheduling.scheduler import projects_of
from hitl.service.scheduling.worker import LAST_BUSY_RETRY, LAST_RETRY, Assignment, Stopped, Worker, retry_delay
from hitl.store import Store
from hitl.store.database import Database
from tests.scheduled import ROWS, T0, Told, clockwork, project

# -- worker ------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is about T0, whatever time it is where the tests run: what was due before a cycle begins is done with it."""
    seconds = itertools.count()
    monkeypatch.setattr(workers, "clock", lambda: T0 + timedelta(seconds=next(seconds)))


def worker_of(
    config: Path, told: Told, after: int | None = None, progress: Progress = silent
) -> tuple[Worker, Ledger, threading.Event]:
    (found,) = projects_of([config])
    database = Database(found.store)
    ledger = Jobs(database, [found.name]).ledger
    stop = threading.Event()
    return Worker(Assignment(found.name, found.config, after), ledger, stop, told, progress), ledger, stop


def die(*arguments: Any, by_hand: bool = False, **options: Any) -> Iterator[Any]:
    """In place of a push: the end, but for what was queued by hand, which is nothing."""
    if not by_hand:
        raise KeyboardInterrupt
    return iter(())


def history(config: Path) -> list[dict[str, Any]]:
    (found,) = projects_of([config])
    with Store(found.store) as store:
        return [dict(each.metrics) for each in store.cycles(found.name)]


def test_a_due_run_is_one_cycle_under_its_name(tmp_path: Path) -> None:
    told, config = Told(), project(tmp_path)
    worker, ledger, _ = worker_of(config, told)
    assert worker.turn() is None
    ledger.mark([("p", T0)], T0)
    assert worker.turn() == 0.0
    assert worker.turn() is None
    assert [each["due"] for each in history(config)] == [name_of(T0)]
    assert told["done"][0]["labels"] == 27
    assert [event for event, _, _ in told.events] == ["began", "done"]


def test_a_recorded_run_that_was_not_done_is_only_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, config = Told(), project(tmp_path)
    worker, ledger, _ = worker_of(config, told)
    ledger.mark([("p", T0)], T0)

    with monkeypatch.context() as killed:
        killed.setattr(cycle, "push", die)
        with pytest.raises(KeyboardInterrupt):
            worker.turn()
    with (tmp_path / "annotations.csv").open("a") as table:
        table.write("0,zoe,1\n1,zoe,0\n")  # not to be pulled now
    assert worker.turn() == 0.0
    assert [each["labels"] for each in history(config)] == [27]
    assert told["done"][0]["operations"] == 3
    assert (tmp_path / "hitl-output" / "consensus.csv").exists()
    ledger.mark([("p", T0 + timedelta(hours=1))], T0 + timedelta(hours=1))
    worker.turn()
    assert [each["labels"] for each in history(config)] == [27, 29]


@pytest.mark.parametrize(
    ("error", "delays"),
    [
        (Unreachable("down"), [5.0, 10.0, 20.0]),
        (Unreachable("slow down", retry_after=42.0), [42.0, 42.0, 42.0]),
        (Busy("held by another"), [5.0, 10.0, 20.0]),
        (StoreError("locked"), [5.0, 10.0, 20.0]),
        (OSError(28, "disk full"), [5.0, 10.0, 20.0]),
    ],
)
def test_what_may_pass_is_tried_again_ever_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, delays: list[float]
) -> None:
    told, config = Told(), project(tmp_path)
    worker, ledger, _ = worker_of(config, told)
    ledger.mark([("p", T0)], T0)
    with monkeypatch.context() as failing:
        failing.setattr(workers, "run_if_changed", lambda *a, **o: (_ for _ in ()).throw(error))
        assert [worker.turn() for _ in delays] == delays
        assert ledger.pending("p") == name_of(T0)
    assert [said["seconds"] for said in told["waits"]] == delays
    assert worker.turn() == 0.0
    assert len(history(config)) == 1
    ledger.mark([("p", T0 + timedelta(hours=1))], T0 + timedelta(hours=1))
    monkeypatch.setattr(workers, "run_if_changed", lambda *a, **o: (_ for _ in ()).throw(Busy("again")))
    assert worker.turn() == 5.0


def test_retries_do_not_grow_for_ever() -> None:
    assert retry_delay(9, StoreError("")) == retry_delay(10_000, StoreError("")) == LAST_RETRY
    assert retry_delay(9, Busy("")) == retry_delay(10_000, Busy("")) == LAST_BUSY_RETRY, "whoever holds it may end soon"
    for asked in (86_400.0, 1e10, float("inf")):
        assert retry_delay(1, Unreachable("", asked)) == LAST_RETRY, "whatever the platform asks for"


def test_what_another_scheduler_has_done_is_no_failure_of_this_one(tmp_path: Path) -> None:
    told, config = Told(), project(tmp_path)
    worker, ledger, _ = worker_of(config, told)
    (found,) = projects_of([config])
    for number in range(4):
        due = T0 + timedelta(minutes=number)
        ledger.mark([("p", due)], due)
        with Store(found.store) as store, store.lease("p"):
            assert worker.turn() == workers.FIRST_RETRY, "the waits do not grow from run to run"
        assert worker.finished()[1] is not None
        ledger.done("p", name_of(due))
        assert worker.turn() is None
        assert worker.finished()[1] is None, "nothing is tried any more"


def test_what_was_missed_while_the_process_stood_still_is_one_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock sees T0, then nothing moves for 14 s, in which T0 + 5 s and T0 + 10 s are missed.

    APScheduler moves the job on from the time at which it began to look, so that T0 + 5 s is due again at once, after
    the cycle of T0 has begun. That cycle saw all that a second one would see.
    """
    monkeypatch.setattr(workers, "run_if_changed", cycle.run)  # every one is recorded
    told, config = Told(), project(tmp_path)
    worker, _, _ = worker_of(config, told)
    clock = clockwork(Jobs(Database(f"sqlite:///{tmp_path}/hitl.db"), ["p"]), monkeypatch)
    monkeypatch.setattr(workers, "clock", lambda: clock.now)
    clock.every("p", 5)
    clock.tick(T0)
    clock.now = T0 + timedelta(seconds=14)
    assert worker.turn() == 0.0
    clock.tick(clock.now)
    assert clock.woken == ["every:p"] * 2
    assert worker.turn() is None
    assert [each["due"] for each in history(config)] == [name_of(T0)]
    clock.tick(T0 + timedelta(seconds=15))  # not missed: a run of its own
    assert worker.turn() == 0.0
    assert worker.turn() is None
    assert [each["due"] for each in history(config)] == [name_of(T0), name_of(T0 + timedelta(seconds=15))]


def test_what_falls_due_during_a_cycle_is_not_covered_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything by a cycle of before a crash that is only pushed, or by one that has to be tried again."""
    monkeypatch.setattr(workers, "run_if_changed", cycle.run)  # every one is recorded
    told, config = Told(), project(tmp_path)
    during: list[Callable[[], Any]] = []
    worker, ledger, _ = worker_of(config, told, progress=lambda what, done, total: [each() for each in during])
    now = T0 + timedelta(seconds=14)
    monkeypatch.setattr(workers, "clock", lambda: now)
    later = [T0 + timedelta(seconds=seconds) for seconds in (14.5, 20, 21, 30)]
    ledger.mark([("p", T0)], T0)
    during.append(lambda: ledger.mark([("p", later[0])], later[0]))
    assert worker.turn() == 0.0
    during.clear()
    assert ledger.pending("p") == name_of(later[0])

    now = later[1]
    with monkeypatch.context() as killed:
        killed.setattr(cycle, "push", die)
        with pytest.raises(KeyboardInterrupt):
            worker.turn()
    now = later[3]
    assert worker.turn() == 0.0  # pushes what was recorded at later[1]
    ledger.mark([("p", later[2])], later[2])
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store, store.lease("p"):
        assert worker.turn() == 5.0
    assert ledger.pending("p") == name_of(later[2])
    assert worker.turn() == 0.0
    assert [each["due"] for each in history(config)] == [name_of(T0), name_of(later[0]), name_of(later[2])]


@pytest.mark.parametrize("error", [Refused("no rights"), BadInput("wrong"), ZeroDivisionError("a bug")])
def test_what_will_not_pass_is_told_and_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    told, config = Told(), project(tmp_path)
    worker, ledger, _ = worker_of(config, told)
    ledger.mark([("p", T0)], T0)
    monkeypatch.setattr(workers, "run_if_changed", lambda *a, **o: (_ for _ in ()).throw(error))
    assert worker.turn() == 0.0
    assert told["failed"][0]["error"] == type(error).__name__
    assert worker.turn() is None


def test_a_held_project_is_busy_and_then_run(tmp_path: Path) -> None:
    told, config = Told(), project(tmp_path)
    worker, ledger, _ = worker_of(config, told)
    ledger.mark([("p", T0)], T0)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store, store.lease("p"):
        assert worker.turn() == 5.0
    assert told["waits"][0]["error"] == "Busy"
    assert worker.turn() == 0.0


def test_a_project_that_changed_its_name_is_not_run_under_the_old_one(tmp_path: Path) -> None:
    told, config = Told(), project(tmp_path)
    worker, ledger, _ = worker_of(config, told)
    ledger.mark([("p", T0)], T0)
    config.write_text(config.read_text().replace('name = "p"', 'name = "q"'))
    assert worker.turn() == 0.0
    assert "restart `hitl schedule`" in told["failed"][0]["message"]
    assert history(config) == []


def test_enough_new_annotations_make_a_run_due(tmp_path: Path) -> None:
    told, config = Told(), project(tmp_path, "after_annotations = 5")
    worker, ledger, _ = worker_of(config, told, after=5)

    def look(new: int) -> int:
        rows = [*ROWS, *(f"{n},dee,1" for n in range(new))]
        (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
        worker.wake(look=True)
        while worker.turn() == 0.0:
            pass
        return len(history(config))

    assert look(0) == 1  # there was no cycle yet
    assert look(0) == 1
    assert look(4) == 1
    assert look(5) == 2
    assert look(7) == 2
    assert look(0) == 3  # five are gone
    assert [said["new"] for said in told["looked"]] == [None, 5, 5]
    assert ledger.pending("p") is None


def test_a_cycle_by_hand_makes_no_look_start_another(tmp_path: Path) -> None:
    """It counts no annotations: where nothing has come since, all of them seemed new."""
    told, config = Told(), project(tmp_path, "after_annotations = 5")
    worker, _, _ = worker_of(config, told, after=5)
    with opened(config) as (settings, store, connector):
        cycle.run(settings, store, connector)
    for _ in range(2):
        worker.wake(look=True)
        while worker.turn() == 0.0:
            pass
    assert (len(history(config)), told["looked"]) == (1, [])


def test_a_look_that_fails_is_told_and_leaves_the_runs_alone(tmp_path: Path) -> None:
    told, config = Told(), project(tmp_path, "after_annotations = 5")
    worker, ledger, _ = worker_of(config, told, after=5)
    ledger.mark([("p", T0)], T0)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store, store.lease("p"):
        worker.wake(look=True)
        worker.turn()
    assert told["failed"] == []
    (tmp_path / "annotations.csv").write_text("nonsense\n")
    worker.wake(look=True)
    worker.turn()
    assert told["failed"][0]["look"] is True


def test_a_stop_leaves_the_cycle_at_its_next_step_and_the_run_due(tmp_path: Path) -> None:
    told, config = Told(), project(tmp_path)

    def progress(what: str, done: int, total: int | None) -> None:
        if what == "recorded":
            stop.set()

    worker, ledger, stop = worker_of(config, told, progress=progress)
    ledger.mark([("p", T0)], T0)
    with pytest.raises(Stopped):
        worker.turn()
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        assert len(store.pending("p")) == 3
        with store.lease("p"):
            pass  # given back
    stop.clear()
    assert worker.turn() == 0.0
    assert len(history(config)) == 1
