"""What an annotator sees in the editor of a real Label Studio, in a headless browser."""

from __future__ import annotations

from typing import Any

import pytest

from hitl.platform import Operation
from tests.connectors.label_studio.browser import log_in, needs_browser, text, wait
from tests.connectors.label_studio.suggesting.conftest import Backend

pytestmark = [pytest.mark.server, pytest.mark.journey, needs_browser]


def chosen(browser: Any) -> list[str]:
    boxes = browser.find_elements("css selector", "input[type=radio], input[type=checkbox]")
    return [box.get_attribute("name") for box in boxes if box.is_selected()]


def submit(browser: Any, backend: Backend, task: int) -> Any:
    """Submit what is chosen; the annotation that comes of it."""
    browser.find_element("css selector", "button[aria-label*=ubmit]").click()
    assert wait(lambda: len(backend.project.task(task)["annotations"]) == 1)
    return backend.project.task(task)["annotations"][0]


def test_the_prediction_is_shown_in_the_planned_order_and_an_answer_says_that_it_was(
    backend: Backend, browser: Any
) -> None:
    project = backend.project
    log_in(browser, project.server.url, project.people[0].email, "a-long-password")
    page = f"{project.server.url}/projects/{project.number}/data"
    fresh = [task for task in backend.planned if not project.task(task)["annotations"]]
    with_model = [task for task in fresh if task != backend.tasks[-1]]
    assert fresh[0] == backend.planned[0]

    def opened(task: int) -> list[str]:
        browser.get(page)
        all_tasks = "//button[contains(., 'Label All Tasks')]"
        assert wait(lambda: browser.find_elements("xpath", all_tasks)), text(browser)
        browser.find_element("xpath", all_tasks).click()
        assert wait(lambda: "Submit" in text(browser))
        assert wait(lambda: f"text {backend.tasks.index(task)}" in text(browser)), text(browser)
        return chosen(browser)

    def answered(task: int) -> None:
        project.answer(0, task, "bad")

    assert opened(fresh[0]) == []  # no backend yet
    browser.find_element("xpath", "//*[text()='bad']").click()
    manual = submit(browser, backend, fresh[0])
    assert manual["result"][0]["origin"] == "manual"
    assert manual["parent_prediction"] is None

    backend.register()
    for task in fresh[1:]:
        if task not in with_model:
            answered(task)
    kept, changed = [task for task in with_model if task != fresh[0]][:2]
    assert opened(kept) == ["good"]
    answer = submit(browser, backend, kept)
    assert answer["result"][0]["value"] == {"choices": ["good"]}
    assert answer["result"][0]["origin"] == "prediction"
    shown = {one["id"]: one["model_version"] for one in project.task(kept)["predictions"]}
    assert shown[answer["parent_prediction"]].startswith("hitl-suggests-model-")

    assert opened(changed) == ["good"]
    browser.find_element("xpath", "//*[text()='bad']").click()
    answer = submit(browser, backend, changed)
    assert answer["result"][0]["value"] == {"choices": ["bad"]}
    assert answer["result"][0]["origin"] == "prediction-changed"


def in_stream(browser: Any, backend: Backend, task: int) -> None:
    """Press "Label All Tasks", and have this task."""
    browser.get(f"{backend.project.server.url}/projects/{backend.project.number}/data")
    all_tasks = "//button[contains(., 'Label All Tasks')]"
    assert wait(lambda: browser.find_elements("xpath", all_tasks)), text(browser)
    browser.find_element("xpath", all_tasks).click()
    assert wait(lambda: f"text {backend.tasks.index(task)}" in text(browser)), text(browser)
    assert wait(lambda: "Submit" in text(browser))


@pytest.mark.parametrize("registered", [False, True])
def test_an_answer_to_a_task_that_was_open_during_a_cycle_is_taken(
    backend: Backend, browser: Any, registered: bool
) -> None:
    """The editor names the prediction that it began with, and Label Studio refuses one that names one that is gone."""
    project = backend.project
    if registered:
        backend.register()
    log_in(browser, project.server.url, project.people[0].email, "a-long-password")
    first = backend.planned[0]
    in_stream(browser, backend, first)
    before = project.settings()["model_version"]
    other = {"items": [str(task) for task in reversed(backend.planned)], "by": "mark"}
    list(project.connector.push([Operation("order", "", other)]))
    assert before not in project.versions()
    browser.find_element("xpath", "//*[text()='bad']").click()
    assert submit(browser, backend, first)["result"][0]["value"] == {"choices": ["bad"]}
