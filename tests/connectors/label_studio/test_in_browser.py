"""What a person sees in Label Studio's own pages after a cycle, in a headless browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hitl import cycle
from hitl.store import Store
from tests.connectors.label_studio.browser import log_in, needs_browser, text, wait
from tests.connectors.label_studio.conftest import Project
from tests.connectors.label_studio.projects import connect, labeled_project, settings_for

pytestmark = [pytest.mark.server, pytest.mark.journey, needs_browser]


def test_tabs_order_and_predictions_are_there_to_see(
    make_project: Callable[..., Project], tmp_path: Path, browser: Any
) -> None:
    project, tasks = labeled_project(make_project)
    crew = [project.people[k].email for k in (2, 3)]
    with Store(f"sqlite:///{tmp_path}/hitl.db") as store:
        plan = cycle.run(settings_for(project.number, crew), store, connect(project)).judgement.plan
    page = f"{project.server.url}/projects/{project.number}/data"
    log_in(browser, project.server.url, crew[0], "a-long-password")
    planned = [str(ask.item) for ask in plan.asks_of(crew[0])]
    assert len(planned) == 3

    def rows() -> list[str]:
        numbers = [line for line in text(browser).splitlines() if line in {str(task) for task in tasks}]
        return numbers[-len(planned) :]  # the toolbar's count of filters stands before them

    browser.get(f"{page}?tab={project.tab(2)}")
    assert wait(lambda: rows() == planned), rows()
    assert f"Tasks: 3 / {len(tasks)}" in text(browser)
    assert all(f"text {tasks.index(int(item))}" in text(browser) for item in planned)
    browser.get(f"{page}?task={tasks[0]}")
    assert wait(lambda: "hitl-con" in text(browser)), "the consensus is not among the task's predictions"
