"""Whole cycles against a real Label Studio: the plan is what is served, twice is once, a kill changes nothing."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hitl import cycle
from hitl import project as projects
from hitl.connectors.label_studio import compare
from hitl.connectors.label_studio.pull import ID_PAGE
from hitl.errors import BadSettings
from hitl.operations import push
from hitl.settings import CrewSettings, Settings
from hitl.status import status_of
from hitl.store import Store
from tests.command_line import forked
from tests.connectors.label_studio.conftest import Project, choice
from tests.connectors.label_studio.projects import connect, labeled_project, settings_for, shown
from tests.killing import EVERY, fatal_steps

pytestmark = [pytest.mark.server, pytest.mark.journey]

KILLED = """
import os, signal, sys
from hitl import cycle
from hitl.connectors.label_studio import LabelStudio
from hitl.store import Store
from tests.connectors.label_studio.projects import settings_for

url, token, number, database, fatal, *crew = sys.argv[1:]
events = 0

def kill_at(what, done, total):
    global events
    events += 1
    if events == int(fatal):
        os.kill(os.getpid(), signal.SIGKILL)

with Store(database) as store:
    connector = LabelStudio(url, token, int(number), abstain=("Unsure",), page_size=4)
    cycle.run(settings_for(int(number), crew), store, connector, kill_at)
print(events)
"""


def run_until(project: Project, folder: Path, event: int, crew: list[str]) -> subprocess.CompletedProcess[str]:
    server = project.server
    place = [server.url, server.token, str(project.number), f"sqlite:///{folder}/hitl.db", str(event)]
    return forked(KILLED, *place, *crew)


@pytest.mark.parametrize("few", [compare.FEW, 2], ids=["few tasks", "many tasks"])
def test_an_unchanged_run_is_at_most_ten_requests(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """However many tasks there are, and although they have only just been imported; every change is still seen."""
    monkeypatch.setattr(compare, "FEW", few)
    tasks = project.add(40, lambda _: [{"completed_by": 1, "ground_truth": False, "result": choice("good")}])
    settings = settings_for(project.number)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        pages: list[str] = []
        project.recorder.fail = lambda request: pages.append(request.url.params.get("page_size", ""))

        def run() -> cycle.CycleReport | cycle.Unchanged:
            project.recorder.requests.clear()
            pages.clear()
            return cycle.run_if_changed(settings, store, projects.recalled(project.connect(), store, settings.name))

        def settled() -> int:
            for _ in range(3):
                if isinstance(run(), cycle.Unchanged) and isinstance(run(), cycle.Unchanged):
                    return len(project.recorder.requests)
            raise AssertionError("no run was unchanged")

        assert settled() <= 10, project.recorder.requests
        assert few > 2 or str(ID_PAGE) not in pages, "many tasks are counted, not listed"
        project.admin.delete(f"/api/tasks/{tasks[0]}/")
        assert run().pulled.deleted
        annotation = project.task(tasks[1])["annotations"][0]["id"]
        project.admin.patch(f"/api/annotations/{annotation}/", {"result": choice("bad")})
        assert run().pulled.changed
        project.skip(1, tasks[2])
        assert run().pulled.changed
        project.admin.delete(f"/api/annotations/{annotation}/")
        assert run().pulled.deleted
        assert settled() <= 10, project.recorder.requests


def test_what_a_run_pushes_is_no_news(make_project: Callable[..., Project], tmp_path: Path) -> None:
    """`hitl serve` pulls between runs, and reads the tasks back that the run has reopened."""
    project, _ = labeled_project(make_project)
    settings = settings_for(project.number)
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        cycle.run(settings, store, connect(project))
        with store.lease(settings.name) as lease:
            assert cycle.pull(lease, store, connect(project)).items
        status = status_of(settings, store)
        assert (status.changed_since, status.pages and status.pages.title) == (False, "test project")
        assert isinstance(cycle.run_if_changed(settings, store, connect(project)), cycle.Unchanged)


@EVERY
def test_a_kill_between_any_two_steps_then_run_ends_in_the_same_state(
    make_project: Callable[..., Project], tmp_path: Path, every: int
) -> None:
    project, tasks = labeled_project(make_project)
    crew = [project.people[k].email for k in (2, 3)]
    whole = tmp_path / "whole"
    whole.mkdir()
    finished = run_until(project, whole, 0, crew)
    assert finished.returncode == 0, finished.stderr
    expected = shown(project, tasks)
    for event in fatal_steps(int(finished.stdout), every):
        folder = tmp_path / str(event)
        folder.mkdir()
        project, tasks = labeled_project(make_project)
        assert run_until(project, folder, event, crew).returncode == -signal.SIGKILL
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            cycle.run(settings_for(project.number, crew), store, connect(project))
        assert shown(project, tasks) == expected, f"killed at event {event}"


def test_a_skill_that_nobody_has_closes_no_task_and_mended_all_is_as_before(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project, tasks = labeled_project(make_project)
    emails = [person.email for person in project.people[1:3]]

    def needing(*skills: str) -> Settings:
        crew = CrewSettings(annotators=tuple(emails), capacity=3, skill_field="text", skills={emails[0]: skills})
        return settings_for(project.number).model_copy(update={"crew": crew})

    right = needing(*(f"text {n}" for n in range(9)))
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        assert cycle.run(right, store, connect(project)).judgement.plan.asks
        before = shown(project, tasks)
        judgement = cycle.run(needing("txet"), store, connect(project)).judgement
        assert (judgement.plan.asks, judgement.plan.stop) == ((), None)
        assert "no annotator has the skills that" in judgement.metrics["idle"]
        meanwhile = shown(project, tasks)
        assert meanwhile["state"] == before["state"]
        assert not all(closed for _, closed in meanwhile["state"])
        assert not meanwhile["tabs"][f"hitl: {emails[0]}"]
        cycle.run(right, store, connect(project))
        assert shown(project, tasks) == before


def test_two_stores_that_plan_one_project_notice(make_project: Callable[..., Project], tmp_path: Path) -> None:
    project, _ = labeled_project(make_project)
    settings = settings_for(project.number)
    with Store(f"sqlite:///{tmp_path}/ours.db") as ours, Store(f"sqlite:///{tmp_path}/theirs.db") as theirs:
        assert cycle.run(settings, ours, connect(project)).pulled.problems == ()
        assert projects.orders_of_others(ours, settings.name, connect(project)) == ()
        (warned,) = cycle.run(settings, theirs, connect(project)).pulled.problems
        assert warned.startswith("Another hitl store also orders the tasks")
        assert projects.orders_of_others(theirs, settings.name, connect(project)) == ()
        assert projects.orders_of_others(ours, settings.name, connect(project)) == (warned,)
        with pytest.raises(BadSettings, match="replaced the order that this one sent"):
            cycle.run(settings, ours, connect(project))
        with ours.lease(settings.name) as lease:
            list(push(lease, ours, connect(project), verify=True))
        assert cycle.run(settings, ours, connect(project)).pulled.problems == ()
