"""A working day in a real Label Studio, compressed: people answer what they are served, cycles run by the clock.

The clock is simulated and everything follows from the seed: what happens next is the earliest of what is due. Each
person is served a task, works on it for some minutes (cycles may run meanwhile) and answers or skips it. How they come
to their next task:

    project   GET /next of the project: "Label All Tasks"
    tab       GET /next of their tab
    shown     the label stream of their tab with its filters and order: "Label Tasks As Displayed"
    listing   the first task in their tab's list that they have not dealt with

What ought to be served is predicted from the plan alone (`expected`), without asking the server.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

import httpx
import numpy as np

from hitl import cycle
from hitl.active.replay.simulated_annotators import SimulatedAnswers, SimulatedCrew, confusion_matrix
from hitl.annotations import Name
from hitl.consensus import Consensus
from hitl.demo.recorded import QUESTION, rte, texts
from hitl.errors import Refused
from hitl.plan import Plan
from hitl.platform import Operation
from hitl.settings import Settings
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project

Way = Literal["project", "tab", "shown", "listing"]
MINUTE = 60.0
BEGIN = 1_763_650_800.0
"""When the day begins (seconds since the epoch)."""
CLASSES = ("no", "yes")
TICK = 0.05
"""Minutes that each step of a cycle takes, after the pull."""


@dataclass(frozen=True)
class Worker:
    """How somebody works: `minutes` a task on average; answers right with `accuracy`; `leaves` after so many minutes,
    with the task they were just served open in their browser."""

    way: Way
    accuracy: float
    minutes: float
    skips: float = 0.0
    leaves: float = float("inf")


@dataclass(frozen=True)
class Happened:
    """What happened, in the order in which the platform saw it. `what`: add, delete, answer, skip, cycle."""

    what: str
    time: float
    items: tuple[str, ...] = ()
    who: str = ""
    label: str = ""


@dataclass(frozen=True)
class Served:
    """One task that was served (None: nothing left): when, to whom and how, what it should have been, and why.

    `planned` is the person's next question (where a stream keeps people apart: the next that nobody else works on).
    """

    time: float
    who: str
    way: Way
    task: str | None
    expected: frozenset[str | None]
    why: str
    planned: str | None


@dataclass
class Platform:
    """What Label Studio should know, and so what it should serve; kept by rules that were found by experiment."""

    plan: Plan = field(default_factory=Plan)
    live: dict[str, None] = field(default_factory=dict)
    answered: dict[str, set[str]] = field(default_factory=dict)
    skipped: dict[str, set[str]] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    locks: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, items: Sequence[str]) -> None:
        for item in items:
            self.live[item] = None
            self.answered[item], self.skipped[item], self.locks[item] = set(), set(), {}
            self.wanted.pop(item, None)  # on SQLite the number of the last task, deleted, is given to the next one

    def told(self, plan: Plan, wanted: dict[str, int]) -> None:
        """A cycle was pushed."""
        self.plan = plan
        self.wanted.update(wanted)

    def open_to(self, who: str, item: str) -> bool:
        """Whether this person may still be served the task."""
        if item not in self.live or who in self.answered[item] | self.skipped[item]:
            return False
        return len(self.answered[item]) < self.wanted.get(item, 1)

    def full(self, who: str, item: str) -> bool:
        """Whether others hold all that is left of the task."""
        others = len(self.locks[item].keys() - {who})
        return len(self.answered[item]) + others >= max(self.wanted.get(item, 1), 1)

    def queue(self, who: str, way: Way) -> list[str]:
        """The questions planned for this person, in order, as far as they are still open to them."""
        asks = self.plan.asks if way == "project" else self.plan.asks_of(who)
        return [item for item in dict.fromkeys(str(ask.item) for ask in asks) if self.open_to(who, item)]

    def expected(self, who: str, way: Way) -> tuple[frozenset[str | None], str]:
        """What should be served: one task (None: nothing), or one of several where the platform draws lots."""
        queue = self.queue(who, way)
        if way in ("shown", "listing"):
            return frozenset(queue[:1] or [None]), "first of the tab"
        pool = queue if way == "tab" else [item for item in self.live if self.open_to(who, item)]
        held = [item for item in pool if who in self.locks[item]]
        if held:
            return frozenset(held), "held"
        free = [item for item in queue if not self.full(who, item)]
        if free or way == "tab" or queue:
            return frozenset(free[:1] or [None]), "first that is free"
        rest = [item for item in pool if not self.full(who, item)]
        return frozenset(rest or [None]), "nothing planned: any open task"


class Day:
    """Runs the day. Afterwards: `served`, `log`, `plans` (with their results), `crashes`."""

    def __init__(
        self,
        project: Project,
        store: Store,
        settings: Settings,
        workers: Sequence[Worker],
        *,
        items: Sequence[str],
        seed: int,
        every: float,
    ) -> None:
        self.project, self.store, self.settings = project, store, settings
        self.workers = dict(zip((person.email for person in project.people), workers, strict=False))
        self.connector = project.connect()
        self.every = every
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.stock = list(items)
        self.people = People(items, list(self.workers.values()), seed)
        self.key_of: dict[str, str] = {}
        self.platform = Platform()
        self.served: list[Served] = []
        self.log: list[Happened] = []
        self.plans: list[tuple[Plan, Consensus]] = []
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = count()
        self._place = {email: k for k, email in enumerate(self.workers)}
        self._idle: set[str] = set()
        self._at_work: dict[str, str] = {}
        self._left_open: dict[str, str] = {}
        self._coming: Plan | None = None
        self._ticks = 0.0

    # -- time ------------------------------------------------------------------------------------------------

    def at(self, time: float, what: Callable[[], object]) -> None:
        """Do this so many minutes after the beginning."""
        heapq.heappush(self._due, (time, next(self._serial), what))

    def run(self, minutes: float) -> None:
        """Until the project is done and everybody has finished what they had begun, or the day is over."""
        self.at(0.0, self.cycle)
        for who in self.workers:
            self.at(0.1 + 0.2 * self._place[who], lambda who=who: self.take(who))  # type: ignore[misc]
        self._until(minutes)

    @staticmethod
    def clock(minutes: float) -> float:
        """Seconds since the epoch, so many minutes into the day."""
        return BEGIN + minutes * MINUTE

    @property
    def stopped(self) -> str | None:
        return self.plans[-1][0].stop if self.plans else None

    # -- what people do --------------------------------------------------------------------------------------

    def take(self, who: str) -> None:
        """Be served the next task, as predicted."""
        worker = self.workers[who]
        expected, why = self.platform.expected(who, worker.way)
        planned = self._planned(who, worker.way)
        task = self.serve(who, worker.way)
        if self._coming is not None:  # half of the new plan is there
            expected, why, planned = self._amid_a_push(who, worker.way, task), "amid a push", task
        self.served.append(Served(self.now, who, worker.way, task, expected, why, planned))
        if task is None or self.stopped:
            self._idle.add(who)  # looks again after the next cycle
            return
        if worker.way != "listing" and len(self.platform.locks[task]) < max(self.platform.wanted.get(task, 1), 1):
            self.platform.locks[task][who] = None
        if self.now >= worker.leaves:
            self._left_open[who] = task
            return
        self._at_work[who] = task
        self.at(self.now + float(self.rng.gamma(4.0, worker.minutes / 4.0)), lambda: self.give(who, task))

    def _planned(self, who: str, way: Way) -> str | None:
        """By the plan alone: the next question that is in nobody else's hands, as far as the way tells them apart."""
        # Who opens a task from a list tells nobody.
        hands = [task for other, task in self._at_work.items() if other != who and self.workers[other].way != "listing"]
        hands += [task for other, task in self._left_open.items() if other != who]
        plan = self.platform.plan
        asked = {str(ask.item): ask.annotator for ask in plan.asks}
        room = {task: len(noticed(plan, task) - {asked.get(task)}) for task in hands}
        taken = {task for task in hands if hands.count(task) > room[task]}
        queue = self.platform.queue(who, way)
        return next((item for item in queue if way in ("shown", "listing") or item not in taken), None)

    def _amid_a_push(self, who: str, way: Way, task: str | None) -> frozenset[str | None]:
        """One of the questions of either plan."""
        assert self._coming is not None
        old = self.platform.expected(who, way)[0]
        asks = (*self.platform.plan.asks, *self._coming.asks)
        theirs = [str(ask.item) for ask in asks if way == "project" or ask.annotator in (who, None)]
        answered, skipped, live = self.platform.answered, self.platform.skipped, self.platform.live
        settled = {item for item in theirs if item not in live or who in answered[item] | skipped[item]}
        return frozenset({None, *theirs} - settled) | old

    def give(self, who: str, task: str) -> None:
        """Answer or skip the task, and go on to the next."""
        del self._at_work[who]
        k, key = self._place[who], self.key_of[task]
        skips = self.people.skips(key, k)
        label = "" if skips else self.people.says(key, k)
        try:
            if skips:
                self.project.skip(k, int(task))
            else:
                self.answer(k, task, label)
        except Refused:
            assert task not in self.platform.live, f"{who} could not answer task {task}"
        else:
            assert task in self.platform.live
            (self.platform.skipped if skips else self.platform.answered)[task].add(who)
            self.platform.locks[task].pop(who, None)
            self.log.append(Happened("skip" if skips else "answer", self.now, (task,), who, label))
        self.take(who)

    def answer(self, k: int, task: str, label: str) -> None:
        value = {"from_name": QUESTION, "to_name": "text", "type": "choices", "value": {"choices": [label]}}
        body = {"result": [value], "lead_time": 10.0}
        self.project.person(k).post(f"/api/tasks/{task}/annotations/", body)

    def serve(self, who: str, way: Way) -> str | None:
        """What the server gives this person next."""
        k, number = self._place[who], self.project.number
        if way == "project":
            return _text(self.project.next(k))
        view = self.project.views().get(f"hitl: {who}")
        if view is None:
            return None
        if way == "tab":
            return _text(self.project.next(k, view["id"]))
        if way == "shown":
            body = {"project": number, **{key: view["data"][key] for key in ("filters", "ordering")}}
            headers = {"Authorization": f"Token {self.project.people[k].token}"}
            url = f"{self.project.server.url}/api/dm/actions"
            response = httpx.post(url, params={"id": "next_task", "project": number}, json=body, headers=headers)
            return _text(response.json()["id"]) if response.status_code == 200 else None
        listed = self.project.person(k).get("/api/tasks", view=view["id"], project=number)["tasks"]
        me = int(self.project.people[k].id)
        for task in listed:
            begun = {_id(annotation["completed_by"]) for annotation in self.project.task(task["id"])["annotations"]}
            if me not in begun and not task["is_labeled"]:
                return str(task["id"])
        return None

    # -- what the owner of the project does ------------------------------------------------------------------

    def add(self, number: int) -> None:
        """Add the next items of the stock, as `hitl add` does."""
        keys, self.stock = self.stock[:number], self.stock[number:]
        shown = texts()
        batch = [{"key": key, "data": {**shown[key], "rte": key}} for key in keys]
        list(self.connector.push([Operation("add_items", keys[0], {"items": batch})]))
        tasks = self.project.admin.get("/api/tasks", project=self.project.number, page_size=1000)["tasks"]
        new = {str(t["id"]): t["data"]["rte"] for t in sorted(tasks, key=lambda t: t["id"])}
        new = {task: key for task, key in new.items() if task not in self.platform.live}
        assert sorted(new.values()) == sorted(keys)
        self.key_of.update(new)
        self.platform.add(list(new))
        self.log.append(Happened("add", self.now, tuple(new)))

    def delete(self, task: str) -> None:
        self.project.admin.delete(f"/api/tasks/{task}/")
        del self.platform.live[task]
        self.log.append(Happened("delete", self.now, (task,)))

    def cycle(self) -> cycle.CycleReport:
        """A cycle, the next one planned, and everybody who had nothing to do looks again.

        Work goes on while it runs: every step takes some seconds of the simulated clock.
        """
        self.log.append(Happened("cycle", self.now))
        seen = len(self.log)
        answers = {item: len(self.platform.answered[item]) for item in self.platform.live}
        self._ticks = self.now
        report = cycle.run(self.settings, self.store, self.connector, self._meanwhile, now=self.clock(self.now))
        self._coming, self.now = None, self._ticks
        judgement = report.judgement
        (result,) = judgement.results.values()
        self.plans.append((judgement.plan, result))
        self.platform.told(judgement.plan, wanted_by(judgement.plan, answers))
        if not judgement.plan.stop or self._at_work or self._due or len(self.log) > seen:
            self.at(self.now + self.every, self.cycle)
        for who in sorted(self._idle):
            self.at(self.now + 0.05, lambda who=who: self.take(who))  # type: ignore[misc]
        self._idle.clear()
        return report

    def _meanwhile(self, what: str, done: int, total: int | None) -> None:
        """What people do between two steps of a cycle, after its pull."""
        if what == "recorded":
            self._coming = self.store.plan(self.settings.name)
        if what in ("plan", "recorded", "pushed", "push"):
            self._ticks += TICK
            self._until(self._ticks)

    def _until(self, end: float) -> None:
        while self._due and self._due[0][0] < end:
            self.now, _, what = heapq.heappop(self._due)
            what()


