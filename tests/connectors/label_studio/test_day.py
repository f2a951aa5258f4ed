"""A working day against a real Label Studio: everybody is served what the plan says, and it ends by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hitl import cycle
from hitl.active.pending.outstanding import HOUR, next_plan
from hitl.active.policy import ExpectedGain
from hitl.active.registry import policy
from hitl.active.replay.replay import Replay
from hitl.annotations import Annotations
from hitl.connectors.label_studio import LabelStudioSettings
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.demo.on_label_studio import CONFIG
from hitl.demo.recorded import QUESTION, texts
from hitl.evidence import Evidence
from hitl.models.registry import combiner
from hitl.plan import Plan
from hitl.project import budget_of, stored_evidence
from hitl.settings import BudgetSettings, CrewSettings, Settings
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.day import CLASSES, Day, Happened, Worker
from tests.store.conftest import postgres, postgres_url  # noqa: F401

pytestmark = [pytest.mark.server, pytest.mark.journey]


def test_a_question_that_expired_is_served_to_the_next_person_though_the_first_still_has_it_open(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project = make_project()
    project.add(2)
    gone, there = (project.people[k].email for k in (1, 2))
    settings = Settings(
        name="p",
        source=LabelStudioSettings(project=project.number),
        crew=CrewSettings(annotators=(gone, there), capacity=1, expire_hours=0.5),
        budget=BudgetSettings(max_labels=2, target_confidence=1.0),
    )
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        plan = cycle.run(settings, store, project.connect(), now=HOUR).judgement.plan
        (held,) = (int(str(ask.item)) for ask in plan.asks_of(gone))
        assert project.next(1, project.tab(1)) == held  # and there it stays: Label Studio locks it for a day
        mine = project.next(2, project.tab(2))
        project.answer(2, int(str(mine)), "good")
        plan = cycle.run(settings, store, project.connect(), now=2 * HOUR).judgement.plan
        assert [int(str(ask.item)) for ask in plan.asks_of(there)] == [held]
        assert project.next(2, project.tab(2)) == held


FOUR = (
    Worker("project", accuracy=0.92, minutes=4.2),
    Worker("tab", accuracy=0.97, minutes=3.4),
    Worker("shown", accuracy=0.9, minutes=4.2, leaves=40.0),
    Worker("listing", accuracy=0.95, minutes=2.6, skips=0.4),
)


def a_day(project: Project, store: Store, settings: Settings, workers: Sequence[Worker], first: int, later: int) -> Day:
    """A day with `first` items, `later` more that come in three lots, and four deletions while people work."""
    day = Day(project, store, settings, workers, items=list(texts())[: first + 3 * later], seed=0, every=8.0)
    day.add(first)

    def delete_one(which: int) -> None:
        """Sometimes a question that waits, sometimes what somebody works on just now."""
        asked = [str(ask.item) for ask in day.plans[-1][0].asks if str(ask.item) in day.platform.live]
        day.delete((asked or list(day.platform.live))[which % max(len(asked), 1)])

    for time in (20.0, 45.0, 70.0):
        day.at(time, lambda: day.add(later))
    for time, which in ((14.0, 1), (33.0, 2), (58.0, 5), (80.0, 0)):
        day.at(time, lambda which=which: delete_one(which))  # type: ignore[misc]
    day.run(200.0)
    return day


def check_what_was_served(day: Day) -> None:
    """Everybody was always served their next planned task, and something unplanned only where nothing was left."""
    for served in day.served:
        assert served.task in served.expected, served
        assert served.task == served.planned or served.planned is None, served
    assert sum(served.planned is not None for served in day.served) >= 30


def check_the_end(day: Day) -> None:
    """The last plan asks nothing, nobody is served anything, and another cycle changes nothing."""
    project = day.project
    plan = day.plans[-1][0]
    assert plan.stop is not None
    assert plan.asks == ()
    assert all(project.task(int(task))["is_labeled"] for task in day.platform.live)
    for who, worker in day.workers.items():
        assert day.serve(who, "project") is None
        if worker.way != "project":
            assert day.serve(who, worker.way) is None
    project.recorder.requests.clear()
    report = cycle.run(day.settings, day.store, day.connector, now=day.clock(60 * 24.0))
    assert (report.changed, report.receipts, project.recorder.writes) == (0, (), [])
    assert replace(report.judgement.plan, people=()) == replace(plan, people=())


def replayed(log: Sequence[Happened], settings: Settings) -> Iterator[tuple[Plan, Consensus]]:
    """The plan and the consensus of every cycle, from what happened alone: no server, no store."""
    items: dict[str, dict[str, str]] = {}
    skips: set[tuple[str, str]] = set()
    method = combiner(settings.combine.method, **settings.combine.options)
    asks = policy(settings.policy.name, **settings.policy.options)
    plan = Plan()
    for one in log:
        match one.what:
            case "add":
                items.update({item: {} for item in one.items})
            case "delete":
                del items[one.items[0]]
                skips = {pair for pair in skips if pair[1] in items}
            case "skip":
                skips.add((one.who, one.items[0]))
            case "answer":
                items[one.items[0]][one.who] = one.label
            case "cycle":
                rows = [(item, who, label) for item, given in items.items() for who, label in given.items()]
                columns = dict(zip(("item", "annotator", "label"), zip(*rows, strict=True), strict=False))
                empty = {name: pa.array([], pa.string()) for name in ("item", "annotator", "label")}
                table = pa.table({name: pa.array(values) for name, values in columns.items()} or empty)
                annotations = Annotations.from_frame(table, items=tuple(items), classes=CLASSES, options=CLASSES)
                evidence = Evidence(annotations)
                consensus = method.fit(evidence)
                crew = Crew(
                    settings.crew.annotators,
                    dict(settings.crew.capacities),
                    settings.crew.capacity,
                    never=frozenset(skips),
                )
                now, expire = Day.clock(one.time), settings.crew.expire_hours * HOUR
                budget = budget_of(settings)
                plan = next_plan(asks, [(evidence, consensus)], crew, budget, plan, now, expire)
                yield plan, consensus


def check_the_replay(day: Day) -> None:
    """Without a server the same answers lead to the same questions, in every cycle, and to the same result."""
    again = list(replayed(day.log, day.settings))
    assert len(again) == len(day.plans)
    for (plan, result), (plan_again, result_again) in zip(day.plans, again, strict=True):
        asked, asked_again = (
            [(ask.item, ask.annotator, ask.since) for ask in each.asks] for each in (plan, plan_again)
        )
        assert asked == asked_again
        assert (plan.done, plan.stop, plan.expired, plan.people) == (
            plan_again.done,
            plan_again.stop,
            plan_again.expired,
            plan_again.people,
        )
        assert result.items == result_again.items
        np.testing.assert_allclose(result.probabilities, result_again.probabilities, rtol=0, atol=1e-6)
    final = day.plans[-1][1]
    evidence = stored_evidence(day.settings, day.store, day.connector.questions())[QUESTION]
    truth = np.array([day.people.truth[day.key_of[str(item)]] for item in final.items], np.int32)
    everything = Replay(combiner(day.settings.combine.method), ExpectedGain(), Budget(7, 1.0, max_labels=99))
    result = everything.run(replace(evidence, truth=truth), np.random.default_rng(0)).consensus
    assert (result.codes == final.codes).all()
    np.testing.assert_allclose(result.probabilities, final.probabilities, rtol=0, atol=1e-6)


@pytest.mark.trust
def test_a_day_of_four_people_who_are_asked_by_name(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project(CONFIG)
    people = tuple(person.email for person in project.people)
    settings = Settings(
        name="day",
        source=LabelStudioSettings(project=project.number),
        crew=CrewSettings(annotators=people, capacity=4, expire_hours=0.3),
        budget=BudgetSettings(open_questions=14, target_confidence=0.9, max_labels=2),
    )
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        day = a_day(project, store, settings, FOUR, first=28, later=5)
        check_what_was_served(day)
        assert day.stopped == "every item is done"
        gone = people[2]
        expired = [(plan, one.item) for plan, _ in day.plans for one in plan.expired if one.annotator == gone]
        assert all((ask.item, ask.annotator) != (item, gone) for plan, item in expired for ask in plan.asks)
        handed_on = {(ask.item, ask.annotator) for plan, item in expired for ask in plan.asks if ask.item == item}
        assert handed_on & {(one.items[0], one.who) for one in day.log if one.what == "answer"}
        happened = [one.what for one in day.log]
        assert happened.count("skip") >= 8
        assert (happened.count("add"), happened.count("delete")) == (4, 4)
        check_the_end(day)
        check_the_replay(day)


def test_a_day_of_whoever_comes(make_project: Callable[..., Project], postgres_url: str) -> None:  # noqa: F811
    project = make_project(CONFIG)
    settings = Settings(
        name="day",
        source=LabelStudioSettings(project=project.number),
        budget=BudgetSettings(open_questions=10, target_confidence=0.8, max_labels=2),
    )
    # Nobody leaves: Label Studio keeps the task that somebody had open for them, for hours.
    workers = [replace(worker, way="project", minutes=2 * worker.minutes, leaves=math.inf) for worker in FOUR]
    with Store(postgres_url) as store:
        day = a_day(project, store, settings, workers, first=14, later=2)
        check_what_was_served(day)
        assert day.stopped == "every item is done"
        check_the_end(day)
        check_the_replay(day)
