"""`hitl status` says where a project stands, what the last run could not do, and where annotators answer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.cli.status import asked
from hitl.connectors.tables import Tables
from hitl.errors import BadSettings, Refused, Unreachable
from hitl.metrics import outlook
from hitl.operations import push
from hitl.plan import Activity, Ask, Plan
from hitl.platform import Cursor, Operation, Page, Pages, Receipt
from hitl.project import orders_of_others
from hitl.settings import CrewSettings
from hitl.settings.schedule import ScheduleSettings
from hitl.status import Queue, missed_by, queues_of, status_of
from hitl.store import Store
from hitl.store import lease as leases
from tests.projects import HOUR, NOON, answers, settings, status_text
from tests.store.rows import unrenewed


def text(store: Store, hours: float = 0.0) -> str:
    return status_text(settings(), store, NOON + hours * HOUR)


def data(store: Store, hours: float = 0.0) -> dict[str, Any]:
    """What `hitl status --json` prints."""
    found: dict[str, Any] = json.loads(json.dumps(status_of(settings(), store, NOON + hours * HOUR).as_json()))
    return found


def ask(item: str, who: str | None, since: float = NOON, seconds: float = 0.0) -> Ask:
    return Ask(item, who, 0.1, 0.8, "", since, seconds=seconds)


# -- queues ------------------------------------------------------------------------------------------------


def test_queues_say_how_long_somebody_waits_and_who_is_away() -> None:
    asks = (ask("a", "ann"), ask("b", "bob", NOON - 30 * HOUR), ask("c", "ann", NOON - 2 * HOUR), ask("d", None))
    people = (Activity("bob", 3, 1.0, away=True), Activity("cyd", 0, 0.0, away=True), Activity("ann", 9, NOON))
    assert list(queues_of(Plan(asks, people=people), 24, NOON + HOUR)) == [
        Queue("bob", 1, 31.0, 1, True),
        Queue("ann", 2, 3.0, 0, False),
        Queue(None, 1, 1.0, 0, False),
        Queue("cyd", 0, 0.0, 0, True),
    ]
    assert queues_of(Plan(), 24, NOON) == ()


def test_the_work_of_each_is_added_up_and_said_a_line_each() -> None:
    asks = (
        *(ask("a", "ann (7)", NOON - 2 * HOUR, 200.0) for _ in range(12)),
        ask("b", "bob"),
        ask("c", None, NOON, 20.0),
    )
    plan = Plan(asks, people=(Activity("bob", 3, 1.0, away=True),))
    assert [queue.seconds for queue in queues_of(plan, 24, NOON)] == [2400.0, 0.0, 20.0]
    assert asked(queues_of(plan, 24, NOON)) == [
        "Waiting for answers: 14 questions for 2 annotators, about 40 min",
        "  ann (7): 12 questions, about 40 min (oldest 2 h)",
        "  bob: 1 question",
        "  anyone: 1 question, about 1 min",
        "Seem to be away (one question each until they answer): bob",
    ]
    late = asked(queues_of(plan, 1.5, NOON))
    assert late[1] == "  ann (7): 12 questions, about 40 min (oldest 2 h, 12 overdue)"
    assert late[-2] == "The next run gives overdue questions to another annotator."
    assert asked([]) == []


def test_of_many_people_the_first_have_a_line() -> None:
    plan = Plan(tuple(ask(str(n), f"p{n}", NOON - 60 * n, 3600.0) for n in range(30)))
    lines = asked(queues_of(plan, 24, NOON))
    assert lines[0] == "Waiting for answers: 30 questions for 30 annotators, about 30 h"
    assert lines[1] == "  p29: 1 question, about 60 min (oldest 29 min)"
    assert lines[-1] == "  and 10 more: 10 questions, about 10 h; --json has all"
    assert len(lines) == 22


# -- where it stands ---------------------------------------------------------------------------------------


def test_status_tells_what_is_expected_spent_to_come_and_waited_for(folder: Path, store: Store) -> None:
    assert "No run yet" in text(store)
    assert data(store)["outstanding"] == []
    judgement = cycle.run(settings(), store, Tables(folder), now=NOON).judgement
    soon, found, late = text(store, 3), data(store, 3), text(store, 60)
    gone = cycle.run(settings(), store, Tables(folder), now=NOON + 25 * HOUR).judgement
    for words in (
        "elieved accuracy: ",
        "Spent: 27 answers.\n",
        "too early to forecast",
        "A forecast needs about 20 answers per annotator",
        "oldest 3 h",
        f"Waiting for answers: {len(judgement.plan.asks)} questions for 2 annotators\n"
        "  dee: 3 questions (oldest 3 h)\n",
    ):
        assert words in soon
    assert not re.search(r"\d\.\d{6}|\) \(", soon)  # no microseconds, no two brackets in a row
    assert re.search(r"\nRun 1, .* \(20\d\d-\d\d-\d\d \d\d:\d\d UTC\): 0 of 12 items done, ", soon)
    assert max(map(len, soon.splitlines())) < 170
    assert sum(entry["questions"] for entry in found["outstanding"]) == 6
    assert {entry["oldest_hours"] for entry in found["outstanding"]} == {3.0}
    assert found["last"]["forecast"]["low"] < found["last"]["forecast"]["labels"] < found["last"]["forecast"]["high"]
    assert found["last"]["expected"]["accuracy"] == judgement.metrics["expected"]["accuracy"]
    assert ("overdue" in late, "overdue" in soon) == (True, False)
    assert {person.annotator for person in gone.plan.people if person.away} == {"dee", "eve"}
    assert "Seem to be away (one question each until they answer)" in text(store, 26)


def test_cost_is_told_where_a_price_is_set(folder: Path, store: Store) -> None:
    priced = settings().model_copy(update={"crew": CrewSettings(annotators=("dee", "eve"), cost=2.5)})
    cycle.run(priced, store, Tables(folder), now=NOON)
    assert re.search(r"Spent: 27 answers, cost 67\.5\.\n", text(store))


def test_the_report_says_the_same(folder: Path, store: Store) -> None:
    from hitl.report.page import render
    from hitl.report.stored import stored_report

    metrics = cycle.run(settings(), store, Tables(folder), now=NOON).judgement.metrics
    page = render(stored_report(settings(), store, Tables(folder).questions()))
    page = unescape(re.sub("</?code>", "", page)).replace("\u00a0", " ")
    for line in outlook(metrics):
        assert line.replace("`", "") in page


def test_status_says_why_a_project_is_done(folder: Path, store: Store) -> None:
    budget = {"target_accuracy": 0.3, "target_confidence": 1.0}
    done = settings().model_copy(update={"budget": settings().budget.model_copy(update=budget)})
    cycle.run(done, store, Tables(folder), now=NOON)
    said = text(store)
    assert "of the labels are believed to be right (target: 30.0 %)" in said
    assert "That is what hitl believes; `hitl certify` proves" in said
    assert "to come" not in said
    assert "outstanding" not in said


def test_answers_that_were_pulled_and_not_judged_are_told(folder: Path, store: Store) -> None:
    cycle.run(settings(), store, Tables(folder), now=NOON)
    cycle.run_if_changed(settings(), store, Tables(folder), now=NOON + HOUR)
    assert "Nothing has changed since; checked" in text(store, 1)
    answers(folder, (10, "dee", 1))
    with store.lease("p") as lease:
        cycle.pull(lease, store, Tables(folder))
    news = text(store, 1)
    assert status_of(settings(), store).as_json()["changed_since"]
    assert "Annotations or items have changed since; the next run includes them." in news
    assert "nothing has changed" not in news


@pytest.mark.parametrize(
    ("schedule", "hours", "said"),
    [
        ({"every": "1h"}, 1.01, None),
        ({"every": "1h"}, 1.1, "every 1h"),
        ({"cron": "0 6 * * *"}, 23.0, None),
        ({"cron": "0 6 * * *"}, 24.1, "cron '0 6 * * *' (UTC)"),
        ({"after_annotations": 5}, 1000.0, None),
        ({}, 1000.0, None),
    ],
)
def test_a_cycle_that_did_not_come_is_missed(schedule: dict[str, Any], hours: float, said: str | None) -> None:
    last = datetime(2026, 11, 20, 6, 0, 1, tzinfo=UTC)
    missed = missed_by(ScheduleSettings(**schedule), [last, None], last.timestamp() + hours * HOUR)
    assert (missed and missed.schedule) == said
    assert missed_by(ScheduleSettings(**schedule), [None, None], last.timestamp()) is None


def test_a_cycle_of_a_clock_that_was_ahead_hides_no_missed_one() -> None:
    schedule = ScheduleSettings(every="1h")  # type: ignore[arg-type]
    now = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
    ahead, looked = now + timedelta(days=365), now - timedelta(days=2)
    missed = missed_by(schedule, [ahead, looked], now.timestamp())
    assert missed is not None
    assert missed.due == looked + timedelta(hours=1)
    assert missed_by(schedule, [ahead, None], now.timestamp()) is None


def test_status_says_that_no_cycle_came_and_what_to_do(folder: Path, store: Store) -> None:
    ours = settings(schedule={"every": "15m"})
    cycle.run(ours, store, Tables(folder), now=NOON)
    last = store.last_cycle("p")
    assert last is not None
    soon, late = (last.recorded_at.timestamp() + minutes * 60 for minutes in (14, 75))
    assert "A run was due" not in status_text(ours, store, soon)
    said = status_text(ours, store, late)
    with store.lease("p"):
        assert "A run was due" not in status_text(ours, store, late)  # one is on its way
    cycle.run_if_changed(ours, store, Tables(folder), now=NOON)  # a look counts
    assert "A run was due 1 h ago" in said
    assert "([schedule]: every 15m) and did not start. Is `hitl schedule` running? Start it, or use `hitl run`." in said


# -- trouble -----------------------------------------------------------------------------------------------


class Troubled(Tables):
    """Tables whose pages have problems, and whose pushes or pulls fail."""

    def __init__(self, folder: Path, *, push: BaseException | None = None, pull: Exception | None = None, odd: int = 0):
        super().__init__(folder)
        self._push, self._pull, self._odd = push, pull, odd

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        if self._push is not None:
            raise self._push
        yield from super().push(operations)

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        if self._pull is not None:
            raise self._pull
        for page in super().pull(cursor):
            yield replace(page, problems=tuple(f"row {n}: no label" for n in range(self._odd)))


class Refusing(Tables):
    """Tables that take nothing for some annotators."""

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        for operation in operations:
            if operation.kind == "assign":
                raise Refused(f"no user {operation.key}: mend crew.annotators")
            yield from super().push([operation])


def test_status_says_who_is_at_work_and_what_was_not_pushed_or_understood(folder: Path, store: Store) -> None:
    down = Troubled(folder, push=Unreachable("down"), odd=2)
    assert text(store).startswith("p: nothing pulled yet\nNo run yet, ")
    with store.lease("p") as lease:
        cycle.pull(lease, store, down)
        said, found = text(store), data(store)
    assert said.splitlines()[0] == "p: 12 items, 27 answers by 3 annotators"
    assert "Running now: " in said
    assert f"process {os.getpid()}," in found["running"]
    assert "up to date with the plan" not in said
    assert "Not sent yet" not in said
    with pytest.raises(Unreachable, match=r"^down$"):
        cycle.run(settings(), store, down, now=NOON)
    said, found = text(store), data(store)
    with unrenewed(store, seconds=300.0, owner=leases.owner_of(999_999_999, 300.0)):
        assert "running" not in text(store)  # it was killed
    cycle.run(settings(), store, Tables(folder), now=NOON)
    assert "failed" not in text(store)
    assert data(store)["failed"] is None
    assert (
        "Not sent yet: 5 operations (questions of 2 annotators, consensus, numbers of labels, order). "
        "`hitl push` or the next run sends them; fix the failure first." in said
    )
    assert re.search(r"\nThe platform could not be reached at 20\d\d-\d\d-\d\d \d\d:\d\d UTC: down\.\n", said)
    assert (found["failed"]["error"], found["failed"]["message"]) == ("Unreachable", "down")
    assert "." not in found["failed"]["at"] + found["recorded_at"]
    assert (
        "The last pull found 2 problems. Fix them at their source; the next run "
        "reads them again:\n  row 0: no label\n  row 1: no label\n" in said
    )
    assert "running" not in said
    assert (found["pending"], found["running"], found["cycles"], len(found["problems"])) == (5, None, 1, 2)


def test_of_many_problems_the_first_ten_have_a_line(folder: Path, store: Store) -> None:
    cycle.run(settings(), store, Troubled(folder, odd=13), now=NOON)
    assert "found 13 problems" in text(store)
    assert "\n  row 9: no label\n  and 3 more; --json has all\n" in text(store)


def test_without_items_there_is_nothing_to_export(folder: Path, store: Store) -> None:
    cycle.run(settings(), store, Tables(folder), now=NOON)
    with pytest.raises(Unreachable):
        cycle.run(settings(), store, Troubled(folder, pull=Unreachable("down")))
    assert "`hitl export` still works" in text(store)
    with store.lease("p") as lease:
        store.save_page(lease, Page(cursor={}, live=frozenset()))
    assert "export" not in text(store)


def test_each_refused_operation_has_a_line_with_its_cure(folder: Path, store: Store) -> None:
    with pytest.raises(Refused):
        cycle.run(settings(), store, Refusing(folder), now=NOON)
    said = text(store)
    assert "2 failures:\n  no user dee: mend crew.annotators\n  no user eve: mend crew.annotators\n" in said
    assert "Not sent yet: 2 operations (questions of 2 annotators)." in said
    assert len(data(store)["failed"]["messages"]) == 2
    cycle.run(settings(), store, Tables(folder), now=NOON)
    assert "Refused" not in text(store)
    assert "The platform is up to date with the plan" in text(store)


def test_an_error_that_hitl_does_not_know_is_shown_as_such(folder: Path, store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        cycle.run(settings(), store, Troubled(folder, pull=ZeroDivisionError("division by zero")), now=NOON)
    words = "This error is unexpected (ZeroDivisionError). The output of `hitl run`"
    assert words in text(store)


def test_what_a_cycle_had_to_go_on_without_is_shown(folder: Path, store: Store) -> None:
    (folder / "model.csv").write_text("item,p_0,p_1\n0,0.5,0.5\n")
    ours = settings(models={"resnet": str(folder / "model.csv")})
    cycle.run(ours, store, Tables(folder), now=NOON)
    assert "left out or ignored" not in status_text(ours, store, NOON)
    (folder / "model.csv").write_text("item,0,1\n0,0.5,0.5\n")
    report = cycle.run(ours, store, Tables(folder), now=NOON)
    left_out = status_of(ours, store).left_out
    assert report.pulled.problems == left_out
    assert f"Notes from the last run:\n  {left_out[0]}\n" in status_text(ours, store, NOON)


def test_a_push_that_was_cut_short_is_shown(folder: Path, store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        cycle.run(settings(), store, Troubled(folder, push=KeyboardInterrupt()), now=NOON)
    words = "The last push was interrupted. The next run checks everything it sent, and repairs it."
    assert words in text(store)
    assert data(store)["unfinished_push"] is True
    assert data(store)["pending_kinds"] == {"assign": 2, "consensus": 1, "labels_wanted": 1, "order": 1}


# -- where annotators answer, and other stores -------------------------------------------------------------

ADVICE = "choose the first button"


class Platform(Tables):
    """Tables with a page for one annotator, whose order carries the mark of the store that pushed it."""

    _seen: tuple[str, ...] = ()

    def workplaces(self) -> Pages:
        return Pages({"dee": "http://platform/dee"}, ADVICE)

    def marks(self) -> frozenset[str]:
        return frozenset(self._seen)

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        for operation in operations:
            if operation.kind == "order":
                self._seen = (operation.payload["by"],)
            yield from super().push([operation])


def test_status_shows_where_each_annotator_answers_without_asking_the_platform(folder: Path, store: Store) -> None:
    with store.lease("p") as lease:  # `hitl plan` alone, as it is without a token
        cycle.pull(lease, store, Tables(folder))
        cycle.record(lease, settings(), store, cycle.judge(settings(), store, Tables(folder).questions()))
    assert "Where they answer: not known until the next `hitl run`" in text(store)
    cycle.run(settings(), store, Platform(folder), now=NOON)
    said = text(store)
    assert f"Where they answer:\n  dee: http://platform/dee\n  {ADVICE}\n" in said
    assert said.count(ADVICE) == 1
    assert "eve: http" not in said


def test_a_platform_without_such_pages_has_no_line_of_them(folder: Path, store: Store) -> None:
    cycle.run(settings(), store, Tables(folder), now=NOON)
    assert store.workplaces("p") == Pages()
    assert "where they answer" not in text(store)


def test_a_store_notices_the_order_of_another_store_and_not_its_own(folder: Path, store: Store) -> None:
    platform = Platform(folder)

    def said_by(one: Store) -> str:
        return "\n".join(cycle.run(settings(), one, platform, now=NOON).pulled.problems)

    with Store(f"sqlite:///{folder}/theirs.db") as theirs:
        for _ in range(2):  # its own order is no news, although `hitl plan` may have recorded another since
            assert said_by(store) == ""
            with store.lease("p") as lease:
                cycle.record(lease, settings(), store, cycle.judge(settings(), store, platform.questions()))
        assert "Another hitl store also orders" in said_by(theirs)
        assert orders_of_others(theirs, "p", platform) == ()
        last = store.last_cycle("p")
        with pytest.raises(BadSettings, match="another hitl store has replaced the order that this one sent"):
            said_by(store)
        assert store.last_cycle("p") == last
        with store.lease("p") as lease:  # `hitl push --verify`, as the message says
            list(push(lease, store, platform, verify=True))
        assert said_by(store) == ""
