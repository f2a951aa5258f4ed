"""A real Label Studio project with hitl as its model backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from hitl import cycle
from hitl.connectors.label_studio import LabelStudioSettings
from hitl.platform import Check
from hitl.service.web.snapshot import snapshot_of
from hitl.settings import BudgetSettings, ServeSettings, Settings
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project, choice
from tests.service.web.backend.served import PASSWORD, USER, One, application, serving

SAYS = {"good": 0.9, "bad": 0.1}
"""What the model predicts of every task."""


@dataclass
class Asked:
    """What comes in, in front of the application."""

    app: ASGIApp
    paths: list[str] = field(default_factory=list)
    hangs: str | None = None
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            route = scope["path"].rpartition("/")[2]
            self.paths.append(route)
            if route == self.hangs:
                await self.go_on.wait()
        await self.app(scope, receive, send)


@dataclass
class Backend:
    """A project whose annotators are served in order, with hitl's backend beside it."""

    project: Project
    tasks: list[int]
    settings: Settings
    store: Store
    one: One
    asked: Asked
    url: str

    @property
    def planned(self) -> list[int]:
        """Tasks in the order of the last cycle."""
        operations = {operation.kind: operation for operation, _ in self.store.operations("p")}
        return [int(item) for item in operations["order"].payload["items"]]

    def run(self) -> None:
        """One cycle, and what is served afterwards."""
        connector = self.project.connect(abstain=("Unsure",))
        cycle.run(self.settings, self.store, connector)
        self.one.snapshot = snapshot_of(self.settings, self.store)

    def suggest(self, what: str) -> None:
        self.settings = self.settings.model_copy(
            update={"serve": ServeSettings.model_validate({"suggest": what, "blind_share": 0})}
        )
        assert self.one.snapshot is not None
        self.one.settings, self.one.snapshot = self.settings, replace(self.one.snapshot, settings=self.settings)

    def register(self) -> int:
        return self.project.connector.register_backend(self.url, PASSWORD, USER)

    def checks(self) -> dict[str, Check]:
        """What `hitl doctor` says of the project."""
        return {check.name: check for check in self.project.connect(abstain=("Unsure",)).check()}

    def backends(self) -> list[dict[str, Any]]:
        return list(self.project.admin.get("/api/ml/", project=self.project.number))

    def day(self, k: int) -> list[tuple[int, list[Any]]]:
        """All that the label stream serves to a person, who answers each; and the suggestions."""
        served = []
        while (task := self.project.next_task(k)) is not None:
            served.append((int(task["id"]), list(task["predictions"])))
            self.project.answer(k, task["id"], "bad")
        return served


@pytest.fixture
def backend(make_project: Callable[..., Project], tmp_path: Path) -> Iterator[Backend]:
    """Seven tasks: two labeled by two people, a model's predictions of all but the last, and a first cycle."""
    project = make_project()
    ids = [int(person.id) for person in project.people]

    def annotated(n: int) -> list[dict[str, Any]]:
        said = {0: ("good", "good"), 1: ("bad", "good")}.get(n, ())
        return [
            {"completed_by": ids[k], "result": choice(label), "ground_truth": False} for k, label in enumerate(said, 2)
        ]

    tasks = project.add(7, annotated)
    rows = [
        {
            "task": task,
            "score": 0.9,
            "model_version": "resnet",
            "result": [{**choice("good")[0], "meta": {"distribution": SAYS}}],
        }
        for task in tasks[:-1]
    ]
    project.admin.post(f"{project.path}/import/predictions", rows)
    settings = Settings(
        name="p",
        source=LabelStudioSettings(url=project.server.url, project=project.number, abstain=("Unsure",)),
        serve=ServeSettings(blind_share=0),
        budget=BudgetSettings(open_questions=5, target_confidence=0.999, min_labels=2),
    )
    one = One(settings, None)
    asked = Asked(application({"p": one}))
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store, serving(asked) as url:
        made = Backend(project, tasks, settings, store, one, asked, f"{url}/ml/p")
        made.run()
        yield made
