"""What `hitl doctor` says of what annotators can see, and that its advice helps."""

from __future__ import annotations

import pytest

from tests.connectors.label_studio.conftest import choice
from tests.connectors.label_studio.suggesting.conftest import Backend

pytestmark = [pytest.mark.server, pytest.mark.journey]


def test_the_list_of_the_data_manager_shows_what_others_say_and_the_stream_does_not(backend: Backend) -> None:
    said = backend.checks()["blindness"]
    assert said.ok
    assert "shows everybody's annotations and the consensus" in said.detail
    assert "Label All Tasks" in said.fix
    project = backend.project
    task = backend.planned[0]
    project.answer(1, task, "bad")
    project.admin.patch(f"/api/tasks/{task}/", {"overlap": 2, "is_labeled": False})
    opened = project.person(0).get(f"/api/tasks/{task}/", project=project.number)
    assert len(opened["annotations"]) == 1
    served = project.next_task(0)
    assert served is not None
    assert (served["id"], served["annotations"]) == (task, [])
    labeled = project.person(0).get(f"/api/tasks/{backend.tasks[0]}/", project=project.number)
    assert any(one["model_version"].startswith("hitl-consensus-") for one in labeled["predictions"])


def test_the_consensus_is_a_fault_and_the_advice_mends_it(backend: Backend) -> None:
    backend.suggest("consensus")
    backend.register()
    said = backend.checks()["suggestions"]
    assert not said.ok
    assert said.detail.startswith("annotators see the consensus")
    assert 'serve.suggest = "model"' in said.fix
    backend.suggest("never")
    said = backend.checks()["suggestions"]
    assert (said.ok, said.detail) == (True, "none: hitl suggests nothing (serve.suggest)")
    task = backend.project.next_task(0)
    assert task is not None
    assert task["predictions"] == []


def test_where_the_project_shows_no_predictions_none_are_shown(backend: Backend) -> None:
    backend.register()
    backend.project.admin.patch(f"{backend.project.path}/", {"show_collab_predictions": False})
    said = backend.checks()["suggestions"]
    assert not said.ok
    assert said.detail == "none: annotators are shown no predictions"
    assert "Use predictions to prelabel tasks" in said.fix
    order = backend.checks()["order"]
    assert not order.ok  # Label Studio empties the active version with that setting
    backend.project.answer(0, backend.planned[0], "bad")
    backend.run()
    assert backend.checks()["order"].ok
    task = backend.project.next_task(1)
    assert task is not None
    assert (task["id"], task["predictions"]) == (backend.planned[0], [])
    backend.project.admin.patch(f"{backend.project.path}/", {"show_collab_predictions": True})  # as is advised
    assert backend.checks()["suggestions"].ok
    assert backend.checks()["order"].ok


def test_answers_that_began_as_a_suggestion_are_counted(backend: Backend) -> None:
    """As a browser was seen to send them (test_in_editor)."""
    first, second, third = backend.planned[:3]
    for task, label, origin in ((first, "good", "prediction"), (second, "bad", "prediction-changed")):
        result = [{**choice(label)[0], "id": "Y-l91tKhSu", "origin": origin}]
        backend.project.person(0).post(f"/api/tasks/{task}/annotations/", {"result": result})
    result = [{**choice("bad")[0], "id": "3KTwr71rzx", "origin": "manual"}]
    backend.project.person(0).post(f"/api/tasks/{third}/annotations/", {"result": result})
    backend.run()
    assert backend.store.suggested("p") == (3, 2)


def test_without_an_active_version_the_stream_shows_nothing(backend: Backend) -> None:
    project = backend.project
    project.admin.patch(f"{project.path}/", {"model_version": "", "show_collab_predictions": True})
    assert backend.checks()["suggestions"].detail == "none"
    for task in backend.tasks:
        project.admin.patch(f"/api/tasks/{task}/", {"overlap": 3, "is_labeled": False})
    served = [predictions for _, predictions in backend.day(0)]
    assert len(served) == len(backend.tasks)
    assert served == [[]] * len(served)


def test_predictions_of_others_are_named(backend: Backend) -> None:
    backend.project.admin.patch(
        f"{backend.project.path}/", {"model_version": "resnet", "show_collab_predictions": True}
    )
    assert backend.checks()["suggestions"].detail == "annotators see the predictions of 'resnet' before they answer"
    for task in backend.tasks:
        backend.project.admin.patch(f"/api/tasks/{task}/", {"overlap": 3, "is_labeled": False})
    shown = {number: [one["result"][0]["value"] for one in predictions] for number, predictions in backend.day(0)}
    assert shown == {task: [{"choices": ["good"]}] for task in backend.tasks[:-1]} | {backend.tasks[-1]: []}
