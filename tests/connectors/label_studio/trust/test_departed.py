"""What people do to a task after it was planned changes for how many it is open: the next cycle mends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.trust.scenes import Scene, prepared

pytestmark = [pytest.mark.server, pytest.mark.journey]


def test_a_task_that_somebody_answers_twice_stays_open_for_as_many_others(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project = make_project()
    scene = prepared(Scene(project, project.server.url, tmp_path), "later cycle")
    scene.run()
    wanted = next(o.payload["items"] for o, _ in scene.store.operations("p") if o.kind == "labels_wanted")
    open_ones = [project.task(task) for task in scene.tasks if str(task) in wanted]
    twice = next(task for task in open_ones if task["annotations"] and not task["is_labeled"])
    said = twice["annotations"][0]
    by = next(k for k, person in enumerate(project.people) if int(person.id) == _id(said["completed_by"]))
    project.person(by).post(f"/api/tasks/{twice['id']}/annotations/", {"result": said["result"]})
    assert project.task(twice["id"])["overlap"] == twice["overlap"]
    scene.run()
    assert scene.differences() == []
    assert project.task(twice["id"])["overlap"] == twice["overlap"] + 1


def _id(by: Any) -> int:
    return int(by["id"] if isinstance(by, dict) else by)
