"""One project's loop: what is due is done once, what may pass is tried again, over a real store and real tables.

The loop has no thread here: each turn is a call, at a time that is set by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.errors import BadInput, Busy, Refused, StoreError, Unreachable
from hitl.platform import Progress, silent
from hitl.project import opened
from hitl.service import loop as loops
from hitl.service.loop import LAST_BUSY_RETRY, LAST_RETRY, LONGEST, ProjectLoop, Stopped, is_late, retry_delay
from hitl.service.loops import Loops, projects_of
from hitl.settings.schedule import ScheduleSettings
from hitl.store import Store
from tests.scheduled import ROWS, T0, Clock, Told, history, project

HOUR = 'every = "1h"'


class Driven:
    """A loop over a project of tables, turned by hand."""

    def __init__(self, folder: Path, clock: Clock, schedule: str, progress: Progress = silent, **how: Any) -> None:
        self.config, self.told, self.clock = project(folder, schedule), Told(), clock
        self.progress, self.how, self.store = progress, how, Store(f"sqlite:///{folder}/hitl.db")
        self.started()

    def started(self) -> None:
        (found,) = projects_of([self.config])
        self.loops = Loops([found], self.told, self.progress, **self.how)
        (self.loop,) = self.loops.loops

    def turns(self) -> float:
        """Turn until there is nothing to do now; return the seconds to wait."""
        while not (seconds := self.loop.turn()):
            pass
        return seconds

    @property
    def cycles(self) -> int:
        return len(self.told["done"])


Drive = Callable[..., Driven]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """It is T0 for loops and for what is recorded."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr("hitl.store.database.Database.now", lambda self: clock.now.timestamp())
    return clock


@pytest.fixture
def drive(tmp_path: Path, clock: Clock) -> Iterator[Drive]:
    made: list[Driven] = []

    def of(schedule: str = HOUR, **how: Any) -> Driven:
        made.append(Driven(tmp_path / "p", clock, schedule, **how))
        return made[-1]

    yield of
    for one in made:
        one.store.close()


def fails(error: Exception) -> Callable[..., Any]:
    def fail(*given: Any, **named: Any) -> Any:
        raise error

    return fail


def die(*arguments: Any, by_hand: bool = False, **options: Any) -> Iterator[Any]:
    """In place of a push: the end, but for what was queued by hand, which is nothing."""
    if not by_hand:
        raise KeyboardInterrupt
    return iter(())


# -- when --------------------------------------------------------------------------------------------------


def test_a_cycle_runs_at_once_and_then_at_intervals(drive: Drive, clock: Clock) -> None:
    driven = drive()
    assert driven.turns() == LONGEST, "the clock may be set meanwhile"
    assert driven.told["done"][0]["labels"] == 27
    assert [event for event, _, _ in driven.told.events] == ["began", "done"]
    clock.later(minutes=59, seconds=50)
    assert driven.turns() == 10.0
    clock.later(seconds=10)
    driven.turns()
    assert (driven.cycles, len(history(driven.config))) == (2, 1), "nothing new is not recorded"


def test_a_restart_keeps_the_times_and_what_was_missed_is_one_run(drive: Drive, clock: Clock) -> None:
    driven = drive()
    driven.turns()
    clock.later(minutes=30)
    driven.started()
    driven.turns()
    assert driven.cycles == 1
    clock.later(days=3)
    driven.started()
    driven.turns()
    assert driven.cycles == 2
    driven.config.write_text(driven.config.read_text().replace(HOUR, 'cron = "0 3 * * *"'))
    driven.started()
    driven.turns()
    assert driven.cycles == 2
    clock.later(hours=15)  # over three o'clock
    driven.turns()
    driven.turns()
    assert driven.cycles == 3


@pytest.mark.parametrize("schedule", ['every = "15m"', 'cron = "*/15 * * * *"'])
@pytest.mark.parametrize("ahead", [timedelta(minutes=10), timedelta(days=400)])
def test_a_clock_that_was_ahead_silences_nothing(
    drive: Drive, clock: Clock, monkeypatch: pytest.MonkeyPatch, schedule: str, ahead: timedelta
) -> None:
    driven = drive(schedule)
    monkeypatch.setattr(loops, "run_if_changed", lambda *given, due: cycle.run(*given))  # every one is recorded

    def ran(minutes: int) -> int:
        before = driven.cycles
        for _ in range(minutes):
            clock.later(minutes=1)
            driven.turns()
        return driven.cycles - before

    assert ran(60) in (4, 5)
    clock.now += ahead
    assert ran(31) in (2, 3)
    clock.now -= ahead
    assert ran(60) in (4, 5)


