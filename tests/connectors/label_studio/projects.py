"""A project of Label Studio, as several tests have it, and what the platform shows of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hitl import audit
from hitl.connectors.label_studio import LabelStudioSettings
from hitl.operations import push
from hitl.settings import BudgetSettings, CrewSettings, Settings
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project, choice


def settings_for(number: int, crew: list[str] | tuple[str, ...] = (), **budget: Any) -> Settings:
    return Settings(
        name="p",
        source=LabelStudioSettings(project=number, abstain=("Unsure",)),
        crew=CrewSettings(annotators=tuple(crew), capacity=3) if crew else CrewSettings(),
        budget=BudgetSettings(**{"open_questions": 9, "target_confidence": 0.97, **budget}),
    )


def labeled_project(make_project: Callable[..., Project]) -> tuple[Project, list[int]]:
    """Nine tasks; two annotators agree on some and not on others, one is skipped, two nobody has seen."""
    project = make_project()
    ids = [int(person.id) for person in project.people]

    def annotated(n: int) -> list[dict[str, Any]]:
        if n == 6:
            return [{"completed_by": ids[2], "result": [], "was_cancelled": True, "ground_truth": False}]
        labels = ("good" if n % 2 else "bad", "good" if n % 3 else "bad")
        answers = [{"result": choice(label), "ground_truth": False} for label in labels] if n < 6 else []
        return [{"completed_by": ids[k], **answer} for k, answer in enumerate(answers)]

    return project, project.add(9, annotated)


def connect(project: Project, **options: Any) -> Any:
    return project.connect(abstain=("Unsure",), **options)


def untouched(settings: Settings, store: Store, connector: Any) -> None:
    """Nothing differs from what was pushed: an audit finds nothing, and a push that compares it all writes nothing."""
    assert audit.audit(settings, store, connector).differences == ()
    with store.lease(settings.name) as lease:
        receipts = list(push(lease, store, connector, verify=True))
    assert receipts
    assert sum(receipt.changed for receipt in receipts) == 0


def all_tasks(project: Project) -> list[dict[str, Any]]:
    """All tasks of a small project, whole."""
    return list(project.admin.get("/api/tasks", project=project.number, fields="all", page_size=100)["tasks"])


def shown(project: Project, tasks: list[int]) -> dict[str, Any]:
    """What the platform shows, with tasks by their place: equal projects show the same."""
    place = {task: n for n, task in enumerate(tasks)}
    listed = {row["id"]: row for row in all_tasks(project)}
    rows = [listed[task] for task in tasks]
    versions = project.settings()["model_version"]
    predictions = [
        sorted(
            (prediction["model_version"].split("-")[1], round(prediction["score"] or 0, 6), str(prediction["result"]))
            for prediction in row["predictions"]
        )
        for row in rows
    ]
    tabs = {}
    for view in project.admin.get("/api/dm/views/", project=project.number):
        listed = project.admin.get("/api/tasks", view=view["id"], project=project.number)["tasks"]
        tabs[view["data"]["title"]] = [place[task["id"]] for task in listed]
    return {
        "order": versions.split("-")[1],
        "predictions": predictions,
        "state": [(row["overlap"], row["is_labeled"]) for row in rows],
        "tabs": tabs,
        "versions": len(project.versions()),
        "annotations": [len(row["annotations"]) for row in rows],
    }
