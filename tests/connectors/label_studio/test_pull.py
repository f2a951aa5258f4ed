"""Pulling from a real Label Studio: everything, then what changed, compared with the server's own state."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import httpx
import pytest

from hitl.connectors.label_studio import LabelStudio
from hitl.connectors.label_studio.server import LocalServer
from hitl.errors import BadSettings, Unreachable
from hitl.platform import AnnotationRow, Cursor, HeldItem, ItemRow, Operation, Page
from tests.connectors.label_studio.conftest import SENTIMENT, TOPICS, Project, choice

pytestmark = [pytest.mark.server, pytest.mark.journey]


class Shelf:
    """A store in miniature: what a reader of pages knows, by the rules of hitl.platform."""

    def __init__(self) -> None:
        self.cursor: Cursor | None = None
        self.items: dict[str, ItemRow] = {}
        self.answers: dict[str, list[AnnotationRow]] = {}
        self.people: dict[str, str] = {}
        self.predictions: dict[tuple[str, str, str], dict[str, float]] = {}
        self.problems: list[str] = []

    def take(self, pages: Iterable[Page]) -> int:
        """Save the pages; returns how many items they brought."""
        count = 0
        for page in pages:
            assert json.loads(json.dumps(page.cursor)) == page.cursor
            for item in page.items:
                self.items[item.key] = item
                self.answers[item.key] = [row for row in page.annotations if row.item == item.key]
                for key in [key for key in self.predictions if key[0] == item.key]:
                    del self.predictions[key]
            for row in page.predictions:
                self.predictions[row.item, row.question, row.model] = dict(row.probabilities)
            self.people |= {person.key: person.name for person in page.annotators}
            self.problems += page.problems
            if page.live is not None:
                for key in self.items.keys() - page.live:
                    del self.items[key], self.answers[key]
            self.cursor = page.cursor
            count += len(page.items)
        return count

    def pull(self, connector: LabelStudio) -> int:
        count = self.take(connector.pull(self.cursor))
        assert self.cursor is not None
        return count + self.take(connector.compare(self.cursor, self))

    def held(self) -> dict[str, HeldItem]:
        return {
            key: HeldItem(item.version, frozenset(row.key for row in self.answers[key]))
            for key, item in self.items.items()
        }

    def count(self, until: str | None = None, without: Collection[str] = ()) -> tuple[int, int]:
        held = {key: one for key, one in self.held().items() if key not in without}
        some = [one for one in held.values() if until is None or one.version <= until]
        return len(some), sum(len(held.annotations) for held in some)

    def latest(self, until: str) -> str | None:
        return max((item.version for item in self.items.values() if item.version <= until), default=None)

    def stored(self, keys: Collection[str] | None = None) -> Mapping[str, HeldItem]:
        return {key: held for key, held in self.held().items() if keys is None or key in keys}

    def state(self) -> dict[str, list[tuple[str | None, str | None, str]]]:
        return {
            item: sorted((row.annotator, row.label, row.kind) for row in rows) for item, rows in self.answers.items()
        }


def truth(project: Project) -> dict[str, list[tuple[str | None, str | None, str]]]:
    """The project's state by Label Studio's own export."""
    state = {}
    for task in project.admin.get(f"{project.path}/export", exportType="JSON", download_all_tasks="true"):
        rows: list[tuple[str | None, str | None, str]] = []
        for annotation in task["annotations"]:
            key = str(annotation["completed_by"])
            if annotation["was_cancelled"]:
                rows.append((key, None, "skip"))
            else:
                label = annotation["result"][0]["value"]["choices"][0]
                rows.append((key, label, "gold" if annotation["ground_truth"] else "answer"))
        state[str(task["id"])] = sorted(rows)
    return state


def test_everything_is_pulled(project: Project) -> None:
    tasks = project.add(23)
    project.answer(0, tasks[0], "good")
    project.answer(1, tasks[0], "bad")
    project.skip(2, tasks[0])
    project.answer(0, tasks[1], "good", ground_truth=True)
    for label in ("good", "bad"):  # the same person twice is two rows
        project.answer(0, tasks[2], label)
    pages = list(project.connect(page_size=10).pull(None))
    assert [len(page.items) for page in pages] == [0, 10, 10, 3]
    assert {page.total for page in pages[1:]} == {23}
    assert pages[-1].live == {str(number) for number in tasks}
    shelf = Shelf()
    shelf.take(pages)
    assert shelf.state() == truth(project)
    first = shelf.answers[str(tasks[0])]
    assert {row.duration for row in first} == {1.5, None}
    assert all(row.question == "sentiment" and row.version >= row.created for row in first)
    assert shelf.people[project.people[0].id] == "annotator0@example.com"
    item = shelf.items[str(tasks[1])]
    # The ground truth has closed the task (overlap 1), but nobody was asked.
    assert (item.data, item.labels_wanted, item.closed) == ({"text": "text 1"}, 1, True)


def test_a_server_may_cap_the_page_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_API_PAGE_SIZE_MAX", "7")
    with LocalServer() as capped:
        number = LabelStudio.create_project(capped.url, capped.token, "capped", SENTIMENT)
        project = Project(capped, [], number)
        tasks = project.add(20)
        pages = list(project.connector.pull(None))
        assert [len(page.items) for page in pages] == [0, 7, 7, 6]
        assert pages[-1].live == {str(number) for number in tasks}


def test_changes_are_pulled(project: Project) -> None:
    tasks = project.add(12)
    annotations = {number: project.answer(0, number, "good") for number in tasks[:6]}
    shelf = Shelf()
    shelf.pull(project.connector)
    project.admin.patch(f"/api/annotations/{annotations[tasks[0]]['id']}/", {"result": choice("bad")})
    project.admin.delete(f"/api/annotations/{annotations[tasks[1]]['id']}/")
    project.admin.patch(f"/api/annotations/{annotations[tasks[2]]['id']}/", {"ground_truth": True})
    project.skip(1, tasks[3])
    project.answer(1, tasks[7], "good")
    project.admin.delete(f"/api/tasks/{tasks[8]}/")
    (new,) = project.add(1)
    shelf.pull(project.connector)
    assert shelf.state() == truth(project)
    assert str(tasks[8]) not in shelf.items
    assert str(new) in shelf.items


def settle(shelf: Shelf) -> None:
    """Move the cursor as if the last change had been seen long ago."""
    assert shelf.cursor is not None
    shelf.cursor = {**shelf.cursor, "moved": 0.0}


def test_a_pull_without_changes_is_a_few_small_requests(project: Project) -> None:
    project.add(30, lambda _: [{"completed_by": 1, "ground_truth": False, "result": choice("good")}])
    shelf = Shelf()
    shelf.pull(project.connector)
    settle(shelf)
    project.recorder.requests.clear()
    assert shelf.pull(project.connector) == 0
    assert len(project.recorder.requests) <= 8
    assert len(shelf.items) == 30
    list(project.connector.push([Operation("order", "", {"items": list(shelf.items)})]))
    assert shelf.pull(project.connector) == 0, "our own predictions are no changes"


@pytest.mark.parametrize("how", ["one", "one and a new one", "one and a new one at once", "all"])
def test_deleted_tasks_are_noticed_by_their_number(project: Project, how: str) -> None:
    tasks = project.add(9)
    shelf = Shelf()
    shelf.pull(project.connector)
    settle(shelf)
    for number in tasks if how == "all" else tasks[4:5]:
        project.admin.delete(f"/api/tasks/{number}/")
    if how == "one and a new one at once":
        project.add(1)  # the number of tasks is what it was
    shelf.pull(project.connector)
    if how == "one and a new one":
        (new,) = project.add(1)
        shelf.pull(project.connector)
        assert str(new) in shelf.items
    assert shelf.state() == truth(project)
    settle(shelf)
    project.recorder.requests.clear()
    shelf.pull(project.connector)
    most = 10 if how == "all" else 8  # that there is no task at all is asked twice
    assert len(project.recorder.requests) <= most  # numbers alone: no list of all tasks when nothing is gone


def test_a_task_committed_late_does_not_hide_a_deleted_one(project: Project) -> None:
    tasks = project.add(5)
    shelf = Shelf()
    shelf.pull(project.connector)
    # As if the third task had not been visible yet, though later ones were.
    del shelf.items[str(tasks[2])], shelf.answers[str(tasks[2])]
    project.admin.delete(f"/api/tasks/{tasks[0]}/")
    shelf.pull(project.connector)
    assert shelf.state() == truth(project)


def test_an_interrupted_pull_goes_on_where_it_stopped(project: Project) -> None:
    tasks = project.add(25)
    shelf = Shelf()
    pages = project.connect(page_size=10).pull(None)
    shelf.take(next(pages) for _ in range(2))
    pages.close()  # type: ignore[attr-defined]
    project.admin.delete(f"/api/tasks/{tasks[3]}/")  # read already
    assert shelf.pull(project.connect(page_size=10)) == 15
    assert shelf.state() == truth(project)
    for number in tasks[10:]:
        project.answer(0, number, "bad")
    changes = project.connect(page_size=10).pull(shelf.cursor)
    shelf.take(next(changes) for _ in range(2))
    changes.close()  # type: ignore[attr-defined]
    shelf.pull(project.connect(page_size=10))
    assert shelf.state() == truth(project)


def test_nothing_is_lost_while_people_annotate(project: Project) -> None:
    tasks = project.add(60)
    gone = tasks[5:50:9]
    kept = [number for number in tasks if number not in gone]
    failures: list[Exception] = []

    def work(k: int) -> None:
        try:
            if k == 3:
                for number in gone:
                    project.admin.delete(f"/api/tasks/{number}/")
            for number in kept[k::2]:
                project.answer(k, number, "good" if k % 2 else "bad")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    shelf = Shelf()
    passes = 0
    while any(thread.is_alive() for thread in threads) and passes < 500:
        shelf.pull(project.connect(page_size=10))
        passes += 1
    for thread in threads:
        thread.join()
    assert failures == []
    shelf.pull(project.connect(page_size=10))
    assert passes > 1
    assert shelf.state() == truth(project)
    rows = [row.key for rows in shelf.answers.values() for row in rows]
    assert len(rows) == len(set(rows)) == sum(len(kept[k::2]) for k in range(4))


def test_what_is_not_understood_is_said(project: Project) -> None:
    tasks = project.add(4)
    project.answer(0, tasks[0], "terrible")
    project.person(0).post(f"/api/tasks/{tasks[1]}/annotations/", {"result": choice("good", "bad")})
    project.person(0).post(f"/api/tasks/{tasks[2]}/annotations/", {"result": choice("good", control="other")})
    project.answer(1, tasks[3], "Unsure")
    shelf = Shelf()
    shelf.pull(project.connect(abstain=("Unsure",)))
    assert shelf.state() == {
        **{str(task): [(project.people[0].id, None, "skip")] for task in tasks[:3]},
        str(tasks[3]): [(project.people[1].id, "Unsure", "answer")],
    }
    notes = [row.note or "" for task in tasks[:3] for row in shelf.answers[str(task)]]
    assert "'terrible' is not among the choices" in notes[0]
    assert "2 answers on the single-choice control" in notes[1]
    assert "it answers 'other', which the labeling configuration does not have" in notes[2]


def test_multiple_choices_answer_every_question(make_project: Callable[..., Project]) -> None:
    project = make_project(TOPICS)
    (number,) = project.add(1)
    project.person(0).post(f"/api/tasks/{number}/annotations/", {"result": choice("art", "war", control="topics")})
    project.person(1).post(f"/api/tasks/{number}/annotations/", {"result": []})
    shelf = Shelf()
    shelf.pull(project.connector)
    said = {(row.annotator, row.question): row.label for row in shelf.answers[str(number)]}
    a, b = project.people[0].id, project.people[1].id
    assert said == {
        (a, "topics=art"): "yes",
        (a, "topics=law"): "no",
        (a, "topics=war"): "yes",
        (b, "topics=art"): "no",
        (b, "topics=law"): "no",
        (b, "topics=war"): "no",
    }


def predict(project: Project, rows: list[dict[str, Any]]) -> None:
    answer = project.admin.post(f"{project.path}/import/predictions", rows)
    assert answer["created"] == len(rows)


def test_predictions_of_other_models_are_pulled(project: Project) -> None:
    tasks = project.add(5)
    shares = {"good": 0.6, "bad": 0.3, "Unsure": 0.1}
    stated, wrong = (
        [{**choice("good")[0], "meta": {"hitl": {"distribution": said}}}]
        for said in (shares, {"good": 0.6, "bad": 0.3})
    )
    predict(
        project,
        [
            {"task": tasks[0], "result": stated, "score": 0.99, "model_version": "resnet"},
            {"task": tasks[1], "result": choice("bad"), "score": 0.8, "model_version": "resnet"},
            {"task": tasks[2], "result": choice("bad"), "model_version": "resnet"},
            {"task": tasks[3], "result": [], "score": 0.4, "model_version": "resnet"},
            {"task": tasks[4], "result": wrong, "score": 0.9, "model_version": "resnet"},
        ],
    )
    list(project.connector.push([Operation("order", "", {"items": [str(number) for number in tasks]})]))
    shelf = Shelf()
    shelf.pull(project.connector)
    assert shelf.predictions == {
        (str(tasks[0]), "sentiment", "resnet"): pytest.approx(shares),
        (str(tasks[1]), "sentiment", "resnet"): pytest.approx({"good": 0.1, "bad": 0.8, "Unsure": 0.1}),
    }
    (problem,) = shelf.problems
    assert "distribution sums to 0.9" in problem


def test_predictions_imported_later_are_pulled(project: Project) -> None:
    tasks = project.add(8)
    predict(project, [{"task": n, "result": choice("bad"), "score": 0.8, "model_version": "one"} for n in tasks[:4]])
    shelf = Shelf()
    shelf.pull(project.connector)
    settle(shelf)
    predict(project, [{"task": n, "result": choice("good"), "score": 0.7, "model_version": "two"} for n in tasks[2:]])
    assert shelf.pull(project.connect(page_size=3)) == 6  # an import leaves updated_at as it was
    assert {key[0] for key in shelf.predictions if key[2] == "two"} == {str(number) for number in tasks[2:]}
    settle(shelf)
    project.admin.delete(f"{project.path}/model-versions/", {"model_version": "one"})
    shelf.pull(project.connect(page_size=3))
    assert {key[2] for key in shelf.predictions} == {"two"}
    assert len(shelf.predictions) == 6


def test_a_cursor_of_another_kind_is_refused(project: Project) -> None:
    for cursor in ({"row": 3}, {"version": 3, "phase": "bulk"}, {"version": 2}, {"version": 1, "phase": "bulk"}):
        with pytest.raises(BadSettings, match="hitl pull --full"):
            list(project.connector.pull(cursor))


def test_a_failed_page_leaves_the_pages_before(project: Project) -> None:
    project.add(25)
    reads = 0

    def fail(request: httpx.Request) -> None:
        nonlocal reads
        if request.url.path == "/api/tasks":
            reads += 1
            if reads >= 3:  # the latest stamp came, and a page
                raise httpx.ConnectError("unplugged")

    project.recorder.fail = fail
    shelf = Shelf()
    with pytest.raises(Unreachable):
        shelf.pull(project.connect(page_size=10))
    assert len(shelf.items) == 10
    project.recorder.fail = None
    shelf.pull(project.connect(page_size=10))
    assert shelf.state() == truth(project)
