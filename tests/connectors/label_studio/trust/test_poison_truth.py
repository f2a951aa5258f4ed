"""Annotations that were imported without a word on ground truth: how many there are is said, and the advice works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from hitl import cycle
from hitl.audit import audit
from hitl.manual_operations import known_truth, send
from hitl.platform import Check
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project, choice
from tests.connectors.label_studio.projects import connect, settings_for

pytestmark = [pytest.mark.server, pytest.mark.journey]


def imported(project: Project, count: int) -> list[int]:
    """Tasks with an annotation each of two people, as an export of another tool has them."""
    ids = [int(project.people[k].id) for k in (0, 1)]
    return project.add(count, lambda _: [{"completed_by": who, "result": choice("good")} for who in ids])


def truth(project: Project) -> Check:
    (found,) = [check for check in connect(project).check() if check.name == "ground truth"]
    return found


def write_gold(project: Project, store: Store, task: int) -> None:
    table = pa.table({"item": [str(task)], "label": ["bad"]})
    known = known_truth(table, connect(project).questions(), None, "gold.csv")
    send(settings_for(project.number), store, connect(project), known, "gold.csv")


def unset_all(project: Project) -> None:
    """What the guide says."""
    from label_studio_sdk import LabelStudio

    with httpx.Client() as connections:
        client: Any = LabelStudio(base_url=project.server.url, api_key=project.server.token, httpx_client=connections)
        for task in client.tasks.list(project=project.number, fields="all"):
            for annotation in task.annotations:
                if annotation["ground_truth"] and annotation["updated_by"] is None:
                    client.annotations.update(annotation["id"], ground_truth=False)


@pytest.mark.parametrize("cure", ["unset", "again"])
def test_the_first_pull_and_the_doctor_say_it_and_the_advice_works(
    make_project: Callable[..., Project], tmp_path: Path, cure: str
) -> None:
    project = make_project()
    tasks, (other,) = imported(project, 3), project.add(1)
    settings = settings_for(project.number)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        first = cycle.run(settings, store, connect(project)).pulled
        (told,) = first.problems
        assert told.startswith("6 imported annotations are taken as gold")
        assert "unset it or import them again" in told
        assert cycle.run(settings, store, connect(project)).pulled.problems == ()
        found = truth(project)
        assert not found.ok
        first_two = ", ".join(f"3 of {project.people[k].email}" for k in (0, 1))
        assert f"6 annotations are ground truth ({first_two}), and 0 are answers" in found.detail
        assert "6 imported annotations are taken as gold" in found.detail
        assert found.fix.startswith("If they are answers by annotators, unset it or import them again")
        if cure == "unset":
            unset_all(project)
        else:
            for task in tasks:
                project.admin.delete(f"/api/tasks/{task}/")
            ids = [int(project.people[k].id) for k in (0, 1)]
            answer = {"result": choice("good"), "ground_truth": False}
            project.add(3, lambda _: [{**answer, "completed_by": who} for who in ids])
        assert truth(project) == Check("ground truth", True, "of 6 annotations none is ground truth")
        assert cycle.run(settings, store, connect(project)).pulled.problems == ()
        assert (store.counts("p")["labels"], store.counts("p")["gold"]) == (6, 0)
        write_gold(project, store, other)
        assert cycle.run(settings, store, connect(project)).pulled.problems == ()
        assert audit(settings, store, connect(project)).differences == ()


def test_known_truth_that_was_meant_is_not_counted(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project = make_project()
    plain = project.add(3)
    project.answer(1, plain[0], "good", ground_truth=True)  # a star in the web page
    settings = settings_for(project.number)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        assert cycle.run(settings, store, connect(project)).pulled.problems == ()
        write_gold(project, store, plain[1])
    (tmp_path / "again").mkdir()
    with Store(f"sqlite:///{tmp_path}/again/hitl.db") as store:  # the first pull of another store
        report = cycle.run(settings, store, connect(project))
        assert not any("imported" in line for line in report.pulled.problems)
        assert store.counts("p")["gold"] == 2
    found = truth(project)
    assert (found.ok, found.fix) == (True, "")
    assert found.detail == f"1 annotations are ground truth (1 of {project.people[1].email}), and 0 are answers"
