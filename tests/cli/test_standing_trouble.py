"""`hitl status` says what the last cycle could not do, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.errors import Refused, Unreachable
from hitl.plan import Plan
from hitl.platform import Operation, Receipt
from hitl.settings import ScheduleSettings
from hitl.status import missed_by, status_of
from hitl.store import CycleRecord, Store
from tests.projects import HOUR, NOON, answers, folder_with_tables, settings, status_text


class Refusing(Tables):
    """Tables that take nothing for some annotators."""

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        for operation in operations:
            if operation.kind == "assign":
                raise Refused(f"no user {operation.key}: mend crew.annotators")
            yield from super().push([operation])


def test_each_refused_operation_has_a_line_with_its_cure(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with pytest.raises(Refused):
            cycle.run(settings(), store, Refusing(folder), now=NOON)
        text = status_text(settings(), store, NOON)
        failed = status_of(settings(), store).as_json()["failed"]
        cycle.run(settings(), store, Tables(folder), now=NOON)
        after = status_text(settings(), store, NOON)
    assert (
        "UTC): Refused, 2 things:\n  no user dee: mend crew.annotators\n  no user eve: mend crew.annotators\n" in text
    )
    assert "not on the platform yet: 2 operations (questions of 2 annotators);" in text
    assert len(failed["messages"]) == 2
    assert "Refused" not in after
    assert "the platform is as planned" in after


def test_answers_that_were_pulled_and_not_judged_are_told(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        cycle.run(settings(), store, Tables(folder), now=NOON)
        cycle.run_if_changed(settings(), store, Tables(folder), now=NOON + HOUR)
        quiet = status_text(settings(), store, NOON + HOUR)
        answers(folder, (10, "dee", 1))
        with store.lease("p") as lease:
            cycle.pull(lease, store, Tables(folder))
        news = status_text(settings(), store, NOON + HOUR)
        assert status_of(settings(), store).as_json()["changed_since"]
    assert "nothing has changed since; looked" in quiet
    assert "annotations or items have changed since: the next cycle judges them" in news
    assert "nothing has changed" not in news


def test_an_error_that_hitl_does_not_know_is_shown_as_such(tmp_path: Path) -> None:
    class Broken(Tables):
        def pull(self, cursor: object) -> Iterator[object]:  # type: ignore[override]
            raise ZeroDivisionError("division by zero")

    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with pytest.raises(ZeroDivisionError):
            cycle.run(settings(), store, Broken(folder), now=NOON)
        text = status_text(settings(), store, NOON)
    assert "UTC): ZeroDivisionError: division by zero\n  hitl does not know this error: what `hitl run`" in text


def test_what_a_cycle_had_to_go_on_without_is_shown(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    (folder / "model.csv").write_text("item,p_0,p_1\n0,0.5,0.5\n")
    ours = settings(models={"resnet": str(folder / "model.csv")})
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        cycle.run(ours, store, Tables(folder), now=NOON)
        assert "go on without" not in status_text(ours, store, NOON)
        (folder / "model.csv").write_text("item,0,1\n0,0.5,0.5\n")
        report = cycle.run(ours, store, Tables(folder), now=NOON)
        text = status_text(ours, store, NOON)
        found = status_of(ours, store)
    assert report.pulled.problems == found.left_out
    assert f"the last cycle left out or ignored:\n  {found.left_out[0]}\n" in text


def test_of_many_problems_the_first_ten_have_a_line(tmp_path: Path) -> None:
    class Odd(Tables):
        def pull(self, cursor):  # type: ignore[no-untyped-def, override]
            from dataclasses import replace

            for page in super().pull(cursor):
                yield replace(page, problems=tuple(f"row {n}: no label" for n in range(13)))

    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        cycle.run(settings(), store, Odd(folder), now=NOON)
        text = status_text(settings(), store, NOON)
    assert "left out or doubted 13 things" in text
    assert "\n  row 9: no label\n  and 3 more; --json has all\n" in text


@pytest.mark.parametrize(
    ("schedule", "hours", "said"),
    [
        (ScheduleSettings(every="1h"), 1.01, None),  # type: ignore[arg-type]
        (ScheduleSettings(every="1h"), 1.1, "every 1h"),  # type: ignore[arg-type]
        (ScheduleSettings(cron="0 6 * * *"), 23.0, None),
        (ScheduleSettings(cron="0 6 * * *"), 24.1, "cron '0 6 * * *' (UTC)"),
        (ScheduleSettings(after_annotations=5), 1000.0, None),
        (ScheduleSettings(), 1000.0, None),
    ],
)
def test_a_cycle_that_did_not_come_is_missed(schedule: ScheduleSettings, hours: float, said: str | None) -> None:
    last = datetime(2026, 11, 20, 6, 0, 1, tzinfo=UTC)
    missed = missed_by(schedule, [last, None], last.timestamp() + hours * HOUR)
    assert (missed and missed.schedule) == said
    assert missed_by(schedule, [None, None], last.timestamp()) is None


def test_a_cycle_of_a_clock_that_was_ahead_hides_no_missed_one() -> None:
    schedule = ScheduleSettings(every="1h")  # type: ignore[arg-type]
    now = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
    ahead, looked = now + timedelta(days=365), now - timedelta(days=2)
    missed = missed_by(schedule, [ahead, looked], now.timestamp())
    assert missed is not None
    assert missed.due == looked + timedelta(hours=1)
    assert missed_by(schedule, [ahead, None], now.timestamp()) is None


def test_status_says_that_no_cycle_came_and_what_to_do(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    ours = settings(schedule={"every": "15m"})
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        cycle.run(ours, store, Tables(folder), now=NOON)
        last = store.last_cycle("p")
        assert last is not None
        soon, late = (last.recorded_at.timestamp() + minutes * 60 for minutes in (14, 75))
        assert "no cycle has come" not in status_text(ours, store, soon)
        text = status_text(ours, store, late)
        with store.lease("p"):
            assert "no cycle has come" not in status_text(ours, store, late)  # one is on its way
        cycle.run_if_changed(ours, store, Tables(folder), now=NOON)  # a look counts
    assert "no cycle has come since the last one, though one was due 1 h ago" in text
    assert "[schedule] says every 15m. Is `hitl schedule` running? Start it, or give `hitl run`\n" in text


def test_a_push_that_was_cut_short_is_shown(tmp_path: Path) -> None:
    class Killed(Tables):
        def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
            raise KeyboardInterrupt
            yield

    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with pytest.raises(KeyboardInterrupt):
            cycle.run(settings(), store, Killed(folder), now=NOON)
        text = status_text(settings(), store, NOON)
        data = status_of(settings(), store).as_json()
    assert "the last push did not come to its end: the next cycle looks at all that was pushed, and mends it" in text
    assert data["unfinished_push"] is True
    assert data["pending_kinds"] == {"assign": 2, "consensus": 1, "labels_wanted": 1, "order": 1}


def test_a_platform_that_is_down_is_one_thing(tmp_path: Path) -> None:
    class Down(Tables):
        def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
            raise Unreachable("no answer")

    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with pytest.raises(Unreachable, match=r"^no answer$"):
            cycle.run(settings(), store, Down(folder), now=NOON)
        assert "UTC): Unreachable: no answer\n" in status_text(settings(), store, NOON)