def wanted_by(plan: Plan, answers: Mapping[str, int]) -> dict[str, int]:
    """How many answers the platform is told to collect, from how many there were: one more for each question asked.

    Items that are done have what they need, and so have all when the project is done. Whoever was noticed to be gone
    may still hold the item: one more.
    """
    finished = [str(done.item) for done in plan.done] if plan.stop is None else list(answers)
    wanted = {item: answers[item] for item in finished}
    for ask in plan.asks:
        wanted[str(ask.item)] = wanted.get(str(ask.item), answers[str(ask.item)]) + 1
        wanted[str(ask.item)] += len(noticed(plan, str(ask.item)) - {ask.annotator})
    return wanted


def noticed(plan: Plan, task: str) -> set[Name]:
    """Who is known not to answer about this task any more: their question expired, or they are away."""
    expired = {gone.annotator for gone in plan.expired if str(gone.item) == task}
    return expired | {person.annotator for person in plan.people if person.away}


class People:
    """What everybody says and skips, fixed by the seed, the item and the person alone."""

    def __init__(self, items: Sequence[str], workers: Sequence[Worker], seed: int) -> None:
        recorded = rte()
        assert recorded.truth is not None
        place = {str(name): n for n, name in enumerate(recorded.annotations.items)}
        self.truth = {key: int(recorded.truth[place[key]]) for key in items}
        names = tuple(str(k) for k in range(len(workers)))
        matrices = [confusion_matrix("good", worker.accuracy, 2, 0) for worker in workers]
        crew = SimulatedCrew(names, np.stack(matrices))
        self._code = {key: n for n, key in enumerate(items)}
        truth = np.array([self.truth[key] for key in items], np.int32)
        self._answers = SimulatedAnswers(crew, truth, tuple(items), CLASSES, seed)
        self._skips = [worker.skips for worker in workers]
        self._seed = seed

    def says(self, key: str, k: int) -> str:
        return CLASSES[self._answers.answer(self._code[key], k)]

    def skips(self, key: str, k: int) -> bool:
        return bool(np.random.default_rng([self._seed, self._code[key], k]).random() < self._skips[k])


def _text(task: object) -> str | None:
    return None if task is None else str(task)


def _id(person: Any) -> int:
    return int(person["id"] if isinstance(person, dict) else person)
