"""A project of texts in a real Label Studio, from no label on, with a model that learns from three annotators."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hitl import cycle
from hitl.connectors.label_studio import LabelStudioSettings
from hitl.models.learning.learned import NAME
from hitl.settings import Settings
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import connect

pytestmark = [pytest.mark.server, pytest.mark.journey]

WORDS = {"good": ["bright", "warm", "clever"], "bad": ["dull", "cold", "clumsy"]}
TASKS = 60


def truth(n: int) -> str:
    return "good" if n % 3 else "bad"


def text(n: int) -> str:
    words = WORDS[truth(n)]
    return f"{words[n % 3]} and {words[n // 3 % 3]}"


def settings(project: Project) -> Settings:
    people = tuple(project.people[k].email for k in (1, 2, 3))
    return Settings(
        name="p",
        source=LabelStudioSettings(url=project.server.url, project=project.number),
        crew={"annotators": people},  # type: ignore[arg-type]
        budget={"open_questions": 24},  # type: ignore[arg-type]
        features={"text": "text", "dimensions": 10},  # type: ignore[arg-type]
        learn={"model": "logistic"},  # type: ignore[arg-type]
    )


def said(k: int, n: int) -> str:
    """The third errs in one case of five."""
    wrong = k == 3 and n % 5 == 0
    return {"good": "bad", "bad": "good"}[truth(n)] if wrong else truth(n)


def label_all_served(project: Project, number_of: dict[int, int]) -> int:
    """Each annotator answers all that their own tab serves."""
    answers = 0
    for k in (1, 2, 3):
        tab = project.tab(k)
        while tab is not None and (task := project.next(k, tab)) is not None:
            project.answer(k, task, said(k, number_of[task]))
            answers += 1
    return answers


KILLED = """
import os, signal, sys
from hitl.cli import main
from hitl.store import Store
save, left = Store.save_predicted, [2]
def saved(*arguments):
    save(*arguments)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Store.save_predicted = saved
sys.argv = ["hitl", "run"]
main()
"""

TOML = """
name = "p"
store = "sqlite:///hitl.db"
[source]
kind = "label-studio"
url = "{url}"
project = {number}
abstain = ["Unsure"]
[crew]
annotators = {people}
[budget]
open_questions = 24
[features]
text = "text"
dimensions = 10
[learn]
model = "logistic"
"""


def kill_while_training(project: Project, folder: Path) -> None:
    people = [project.people[k].email for k in (1, 2, 3)]
    (folder / "hitl.toml").write_text(TOML.format(url=project.server.url, number=project.number, people=people))
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "HITL_LABEL_STUDIO_TOKEN": project.server.token, "PYTHONPATH": root}
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=folder, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL


def test_from_no_label_to_a_model_that_orders_the_tasks(
    make_project: Callable[..., Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project()
    rows = [{"data": {"text": text(n)}} for n in range(TASKS)]
    tasks = project.admin.post(f"{project.path}/import", rows, return_task_ids="true")["task_ids"]
    number_of = {int(task): n for n, task in enumerate(tasks)}
    trained: list[int] = []
    save = Store.save_predicted
    monkeypatch.setattr(Store, "save_predicted", lambda *given: (trained.append(given[4]), save(*given))[1])
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        accuracy, labels = [], 0
        for number in range(1, 6):
            if number == 3:
                kill_while_training(project, tmp_path)
                trained.clear()
            report = cycle.run(settings(project), store, connect(project))
            if number == 3:
                assert len(trained) == 4  # of six; two were saved before the kill
            consensus, plan = report.judgement.results["sentiment"], report.judgement.plan
            evidence = report.judgement.evidence["sentiment"]
            assert list(consensus.temperatures) == ([] if number == 1 else [NAME])
            names = np.array(consensus.classes)[consensus.codes]
            right = names == np.array([truth(number_of[int(item)]) for item in consensus.items])
            accuracy.append(float(right.mean()))
            if number == 1:
                assert {truth(number_of[int(ask.item)]) for ask in plan.asks} == {"good", "bad"}
            if number == 2:
                unlabeled = evidence.annotations.labels_per_item == 0
                assert right[unlabeled].mean() > 0.8  # nobody has labeled them
                asked = np.isin(consensus.items, [ask.item for ask in plan.asks])
                assert consensus.confidence[asked].mean() < consensus.confidence[~asked].mean()
                first = {ask.annotator: int(ask.item) for ask in reversed(plan.asks)}
                for k in (1, 2, 3):
                    if (email := project.people[k].email) in first:
                        assert project.next(k, project.tab(k)) == first[email]
            if plan.stop:
                break
            labels += label_all_served(project, number_of)
        assert accuracy[-1] > 0.95
        assert labels < 2 * TASKS
        assert accuracy[1] > accuracy[0]
