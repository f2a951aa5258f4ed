"""`hitl status` says where a project stands, from what was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.cli import standing
from hitl.cli.standing import Queue, queues_of
from hitl.connectors.tables import Tables
from hitl.plan import Ask, Plan, Presence
from hitl.store import Store
from tests.test_cycle import HOUR, NOON, folder_with_tables, settings


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
        people=(Presence("bob", 3, 1.0, away=True), Presence("cyd", 0, 0.0, away=True), Presence("ann", 9, NOON)),
    )
    assert queues_of(plan, 24, NOON + HOUR) == [
        Queue("bob", 1, 31.0, 1, True),
        Queue("ann", 2, 3.0, 0, False),
        Queue(None, 1, 1.0, 0, False),
        Queue("cyd", 0, 0.0, 0, True),
    ]
    assert queues_of(Plan(), 24, NOON) == []


def shown(store: Store, capsys: pytest.CaptureFixture[str], as_json: bool, now: float, **changes: Any) -> str:
    standing.status(settings(**changes), store, as_json, now)
    return capsys.readouterr().out


def test_status_tells_what_is_expected_spent_to_come_and_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        assert "no cycle yet" in shown(store, capsys, False, NOON)
        assert json.loads(shown(store, capsys, True, NOON))["outstanding"] == []
        judgement = cycle.run(settings(), store, Tables(folder), now=NOON).judgement
        text = shown(store, capsys, False, NOON + 3 * HOUR)
        data = json.loads(shown(store, capsys, True, NOON + 3 * HOUR))
        late = shown(store, capsys, False, NOON + 60 * HOUR)
        gone = cycle.run(settings(), store, Tables(folder), now=NOON + 25 * HOUR).judgement
        after = shown(store, capsys, False, NOON + 26 * HOUR)
    for words in (
        "accuracy expected now",
        "95 % interval",
        "spent: 27 labels, cost 27",
        "to come: about",
        "oldest 3 h",
    ):
        assert words in text
    assert f"outstanding: {len(judgement.plan.asks)} questions" in text
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
    for line in cycle.outlook(metrics):
        assert line[1:] in page


def test_status_says_why_a_project_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with_tables(tmp_path / "p")
    budget = {"target_accuracy": 0.3, "target_confidence": 1.0}
    done = settings().model_copy(update={"budget": settings().budget.model_copy(update=budget)})
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        cycle.run(done, store, Tables(folder), now=NOON)
        text = shown(store, capsys, False, NOON)
    assert "the project is done: the accuracy expected is" in text
    assert "to come" not in text
    assert "outstanding" not in text


def test_a_cycle_of_an_older_version_is_still_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hitl.store import CycleRecord

    old = {"items": 4, "labels": 9, "annotators": 2, "done": 1, "confidence": 0.8, "agreement": None}
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        with store.lease("p") as lease:
            store.record_cycle(lease, CycleRecord({}, Plan((ask("a", "ann", 0.0),)), (), old))
        text = shown(store, capsys, False, NOON)
    assert "1 of 4 items done, mean confidence 80.0%" in text
    assert "oldest 0 min" in text
