"""`hitl add` and `hitl gold` against a real Label Studio: killed after any step, the next command ends in one state."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.connectors.label_studio import TOKEN
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import all_tasks
from tests.killing import EVERY, run_until, steps_of
from tests.of_the_day import DAY

pytestmark = [pytest.mark.server, pytest.mark.journey]


def prepared(make_project: Callable[..., Project], folder: Path) -> Project:
    """A project of three tasks that was pulled, and the files of both commands."""
    project = make_project()
    tasks = project.add(3)
    folder.mkdir()
    (folder / "hitl.toml").write_text(
        f'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "label-studio"\nurl = "{project.server.url}"\n'
        f'project = {project.number}\nabstain = ["Unsure"]\n'
    )
    (folder / "new.csv").write_text("item,text\nn1,new\nn2,newer\n")
    (folder / "known.csv").write_text(f"item,label\n{tasks[0]},good\n{tasks[2]},bad\n")
    with Store(f"sqlite:///{folder}/hitl.db") as store, store.lease("p") as lease:
        cycle.pull(lease, store, project.connect(abstain=("Unsure",)))
    return project


def shown(project: Project) -> list[Any]:
    """What the platform has: every task with its text, our name for it, its number of labels and its gold."""
    return sorted(
        (
            row["data"]["text"],
            str((row.get("meta") or {}).get("hitl")),
            row["overlap"],
            [(one["ground_truth"], one["result"][0]["value"]["choices"]) for one in row["annotations"]],
        )
        for row in all_tasks(project)
    )


@EVERY
@pytest.mark.parametrize(
    ("command", "after"),
    [(("add", "new.csv"), ("push",)), (("gold", "known.csv"), ("add", "new.csv"))],
    ids=["add", "gold"],
)
def test_killed_after_any_step_the_next_command_ends_as_if_it_had_not_been(
    make_project: Callable[..., Project], tmp_path: Path, command: tuple[str, ...], after: tuple[str, ...], every: int
) -> None:
    whole = prepared(make_project, tmp_path / "whole")
    environment = {TOKEN: whole.server.token}
    steps_of(run_until(0, *command, folder=tmp_path / "whole", environment=environment))
    steps_of(run_until(0, *after, folder=tmp_path / "whole", environment=environment))
    expected = shown(whole)
    assert len(expected) == 5
    for step in count(1 + DAY % every, every):  # a busy server may be asked again: the steps are not always as many
        folder = tmp_path / f"killed-{step}"
        project = prepared(make_project, folder)
        before = shown(project)
        killed = run_until(step, *command, folder=folder, environment=environment)
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            untouched = not store.queued("p") and shown(project) == before
        if untouched:  # killed before it was queued: given again, as its user would
            steps_of(run_until(0, *command, folder=folder, environment=environment))
        steps_of(run_until(0, *after, folder=folder, environment=environment))
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            assert store.pending("p") == []
        assert shown(project) == expected, f"killed after step {step}, then {after}"
    assert step > 6  # three answers of the server; queued, checked, confirmed
