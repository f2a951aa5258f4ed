"""hitl as the model backend of a real Label Studio: suggestions are served, and tasks in the planned order."""

from __future__ import annotations

import pytest

from hitl.errors import Refused
from hitl.platform import Check, Operation
from tests.connectors.label_studio.conftest import choice
from tests.connectors.label_studio.projects import untouched
from tests.connectors.label_studio.suggesting.conftest import Backend
from tests.service.web.backend.served import PASSWORD, USER, serving

pytestmark = [pytest.mark.server, pytest.mark.journey]


def said(predictions: list[dict[str, object]]) -> list[object]:
    return [prediction["result"] for prediction in predictions]


def expected(backend: Backend, task: int) -> list[object]:
    """What the model predicts, who has not seen the last task."""
    return [] if task == backend.tasks[-1] else [choice("good")]


def test_the_planned_order_is_served_with_what_the_model_predicts(backend: Backend) -> None:
    none = Check("suggestions", True, "none: annotators are shown no predictions")
    assert backend.checks()["suggestions"] == none
    task = backend.project.next_task(0)
    assert task is not None
    assert (task["id"], task["predictions"]) == (backend.planned[0], [])
    active = backend.project.settings()["model_version"]
    backend.register()
    said_now = backend.checks()["suggestions"]
    assert (said_now.ok, said_now.detail) == (True, "annotators see what the models predict before they answer")
    assert backend.project.settings()["model_version"] == active
    assert [each["title"] for each in backend.backends()] == [active]
    backend.asked.paths.clear()
    task = backend.project.next_task(0)
    assert task is not None
    assert backend.asked.paths == ["health", "setup", "predict"]
    version = backend.backends()[0]["model_version"]
    assert version.startswith("hitl-suggests-model-")
    assert said(task["predictions"]) == expected(backend, task["id"])
    planned = backend.planned
    served = backend.day(0)
    assert len(planned) > 3
    assert [number for number, _ in served][: len(planned)] == planned
    for number, predictions in served:
        assert said(predictions) == expected(backend, number)
        assert all(prediction["model_version"] == version for prediction in predictions)
    backend.run()
    untouched(backend.settings, backend.store, backend.project.connect(abstain=("Unsure",)))
    active = backend.project.settings()["model_version"]
    assert [each["title"] for each in backend.backends()] == [active]
    assert backend.one.snapshot is not None
    assert set(backend.one.snapshot.view(None).evidence.probabilities) == {"resnet"}, "suggestions are no evidence"


def test_the_next_cycle_serves_its_own_order_and_the_title_follows(backend: Backend) -> None:
    backend.register()
    first = backend.planned
    served = backend.project.next_task(0)
    assert served is not None
    backend.project.answer(0, served["id"], "bad")
    backend.run()
    assert backend.planned != first
    active = backend.project.settings()["model_version"]
    assert active.startswith("hitl-order-")
    assert [each["title"] for each in backend.backends()] == [active]
    planned = [task for task in backend.planned if task != served["id"]]
    day = backend.day(1)
    assert [number for number, _ in day][: len(planned)] == planned
    assert all(said(predictions) == expected(backend, number) for number, predictions in day)


def test_a_push_that_leaves_the_order_keeps_it_active(backend: Backend) -> None:
    """Label Studio empties the active version with any that is deleted, while it is a backend's title."""
    backend.register()
    active = backend.project.settings()["model_version"]
    versions = backend.project.versions()
    assert any(name.startswith("hitl-consensus-") for name in versions)
    receipts = backend.project.connector.push([Operation("consensus", "", {"questions": {}})])
    next(receipts)
    assert backend.project.settings()["model_version"] == active  # already, and not only when all is pushed
    assert list(receipts) == []
    assert not any(name.startswith("hitl-consensus-") for name in backend.project.versions())
    assert backend.project.settings()["model_version"] == active
    assert backend.backends()[0]["title"] == active
    # an order that was lost comes back with the next push, as after a crash between a deletion and what follows it
    backend.project.admin.delete(f"{backend.project.path}/model-versions/", {"model_version": "of nobody"})
    assert backend.project.settings()["model_version"] is None
    list(backend.project.connector.push([Operation("consensus", "", {"questions": {}})]))
    assert backend.project.settings()["model_version"] == active