def test_webhooks_are_debounced_into_one_run(drive: Drive, clock: Clock) -> None:
    driven = drive('webhook = "127.0.0.1:1"')
    driven.turns()
    for _ in range(20):
        driven.loop.hint()
        clock.later(seconds=1)
    assert driven.turns() == 9.0
    clock.later(seconds=9)
    driven.turns()
    assert driven.cycles == 1
    driven.loop.hint()
    clock.now -= timedelta(days=1)  # it was ahead
    driven.turns()
    assert driven.cycles == 2
    clock.later(minutes=5)
    driven.turns()
    assert driven.cycles == 2


# -- runs that fail or are killed --------------------------------------------------------------------------


def test_a_recorded_run_that_was_killed_only_pushes_the_rest(
    drive: Drive, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = drive()
    with monkeypatch.context() as killed:
        killed.setattr(cycle, "push_collecting_errors", die)
        with pytest.raises(KeyboardInterrupt):
            driven.turns()
    driven.started()
    driven.turns()
    assert [each["labels"] for each in history(driven.config)] == [27]
    assert driven.told["done"][0]["operations"] == 3
    assert (driven.config.parent / "hitl-output" / "consensus.csv").exists()


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
def test_what_may_pass_is_tried_again_later_and_later(
    drive: Drive, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception, delays: list[float]
) -> None:
    driven = drive()
    with monkeypatch.context() as failing:
        failing.setattr(loops, "run_if_changed", fails(error))
        for delay in delays:
            assert driven.turns() == delay
            clock.later(seconds=delay)
    assert [said["seconds"] for said in driven.told["waits"]] == delays
    assert len({said["due"] for said in driven.told["began"]}) == 1, "the same run"
    driven.turns()
    assert driven.cycles == len(history(driven.config)) == 1
    clock.later(hours=1)
    monkeypatch.setattr(loops, "run_if_changed", fails(Busy("again")))
    assert driven.turns() == 5.0


def test_retries_do_not_grow_for_ever() -> None:
    assert retry_delay(9, StoreError("")) == retry_delay(10_000, StoreError("")) == LAST_RETRY
    assert retry_delay(9, Busy("")) == retry_delay(10_000, Busy("")) == LAST_BUSY_RETRY, "whoever holds it may end soon"
    for asked in (86_400.0, 1e10, float("inf")):
        assert retry_delay(1, Unreachable("", asked)) == LAST_RETRY, "whatever the platform asks for"


@pytest.mark.parametrize("error", [Refused("no rights"), BadInput("wrong"), ZeroDivisionError("a bug")])
def test_what_will_not_pass_is_reported_and_over(
    drive: Drive, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    driven = drive()
    with monkeypatch.context() as failing:
        failing.setattr(loops, "run_if_changed", fails(error))
        assert driven.turns() == LONGEST
    assert driven.told["failed"][0]["error"] == type(error).__name__
    clock.later(minutes=59)
    driven.turns()
    assert driven.cycles == 0
    clock.later(minutes=1)
    driven.turns()
    assert driven.cycles == 1


def test_a_project_that_changed_its_name_is_not_run_under_the_old_one(drive: Drive) -> None:
    driven = drive()
    driven.config.write_text(driven.config.read_text().replace('name = "p"', 'name = "q"'))
    driven.turns()
    assert "restart `hitl schedule`" in driven.told["failed"][0]["message"]
    assert history(driven.config) == []


def test_a_stop_leaves_the_cycle_at_its_next_step_and_the_rest_for_the_next_start(drive: Drive) -> None:
    def progress(what: str, done: int, total: int | None) -> None:
        if what == "recorded":
            driven.loop.stop()

    driven = drive(progress=progress)
    with pytest.raises(Stopped):
        driven.turns()
    assert len(driven.store.pending("p")) == 2  # the first operation was on its way
    with driven.store.lease("p"):
        pass  # given back
    driven.progress = silent
    driven.started()
    driven.turns()
    assert (len(history(driven.config)), driven.store.pending("p")) == (1, [])


# -- looks -------------------------------------------------------------------------------------------------


def test_enough_new_annotations_make_a_run_due(drive: Drive, clock: Clock) -> None:
    driven = drive("after_annotations = 5")

    def look(new: int) -> int:
        rows = [*ROWS, *(f"{n},dee,1" for n in range(new))]
        (driven.config.parent / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
        clock.later(seconds=60)
        driven.turns()
        return len(history(driven.config))

    assert look(0) == 1  # there was no cycle yet
    assert look(0) == 1
    assert look(4) == 1
    assert look(5) == 2
    assert look(7) == 2
    assert look(0) == 3  # five are gone
    assert [said["new"] for said in driven.told["looked"]] == [None, 5, 5]


def test_a_cycle_by_hand_makes_no_look_start_another(drive: Drive, clock: Clock) -> None:
    """It counts no annotations: where nothing has come since, all of them seemed new."""
    driven = drive("after_annotations = 5")
    with opened(driven.config) as (settings, store, connector):
        cycle.run(settings, store, connector)
    for _ in range(2):
        driven.turns()
        clock.later(seconds=60)
    assert (len(history(driven.config)), driven.told["looked"]) == (1, [])


def test_a_look_that_fails_is_reported_and_tried_again(drive: Drive, clock: Clock) -> None:
    driven = drive("after_annotations = 5")
    good = (driven.config.parent / "annotations.csv").read_text()
    with driven.store.lease("p"):
        assert driven.turns() == loops.FIRST_LOOK_RETRY
    assert driven.told["failed"] == []
    (driven.config.parent / "annotations.csv").write_text("nonsense\n")
    clock.later(seconds=1)
    driven.turns()
    assert driven.told["failed"][0]["look"] is True
    (driven.config.parent / "annotations.csv").write_text(good)
    clock.later(seconds=5)
    driven.turns()
    assert len(history(driven.config)) == 1


def test_a_loop_that_follows_pulls_at_webhooks_and_times_and_runs_nothing(
    drive: Drive, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    driven = drive('webhook = "127.0.0.1:1"\npoll = "1m"', runs=False, follows=True, pulled=lambda: looked.append(1))
    driven.turns()
    assert driven.loop.figures["pulls_total"] == len(looked) == 1
    driven.loop.hint()
    clock.later(seconds=10)
    driven.turns()
    clock.later(seconds=60)
    driven.turns()
    assert (driven.loop.figures["pulls_total"], driven.told.events, driven.store.counts("p")["labels"]) == (3, [], 27)
    with monkeypatch.context() as down:
        down.setattr(Tables, "pull", fails(Unreachable("it does not answer")))
        driven.loop.hint()
        assert driven.turns() == loops.GAP, "others who wait for the lease get it"
        clock.later(seconds=1)
        assert driven.turns() == loops.FIRST_LOOK_RETRY
        assert driven.loop.unread == "it does not answer"
    clock.later(seconds=1)
    driven.turns()
    assert (driven.loop.unread, driven.loop.figures["failures_total"]) == ("", 1)


# -- health ------------------------------------------------------------------------------------------------


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
    drive: Drive, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    driven = drive()
    monkeypatch.setattr(ProjectLoop, "is_alive", lambda self: True)
    with monkeypatch.context() as failing:
        failing.setattr(loops, "run_if_changed", fails(error))
        for _ in range(4):
            assert driven.loops.trouble() is None
            driven.turns()
            clock.later(hours=1)
        late = {"status": "late", "projects": {"p": "no run has finished since 2026-11-20 12:00:00Z"}}
        assert driven.loops.trouble() == late
        with opened(driven.config) as given:
            cycle.run_if_changed(*given)
        assert driven.loops.trouble() is None, "a run by another process counts, whatever pause is waited out here"
        clock.later(hours=4)
    driven.turns()
    assert driven.loops.trouble() is None
    clock.later(hours=4)
    assert driven.loops.trouble() is not None
    with opened(driven.config) as given:
        cycle.run_if_changed(*given)
    assert driven.loops.trouble() is None, "what somebody else has done counts"


def test_looks_that_fail_time_and_again_are_late(drive: Drive, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run becomes due where nothing new can be seen."""
    driven = drive("after_annotations = 5")
    with monkeypatch.context() as broken:
        broken.setattr(loops, "pull", fails(Unreachable("down")))
        for _ in range(3):
            driven.turns()
            clock.later(minutes=20)
    assert driven.loop.late_since(clock.now) == T0
    driven.turns()
    assert driven.loop.late_since(clock.now) is None
