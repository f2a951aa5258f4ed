"""`hitl status` says where a project stands, from what was recorded."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.cli.status import asked
from hitl.connectors.tables import Tables
from hitl.errors import Unreachable
from hitl.metrics import outlook
from hitl.plan import Activity, Ask, Plan
from hitl.platform import Cursor, Operation, Page, Receipt
from hitl.status import Queue, queues_of, status_of
from hitl.store import Store
from tests.projects import HOUR, NOON, folder_with_tables, settings, status_text


def ask(item: str, who: str | None, since: float) -> Ask:
    return Ask(item, who, 0.1, 0.8, "", since)


def test_queues_say_how_long_somebody_waits_and_who_is_away() -> None:
    plan = Plan(
        (
            ask("a", "ann", NOON),
            ask("b", "bob", NOON - 30 * HOUR),
            ask("c", "ann", NOON - 2 * HOUR),
            ask("d", None, NOON),
        ),
        people=(Activity("bob", 3, 1.0, away=True), Activity("cyd", 0, 0.0, away=True), Activity("ann", 9, NOON)),
    )
    assert list(queues_of(plan, 24, NOON + HOUR)) == [
        Queue("bob", 1, 31.0, 1, True),
        Queue("ann", 2, 3.0, 0, False),
        Queue(None, 1, 1.0, 0, False),
        Queue("cyd", 0, 0.0, 0, True),
    ]
    assert queues_of(Plan(), 24, NOON) == ()


def test_the_work_of_each_is_added_up_and_said_a_line_each() -> None:
    plan = Plan(
        (
            *(replace(ask("a", "ann (7)", NOON - 2 * HOUR), seconds=200.0) for _ in range(12)),
            replace(ask("b", "bob", NOON), seconds=0.0),
            replace(ask("c", None, NOON), seconds=20.0),
        ),
        people=(Activity("bob", 3, 1.0, away=True),),
    )
    assert [queue.seconds for queue in queues_of(plan, 24, NOON)] == [2400.0, 0.0, 20.0]
    assert asked(queues_of(plan, 24, NOON)) == [
        "outstanding: 14 questions for 2 annotators, about 40 min",
        "  ann (7): 12 questions, about 40 min (oldest 2 h)",
        "  bob: 1 question",
        "  anyone: 1 question, about 1 min",
        "seem to be away (one question each until they answer): bob",
    ]
    late = asked(queues_of(plan, 1.5, NOON))
    assert late[1] == "  ann (7): 12 questions, about 40 min (oldest 2 h, 12 overdue)"
    assert late[-2] == "overdue questions go to another annotator in the next cycle"
    assert asked([]) == []


def test_of_many_people_the_first_have_a_line() -> None:
    plan = Plan(tuple(replace(ask(str(n), f"p{n}", NOON - 60 * n), seconds=3600.0) for n in range(30)))
    lines = asked(queues_of(plan, 24, NOON))
    assert lines[0] == "outstanding: 30 questions for 30 annotators, about 30 h"
    assert lines[1] == "  p29: 1 question, about 60 min (oldest 29 min)"
    assert lines[-1] == "  and 10 more: 10 questions, about 10 h; --json has all"
    assert len(lines) == 22


def data_of(store: Store, now: float) -> dict[str, Any]:
    """What `hitl status --json` prints."""
    found: dict[str, Any] = json.loads(json.dumps(status_of(settings(), store, now).as_json()))
    return found


def test_status_tells_what_is_expected_spent_to_come_and_waited_for(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        assert "no cycle yet" in status_text(settings(), store, NOON)
        assert data_of(store, NOON)["outstanding"] == []
        judgement = cycle.run(settings(), store, Tables(folder), now=NOON).judgement
        text = status_text(settings(), store, NOON + 3 * HOUR)
        data = data_of(store, NOON + 3 * HOUR)
        late = status_text(settings(), store, NOON + 60 * HOUR)
        gone = cycle.run(settings(), store, Tables(folder), now=NOON + 25 * HOUR).judgement
        after = status_text(settings(), store, NOON + 26 * HOUR)
    for words in (
        "accuracy expected now",
        "95 % interval",
        "spent: 27 labels, cost 27",
        "to come: too early to say",
        "a forecast needs about 20 labels of each",
        "oldest 3 h",
    ):
        assert words in text
    assert (
        f"outstanding: {len(judgement.plan.asks)} questions for 2 annotators\n  dee: 3 questions (oldest 3 h)\n" in text
    )
    assert not re.search(r"\d\.\d{6}|\) \(", text)  # no microseconds, no two brackets in a row
    assert re.search(
        r"\ncycle 1, .* \(20\d\d-\d\d-\d\d \d\d:\d\d UTC\): 0 of 12 items done, ",
        text,
    )
    assert max(map(len, text.splitlines())) < 170
    assert sum(entry["questions"] for entry in data["outstanding"]) == 6
    assert {entry["oldest_hours"] for entry in data["outstanding"]} == {3.0}
    assert data["last"]["forecast"]["low"] < data["last"]["forecast"]["labels"] < data["last"]["forecast"]["high"]
    assert data["last"]["expected"]["accuracy"] == judgement.metrics["expected"]["accuracy"]
    assert "overdue" in late
    assert "overdue" not in text
    assert {person.annotator for person in gone.plan.people if person.away} == {"dee", "eve"}
    assert "seem to be away (one question each until they answer)" in after


def test_the_report_says_the_same(tmp_path: Path) -> None:
    from hitl.report.page import render
    from hitl.report.stored import stored_report

    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        metrics = cycle.run(settings(), store, Tables(folder), now=NOON).judgement.metrics
        page = render(stored_report(settings(), store, Tables(folder).questions()))
    for line in outlook(metrics):
        assert line[1:] in page


def test_status_says_why_a_project_is_done(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    budget = {"target_accuracy": 0.3, "target_confidence": 1.0}
    done = settings().model_copy(update={"budget": settings().budget.model_copy(update=budget)})
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        cycle.run(done, store, Tables(folder), now=NOON)
        text = status_text(settings(), store, NOON)
    assert "the project is done: the accuracy expected is" in text
    assert "to come" not in text
    assert "outstanding" not in text


def test_status_says_who_is_at_work_and_what_was_not_pushed_or_understood(tmp_path: Path) -> None:
    class Down(Tables):
        def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
            raise Unreachable("down")

        def pull(self, cursor: Cursor | None) -> Iterator[Page]:
            for page in super().pull(cursor):
                yield replace(page, problems=("row 7: no label", "row 9: no label"))

    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        assert status_text(settings(), store, NOON) == "p: nothing pulled yet; no cycle yet: `hitl run`\n"
        with store.lease("p") as lease:
            cycle.pull(lease, store, Down(folder))
            text = status_text(settings(), store, NOON)
            data = data_of(store, NOON)
        assert text.splitlines()[0] == "p: 12 items, 27 labels of 3 annotators; no cycle yet: `hitl run`"
        assert "is running now: " in text
        assert f"process {os.getpid()}," in data["running"]
        assert "as planned" not in text
        assert "not on the platform" not in text
        with pytest.raises(Unreachable):
            cycle.run(settings(), store, Down(folder), now=NOON)
        text = status_text(settings(), store, NOON)
        data = data_of(store, NOON)
        with store.lease("p", owner=f"{socket.gethostname()}:999999999:gone"):
            assert "running" not in status_text(settings(), store, NOON)  # it was killed
        cycle.run(settings(), store, Tables(folder), now=NOON)
        assert "failed" not in status_text(settings(), store, NOON)
        assert data_of(store, NOON)["failed"] is None
    assert (
        "not on the platform yet: 5 operations (questions of 2 annotators, consensus, numbers of labels, order); "
        "`hitl push`, or the next cycle, sends them; mend first what failed" in text
    )
    assert re.search(r"\nthe last cycle failed .*\(20\d\d-\d\d-\d\d \d\d:\d\d UTC\): Unreachable: down\n", text)
    assert (data["failed"]["error"], data["failed"]["message"]) == ("Unreachable", "down")
    assert "." not in data["failed"]["at"]
    assert (
        "the last pull left out or doubted 2 things; mend them where the labels come from, and the next cycle "
        "reads them again:\n  row 7: no label\n  row 9: no label\n" in text
    )
    assert "running" not in text
    assert (data["pending"], data["running"], data["cycles"], len(data["problems"])) == (5, None, 1, 2)
    assert "." not in data["recorded_at"]