def test_one_that_was_registered_by_hand_is_used_from_the_next_order_on(backend: Backend) -> None:
    project = backend.project
    by_hand = {"title": "hitl", "url": backend.url, "project": project.number, "auth_method": "BASIC_AUTH"}
    project.admin.post("/api/ml/", {**by_hand, "basic_auth_user": USER, "basic_auth_pass": PASSWORD})
    assert "Use predictions to prelabel tasks" in backend.checks()["suggestions"].fix
    project.admin.patch(f"{project.path}/", {"show_collab_predictions": True})
    told = backend.checks()["suggestions"]
    assert (told.ok, told.fix) == (False, "`hitl run`: the next order takes it in")
    first = project.next_task(0)
    assert first is not None
    assert (first["id"], said(first["predictions"])) == (backend.planned[0], [[]])  # the order's own, which is empty
    project.answer(0, first["id"], "bad")
    backend.run()
    assert backend.checks()["suggestions"].ok
    planned = [task for task in backend.planned if task != first["id"]]
    second = project.next_task(1)
    assert second is not None
    assert second["id"] == planned[0]
    assert said(second["predictions"]) == expected(backend, second["id"])


def test_a_backend_comes_before_the_first_order(backend: Backend) -> None:
    """Registered where no version is active, its title becomes the active version, as Label Studio does it."""
    project = backend.project
    for name in project.versions():
        if name.startswith("hitl-"):
            project.admin.delete(f"{project.path}/model-versions/", {"model_version": name})
    project.admin.patch(f"{project.path}/", {"show_collab_predictions": True})  # as in a new project
    assert not project.settings()["model_version"]
    backend.register()
    assert project.settings()["model_version"] == "hitl"
    items = [str(task) for task in reversed(backend.tasks)]
    list(project.connector.push([Operation("order", "", {"items": items, "by": "mark"})]))
    assert project.settings()["model_version"].startswith("hitl-order-mark-")
    served = [number for number, _ in backend.day(0)]
    assert served == [task for task in map(int, items) if task in served]
    assert len(served) > 3


def test_a_batch_is_retrieved(backend: Backend) -> None:
    backend.register()
    project = backend.project
    backend.asked.paths.clear()
    selected = {"selectedItems": {"all": True, "excluded": []}}
    project.admin.post(f"/api/dm/actions?id=retrieve_tasks_predictions&project={project.number}", selected)
    assert backend.asked.paths.count("predict") == 1
    version = backend.backends()[0]["model_version"]
    assert project.versions()[version] == len(backend.tasks) - 1


def test_it_is_registered_once_by_the_right_password_and_its_webhook_is_taken_away(backend: Backend) -> None:
    with pytest.raises(Refused, match="authentication parameters"):
        backend.project.connector.register_backend(backend.url, "wrong", USER)
    assert backend.backends() == []
    assert backend.register() == backend.register()
    assert len(backend.backends()) == 1
    assert backend.project.admin.get("/api/webhooks/", project=backend.project.number) == []


def test_one_that_is_down_blocks_nobody_and_the_order_stands(backend: Backend) -> None:
    with serving(backend.asked) as url:
        backend.project.connector.register_backend(f"{url}/ml/p", PASSWORD, USER)
    told = backend.checks()
    assert not told["suggestions"].ok
    assert f"gets no answer from {url}/ml/p" in told["suggestions"].detail
    assert told["order"].ok  # which stands
    task = backend.project.next_task(0)
    assert task is not None
    assert (task["id"], task["predictions"]) == (backend.planned[0], [])
    backend.project.answer(0, task["id"], "bad")
    backend.run()  # it cannot be given another title
    active = backend.project.settings()["model_version"]
    assert backend.backends()[0]["title"] != active
    planned = [number for number in backend.planned if number != task["id"]]
    assert [number for number, _ in backend.day(1)][: len(planned)] == planned
    backend.register()  # the same at an address that answers
    assert backend.checks()["suggestions"].ok


@pytest.mark.parametrize("route", ["health", "setup"])
def test_one_that_hangs_blocks_nobody_for_long(backend: Backend, route: str) -> None:
    """It never answers in this test, so whoever is served has not waited for it."""
    backend.register()
    backend.asked.hangs = route
    task = backend.project.next_task(0)
    assert task is not None
    assert (task["id"], task["predictions"]) == (backend.planned[0], [])
    assert not backend.asked.go_on.is_set()


def test_the_stream_of_a_tab_shows_suggestions_too(backend: Backend) -> None:
    """As "Label Tasks As Displayed" asks, in the order of the tab."""
    backend.register()
    project = backend.project
    path = f"/api/dm/actions?id=next_task&project={project.number}"
    task = project.person(0).post(path, {"ordering": ["-tasks:id"], "filters": None})
    assert task["id"] == backend.tasks[-1]
    assert said(task["predictions"]) == expected(backend, task["id"])
    project.answer(0, task["id"], "bad")
    task = project.person(0).post(path, {"ordering": ["-tasks:id"], "filters": None})
    assert task["id"] == backend.tasks[-2]
    assert said(task["predictions"]) == [choice("good")]
