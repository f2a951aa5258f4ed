"""Clocks that differ and jump around a real Label Studio: is an annotation lost?

    python -m tests.bench.trust.clocks --runs 200 --save

Each run has a project of its own. Three annotators answer, edit, skip and delete, tasks come and go, in six rounds.
The clock of the application (its stamps, moved in the server's database), of the proxy (`Date`) and ours jump by up to
10 minutes, before each round and during a pull; each third change becomes visible 1 to 300 s after its stamp. People go
on while a pull reads. After each round, once nobody writes, one pull has to say ok; then the platform is read plainly,
as the audit reads it, and the store has to hold the same answers of the same tasks.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import httpx

from hitl import cycle
from hitl.connectors.label_studio import LabelStudio, audit
from hitl.connectors.label_studio.server import LocalServer, Person
from hitl.store import Store
from tests.bench import results
from tests.connectors.label_studio.conftest import SENTIMENT, Project, choice
from tests.connectors.label_studio.reading.clocks import Proxy, Stamps

RUNS, ROUNDS, TASKS, JUMP, LATE = 200, 6, 8, 600.0, 300.0


@dataclass
class Outcome:
    """What one run did, and how much the audits found different."""

    changes: int = 0
    pulls: int = 0
    mended: int = 0
    differences: int = 0

    def add(self, other: Outcome) -> None:
        """Add the figures of another run."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Busy(Proxy):
    """A proxy whose clock jumps, and during whose requests people go on."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.world.reading and self.world.random.random() < 0.2:
            self.world.jump()
            self.world.change()
        self.ahead = self.world.proxy
        return super().handle_request(request)


class World:
    """One project whose clocks go wrong."""

    def __init__(self, server: LocalServer, people: Sequence[Person], seed: int, store: Store) -> None:
        number = LabelStudio.create_project(server.url, server.token, f"clocks {seed}", SENTIMENT)
        self.project = Project(server, people, number)
        self.random = random.Random(seed)
        self.name, self.store, self.stamps = f"p{seed}", store, Stamps(server)
        self.connector = self.project.connect(transport=Busy(self))
        self.tasks = self.project.add(TASKS)
        self.said: list[int] = []
        self.reading = False
        self.application = self.proxy = self.ours = 0.0
        self.outcome = Outcome()

    def jump(self) -> None:
        """Each clock may jump, both ways."""
        for clock in ("application", "proxy", "ours"):
            if self.random.random() < 0.5:
                setattr(self, clock, self.random.uniform(-JUMP, JUMP))

    def change(self) -> None:
        """One change by somebody, stamped by the application's clock, perhaps visible late."""
        self.outcome.changes += 1
        late = self.random.uniform(1.0, LATE) if self.random.random() < 1 / 3 else 0.0
        when = self.application - late
        kinds: list[Callable[[float], None]] = [self._answer, self._answer, self._answer, self._edit, self._edit]
        kinds += [self._skip, self._delete, self._new, self._remove]
        self.random.choice(kinds)(when)

    def run(self) -> Outcome:
        """All rounds."""
        true = time.time
        with patch("time.time", lambda: true() + self.ours):
            for _ in range(ROUNDS):
                self.jump()
                for _ in range(self.random.randrange(6)):
                    self.change()
                self.reading = True
                self.pull()
                self.reading = False
                self.pull()
                self.outcome.differences += self.differences()
        return self.outcome

    def pull(self) -> None:
        """One pull."""
        with self.store.lease(self.name) as lease:
            self.outcome.mended += cycle.pull(lease, self.store, self.connector).fixed
        self.outcome.pulls += 1

    def differences(self) -> int:
        """Items whose answers are not the same in the store and on the platform."""
        there = audit.snapshot(self.project.admin, self.project.number, self.connector.form).answers
        here = self.store.held(self.name).snapshot().answers
        return sum(there.get(key) != here.get(key) for key in there.keys() | here.keys())

    def _answer(self, when: float) -> None:
        if self.tasks:
            label = self.random.choice(["good", "bad"])
            said = self.project.answer(self.random.randrange(3), self.random.choice(self.tasks), label)
            self.said.append(int(said["id"]))
            self.stamps.annotation(self.said[-1], when)

    def _edit(self, when: float) -> None:
        if self.said:
            number = self.random.choice(self.said)
            label = self.random.choice(["good", "bad"])
            self.project.admin.patch(f"/api/annotations/{number}/", {"result": choice(label)})
            self.stamps.annotation(number, when)

    def _skip(self, when: float) -> None:
        if self.tasks:
            task = self.random.choice(self.tasks)
            self.project.skip(self.random.randrange(3), task)
            self.stamps.task(task, when)

    def _delete(self, when: float) -> None:
        if self.said:
            number = self.said.pop(self.random.randrange(len(self.said)))
            task = int(self.project.admin.get(f"/api/annotations/{number}/")["task"])
            self.project.admin.delete(f"/api/annotations/{number}/")
            self.stamps.task(task, when)

    def _new(self, when: float) -> None:
        rows = [{"completed_by": int(self.project.people[0].id), "ground_truth": False, "result": choice("bad")}]
        new = self.project.add(2, lambda _: rows)
        self.stamps.new(new, when)
        self.tasks += new

    def _remove(self, when: float) -> None:
        if len(self.tasks) > 3:
            task = self.tasks.pop(self.random.randrange(len(self.tasks)))
            gone = {int(one["id"]) for one in self.project.task(task)["annotations"]}
            self.project.admin.delete(f"/api/tasks/{task}/")
            self.said = [number for number in self.said if number not in gone]


def trial(server: LocalServer, people: Sequence[Person], seeds: Sequence[int]) -> list[Outcome]:
    """A run for each seed."""
    with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/hitl.db") as store:
        return [World(server, people, seed, store).run() for seed in seeds]


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, runs=RUNS, first=0, minutes=60.0)
    total, wrong, done, end = Outcome(), [], 0, time.monotonic() + 60 * options.minutes
    with LocalServer() as server:
        people = [server.sign_up(f"annotator{k}@example.com", "a-long-password") for k in range(3)]
        for seed in range(options.first, options.first + options.runs):
            if time.monotonic() > end:
                break
            (one,) = trial(server, people, [seed])
            total.add(one)
            wrong += [seed] if one.differences else []
            done += 1
    figures = {"runs": done, **vars(total), "runs with a difference": len(wrong)}
    page = results.Page()
    page.tell(*(f"{name:24}{value:>8,}" for name, value in figures.items()))
    if options.save:
        page.save("trust_clocks", figures, f"trust.clocks --runs {options.runs} --save")
    if wrong:
        sys.exit(f"seeds with a difference: {wrong}")


if __name__ == "__main__":
    main()
