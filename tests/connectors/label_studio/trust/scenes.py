"""What happens to a project while a fault is injected: a first cycle, a later one, `add`, `gold`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from hitl import cycle
from hitl.audit import EVIDENCE, audit
from hitl.connectors.label_studio import LabelStudio
from hitl.manual_operations import known_truth, new_items, send
from hitl.settings import Settings
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project, choice
from tests.connectors.label_studio.projects import settings_for

NOON = 1_764_000_000.0


class Scene:
    """A project of seven tasks and two annotators with a store of its own, reached by a proxy."""

    def __init__(self, project: Project, url: str, folder: Path) -> None:
        self.project = project
        self.url = url
        self.tasks: list[int] = []
        people = project.people[1:3]
        self.settings: Settings = settings_for(project.number, [person.email for person in people], open_questions=6)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.store = Store(f"sqlite:///{folder}/hitl.db")
        self.page_size = 4

    def connect(self) -> LabelStudio:
        server = self.project.server
        return LabelStudio(self.url, server.token, self.project.number, abstain=("Unsure",), page_size=self.page_size)

    def fill(self) -> None:
        """Five tasks with answers of two people who are not in the crew, and two without."""
        ids = [int(self.project.people[k].id) for k in (0, 3)]

        def annotated(n: int) -> list[dict[str, Any]]:
            labels = ("good" if n % 2 else "bad", "good" if n % 3 else "bad") if n < 5 else ()
            return [
                {"completed_by": ids[k], "result": choice(label), "ground_truth": False}
                for k, label in enumerate(labels)
            ]

        self.tasks = self.project.add(7, annotated)

    def run(self) -> None:
        cycle.run(self.settings, self.store, self.connect(), now=NOON)

    def add(self) -> None:
        table = pa.table({"item": ["new-1", "new-2", "new-3"], "text": ["one", "two", "three"]})
        send(self.settings, self.store, self.connect(), new_items(table, "item", "new.csv"), "new.csv")

    def gold(self) -> None:
        table = pa.table({"item": [str(self.tasks[5]), str(self.tasks[0])], "label": ["good", "bad"]})
        truth = known_truth(table, self.connect().questions(), None, "gold.csv")
        send(self.settings, self.store, self.connect(), truth, "gold.csv")

    def differences(self, *, pushed: bool = False) -> list[str]:
        """What `hitl audit` finds; `pushed`: but for evidence, which `add` and `gold` leave to the next pull."""
        found = audit(self.settings, self.store, self.connect()).differences
        return [f"{one.what} {one.key}: {one.why}" for one in found if not (pushed and one.what in EVIDENCE)]

    def lacks(self, action: str) -> list[str]:
        """What `add` and `gold` were to bring and what is not there, or more than once."""
        if action == "add":
            listed = self.project.admin.get("/api/tasks", project=self.project.number, fields="all", page_size=100)
            own = Counter((task["meta"] or {}).get("hitl") for task in listed["tasks"])
            return [f"{own[key]} tasks are {key}" for key in ("new-1", "new-2", "new-3") if own[key] != 1]
        found = []
        for number, label in ((self.tasks[5], "good"), (self.tasks[0], "bad")) if action == "gold" else ():
            said = [one["result"] for one in self.project.task(number)["annotations"] if one["ground_truth"]]
            if said != [choice(label)]:
                found.append(f"task {number}: the ground truth is {said} instead of {label}")
        return found

    def answer(self, turn: int = 0) -> None:
        """What people do between two cycles: one more answer, and one that is changed back and forth."""
        task = self.project.task(self.tasks[4])
        (row, *_) = sorted(task["annotations"], key=lambda each: each["id"])
        label = "bad" if row["result"] == choice("good") else "good"
        self.project.admin.patch(f"/api/annotations/{row['id']}/", {"result": choice(label)})
        if turn == 0:
            self.project.answer(1, self.tasks[6], "good")


ACTIONS: Mapping[str, Callable[[Scene], None]] = {
    "first cycle": Scene.run,
    "later cycle": Scene.run,
    "add": Scene.add,
    "gold": Scene.gold,
}
"""What the fault hits."""


def prepared(scene: Scene, action: str) -> Scene:
    """The scene just before its action."""
    scene.fill()
    if action != "first cycle":
        scene.run()
    if action == "later cycle":
        scene.answer()
    return scene
