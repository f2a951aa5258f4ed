"""One project from its first run to the last on a real Label Studio: pull, plan, push, label by hand, edit, delete.

It is the part of the longer ways (marked `journey`) that `make test` takes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hitl import cycle
from hitl import project as projects
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project, choice
from tests.connectors.label_studio.projects import connect, labeled_project, settings_for, shown, untouched

pytestmark = pytest.mark.server


def test_a_project_is_labeled_as_planned_edited_and_judged_again(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project, tasks = labeled_project(make_project)
    emails = [person.email for person in project.people]
    settings = settings_for(project.number, emails[1:])
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        first = cycle.run(settings, store, connect(project))
        assert first.changed > 0
        before = shown(project, tasks)
        project.recorder.requests.clear()
        again = cycle.run(settings, store, connect(project))
        assert (again.changed, again.receipts, again.pulled.deleted) == (0, (), 0)
        assert project.recorder.writes == []
        assert shown(project, tasks) == before

        answered = 0
        for k in (1, 2, 3):
            planned = [int(str(ask.item)) for ask in first.judgement.plan.asks_of(emails[k])]
            for task in planned:
                assert project.next(k, project.tab(k)) == task
                project.answer(k, task, "bad")
            if planned:
                assert project.next(k, project.tab(k)) is None
            answered += len(planned)
        assert answered >= 5

        edited = project.task(tasks[0])["annotations"][0]
        project.admin.patch(f"/api/annotations/{edited['id']}/", {"result": choice("Unsure")})
        gone = project.task(tasks[1])["annotations"][0]
        project.admin.delete(f"/api/annotations/{gone['id']}/")
        project.admin.delete(f"/api/tasks/{tasks[8]}/")
        truth = project.answer(0, tasks[7], "good", ground_truth=True)
        last = cycle.run(settings, store, connect(project))
        untouched(settings, store, connect(project))
        assert (emails[2], str(tasks[6])) in projects.crew_of(settings, store).never  # it was skipped
    (evidence,) = last.judgement.evidence.values()
    assert evidence.annotations.items == tuple(str(task) for task in tasks[:8])
    assert evidence.known.tolist() == [False] * 7 + [True]
    answers = {(int(row["item"]), row["annotator"], row["label"]) for row in evidence.annotations.table().to_pylist()}
    expected = set()
    for task in tasks[:8]:
        for row in project.task(task)["annotations"]:
            if not row["was_cancelled"] and row["id"] != truth["id"]:
                expected.add((task, row["completed_by"]["email"], row["result"][0]["value"]["choices"][0]))
    assert answers == expected
    assert any(label == "Unsure" for _, _, label in answers)
