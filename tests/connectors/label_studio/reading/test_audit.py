"""`hitl audit` on a real Label Studio: what differs is said, and mended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hitl import audit, cycle
from hitl.settings import Settings
from hitl.store import Store
from tests.connectors.label_studio.conftest import Project, choice
from tests.connectors.label_studio.projects import connect, labeled_project, settings_for
from tests.connectors.label_studio.reading.clocks import Stamps
from tests.of_the_day import of_the_day

pytestmark = [pytest.mark.server, pytest.mark.journey]
CREW = ("annotator0@example.com", "annotator1@example.com", "annotator2@example.com")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/hitl.db") as opened:
        yield opened


class Case:
    """A project after a cycle that said ok."""

    def __init__(self, make_project: Callable[..., Project], store: Store) -> None:
        self.project, self.tasks = labeled_project(make_project)
        self.store = store
        self.settings: Settings = settings_for(self.project.number, CREW)
        self.connector = connect(self.project)
        cycle.run(self.settings, store, self.connector)

    def version(self, prefix: str) -> str:
        return next(name for name in self.project.versions() if name.startswith(prefix))

    def ours(self, prefix: str) -> dict[str, Any]:
        """Our prediction of these versions that is served last."""
        listed = self.project.admin.get("/api/predictions/", project=self.project.number)
        said = [one for one in listed if (one["model_version"] or "").startswith(prefix)]
        return max(said, key=lambda one: float(one["score"]))  # type: ignore[no-any-return]

    def predict(self, version: str, result: Sequence[Any] = (), task: int = 0) -> None:
        row = {"task": self.tasks[task], "result": [*result], "score": 0.5, "model_version": version}
        self.project.admin.post(f"{self.project.path}/import/predictions", [row])

    def audit(self) -> audit.Audit:
        return audit.audit(self.settings, self.store, self.connector)

    def repair(self) -> audit.Audit:
        return audit.repair(self.settings, self.store, self.connector, self.audit())


@pytest.fixture
def case(make_project: Callable[..., Project], store: Store) -> Case:
    return Case(make_project, store)


def test_after_a_cycle_they_agree(case: Case) -> None:
    found = case.audit()
    assert found.differences == ()
    assert found.compared["items"] == 9
    assert found.compared["annotations"] == 13
    assert found.compared["operations"] == len(list(case.store.operations("p"))) >= 4
    case.project.recorder.requests.clear()
    case.audit()
    assert case.project.recorder.writes == []


def lose(prefix: str) -> Callable[[Case], Any]:
    return lambda case: case.project.admin.delete(
        f"{case.project.path}/model-versions/", {"model_version": case.version(prefix)}
    )


def reopened(case: Case) -> None:
    (wanted,) = [one for one, _ in case.store.operations("p") if one.kind == "labels_wanted"]
    first = next(iter(wanted.payload["items"]))
    case.project.admin.patch(f"/api/tasks/{first}/", {"overlap": 7, "is_labeled": False})


def edit(prefix: str, **said: object) -> Callable[[Case], Any]:
    """One prediction of ours says something else; their number stays."""
    return lambda case: case.project.admin.patch(f"/api/predictions/{case.ours(prefix)['id']}/", said)


def relabeled(case: Case) -> None:
    one = case.ours("hitl-consensus-")
    label = "bad" if one["result"][0]["value"]["choices"] == ["good"] else "good"
    case.project.admin.patch(f"/api/predictions/{one['id']}/", {"result": choice(label)})


def moved(prefix: str) -> Callable[[Case], Any]:
    """One prediction of ours stands at another task: one has two of them, one has none."""

    def broken(case: Case) -> None:
        one = case.ours(prefix)
        free = next(task for task in case.tasks if task != one["task"])
        case.project.admin.patch(f"/api/predictions/{one['id']}/", {"task": free})

    return broken


BROKEN: dict[str, tuple[Callable[[Case], Any], str]] = {
    "order lost": (lose("hitl-order-"), "order"),
    "consensus lost": (lose("hitl-consensus-"), "consensus"),
    "assignment lost": (lose("hitl-assign-"), "assign"),
    "doubled predictions": (lambda case: case.predict(case.version("hitl-consensus-"), choice("good")), "consensus"),
    "an order left over": (lambda case: case.predict("hitl-order-old"), "order"),
    "a queue left over": (lambda case: case.predict(f"hitl-assign-{case.project.people[3].id};0123"), "assign"),
    "sampling": (
        lambda case: case.project.admin.patch(f"{case.project.path}/", {"sampling": "Sequential sampling"}),
        "order",
    ),
    "overlap": (reopened, "labels_wanted"),
    "tab": (lambda case: case.project.admin.delete(f"/api/dm/views/{case.project.tab(0)}/"), "assign"),
    "an order that was edited": (edit("hitl-order-", score=-1.0), "order"),
    "an order at another task": (moved("hitl-order-"), "order"),
    "a consensus that was edited": (relabeled, "consensus"),
    "a consensus with another score": (edit("hitl-consensus-", score=0.123), "consensus"),
    "a consensus at another task": (moved("hitl-consensus-"), "consensus"),
    "a queue that was edited": (edit("hitl-assign-", score=-1.0), "assign"),
    "a queue at another task": (moved("hitl-assign-"), "assign"),
}


@pytest.mark.parametrize("how", of_the_day(BROKEN, 4))
def test_what_was_changed_on_the_platform_is_said_and_mended(case: Case, how: str) -> None:
    broken, kind = BROKEN[how]
    broken(case)
    found = case.audit()
    assert kind in {one.what for one in found.differences}, found
    assert case.repair().differences == ()


def test_what_the_store_lacks_is_said_and_mended(case: Case) -> None:
    said = case.project.answer(3, case.tasks[8], "good")
    case.project.admin.delete(f"/api/tasks/{case.tasks[7]}/")
    found = {(one.what, one.key, one.why) for one in case.audit().differences}
    assert ("annotation", f"{said['id']} of {case.tasks[8]}", "not in the store") in found
    assert ("item", str(case.tasks[7]), "deleted on the platform") in found
    repaired = case.repair()
    assert {one.what for one in repaired.differences} <= {"order", "assign", "labels_wanted"}  # until the next cycle
    cycle.run(case.settings, case.store, case.connector)
    assert case.audit().differences == ()


def test_an_answer_that_was_changed_without_a_stamp_is_said_and_mended(case: Case) -> None:
    stamps = Stamps(case.project.server)
    (first, *_) = case.project.task(case.tasks[0])["annotations"]
    text = json.dumps(choice("good" if first["result"][0]["value"]["choices"] == ["bad"] else "bad"))
    stamps._run("UPDATE task_completion SET result = ? WHERE id = ?", text, first["id"])
    (found,) = [one for one in case.audit().differences if one.what == "annotation"]
    assert (found.key, found.why) == (f"{first['id']} of {case.tasks[0]}", "the store has a different answer")
    case.repair()
    assert not [one for one in case.audit().differences if one.what == "annotation"]


def test_what_came_twice_is_said(case: Case) -> None:
    title = "hitl: annotator0@example.com"
    case.project.admin.post("/api/dm/views/", {"project": case.project.number, "data": {"title": title}})
    for _ in range(2):
        case.project.admin.post(f"{case.project.path}/import", [{"data": {"text": "new"}, "meta": {"hitl": "own"}}])
    found = {(one.what, one.key) for one in case.audit().differences}
    assert {("tab", title), ("added item", "own")} <= found


def test_other_data_and_other_predictions_are_said_and_mended(case: Case) -> None:
    case.predict("theirs", choice("good"), task=1)
    cycle.run(case.settings, case.store, case.connector)
    assert case.audit().differences == ()
    stamps = Stamps(case.project.server)
    stamps._run("UPDATE task SET data = ? WHERE id = ?", json.dumps({"text": "other"}), case.tasks[0])
    stamps._run("UPDATE prediction SET score = 0.7 WHERE task_id = ? AND model_version = 'theirs'", case.tasks[1])
    assert {(one.what, one.key) for one in case.audit().differences} == {
        ("item", str(case.tasks[0])),
        ("prediction", f"theirs of {case.tasks[1]}, sentiment"),
    }
    assert not {one.what for one in case.repair().differences} & {"item", "prediction"}
