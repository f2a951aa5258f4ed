"""Pushing to a real Label Studio: what people are then served, idempotence, crashes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from hitl.connectors.label_studio.predictions import SAMPLING
from hitl.errors import BadSettings, Refused, Unreachable
from hitl.platform import Operation, Receipt
from tests.connectors.label_studio.conftest import TOPICS, Project

pytestmark = [pytest.mark.server, pytest.mark.journey]


def keys(numbers: list[int]) -> list[str]:
    return [str(number) for number in numbers]


def shuffled(numbers: list[int], seed: int = 1) -> list[int]:
    return random.Random(seed).sample(numbers, len(numbers))


def push(project: Project, *operations: Operation) -> list[Receipt]:
    return list(project.connector.push(operations))


def push_until_killed(project: Project, method: str, operation: Operation) -> None:
    """Push, killed before the first request of this method."""

    def kill(request: httpx.Request) -> None:
        if request.method == method:
            raise KeyboardInterrupt

    project.recorder.fail = kill
    with pytest.raises(KeyboardInterrupt):
        push(project, operation)
    project.recorder.fail = None


def push_again(project: Project, *operations: Operation) -> None:
    """The same operations change nothing the second time, and write nothing; not even where all is compared."""
    for send in (project.connect().push, project.connect().verify):
        project.recorder.requests.clear()
        receipts = list(send(operations))
        assert [receipt.changed for receipt in receipts] == [0] * len(operations)
        assert project.recorder.writes == []


def served(project: Project, *people: int) -> list[int]:
    """The tasks that these people, one after the other, are served and answer."""
    tasks = []
    for k in people:
        number = project.next(k)
        assert number is not None
        tasks.append(number)
        project.answer(k, number, "good")
    return tasks


def test_three_annotators_are_served_exactly_the_order(project: Project) -> None:
    tasks = project.add(12)
    planned = shuffled(tasks)
    order = Operation("order", "", {"items": keys(planned)})
    push(project, order)
    assert [project.next(k) for k in range(3)] == planned[:3]  # nobody has answered yet: they hold locks
    assert served(project, *(0, 1, 2) * 4) == planned
    push_again(project, order)


def test_a_new_order_replaces_the_old_one(project: Project) -> None:
    tasks = project.add(8)
    push(project, Operation("order", "", {"items": keys(tasks)}))
    planned = shuffled(tasks)[:5]
    order = Operation("order", "", {"items": keys(planned)})
    push(project, order)
    assert project.versions() == {f"hitl-order-{order.digest}": 5}
    assert project.settings()["model_version"] == f"hitl-order-{order.digest}"
    assert served(project, 0, 0, 0, 0, 0) == planned
    assert project.next(0) in set(tasks) - set(planned)  # then the rest, at random


def test_without_an_order_annotators_are_still_not_shown_the_consensus(project: Project) -> None:
    tasks = project.add(3)
    nothing = Operation("order", "", {"items": []})
    result = consensus(dict.fromkeys(tasks, 0.9))
    push(project, Operation("order", "", {"items": keys(tasks)}))
    push(project, nothing, result)
    assert project.settings()["model_version"] == f"hitl-order-{nothing.digest}"
    assert project.versions() == {f"hitl-order-{nothing.digest}": 1, f"hitl-consensus-{result.digest}": 3}
    for _ in tasks:
        task = project.next_task(0)
        assert task is not None
        assert [prediction["result"] for prediction in task["predictions"] if prediction["result"]] == []
        project.answer(0, task["id"], "good")
    push_again(project, nothing, result)


def test_settings_are_changed_only_when_needed(project: Project) -> None:
    tasks = project.add(3)
    project.admin.patch(f"{project.path}/", {"maximum_annotations": 2})
    push(project, Operation("order", "", {"items": keys(tasks)}))
    settings = project.settings()
    assert (settings["sampling"], settings["maximum_annotations"]) == (SAMPLING, 1)
    push(project, Operation("labels_wanted", "", {"items": {str(tasks[0]): 3}}))
    push(project, Operation("order", "", {"items": keys(tasks[::-1])}))
    assert project.task(tasks[0])["overlap"] == 3  # writing maximum_annotations again would have reset it


def test_deleted_tasks_are_left_out_of_an_order(project: Project) -> None:
    tasks = project.add(4)
    project.admin.delete(f"/api/tasks/{tasks[1]}/")
    order = Operation("order", "", {"items": keys(tasks)})
    (receipt,) = push(project, order)
    assert f"1 no longer exist ({tasks[1]})" in receipt.detail
    assert project.versions() == {f"hitl-order-{order.digest}": 3}
    push_again(project, order)


def test_orders_and_items_that_cannot_be(project: Project) -> None:
    nothing = Operation("order", "", {"items": []})
    push(project, nothing)
    assert project.versions() == {}, "there is no task"
    push_again(project, nothing)
    with pytest.raises(BadSettings, match="task numbers"):
        push(project, Operation("order", "", {"items": ["a picture"]}))
    project.add(1)
    with pytest.raises(Refused, match="400"):
        push(project, Operation("add_items", "", {"items": [{"key": "a", "data": {"picture": "x"}}]}))


@pytest.mark.parametrize("after", ["import", "half an import", "pointer"])
def test_a_crash_while_the_order_is_swapped_is_mended(project: Project, after: str) -> None:
    tasks = project.add(6)
    push(project, Operation("order", "", {"items": keys(tasks)}))
    planned = shuffled(tasks)
    order = Operation("order", "", {"items": keys(planned)})
    version = f"hitl-order-{order.digest}"
    push_until_killed(project, "DELETE" if after == "pointer" else "PATCH", order)
    if after == "half an import":
        project.admin.delete(f"{project.path}/model-versions/", {"model_version": version})
        rows = [{"task": number, "result": [], "score": 0.5, "model_version": version} for number in tasks[:2]]
        project.admin.post(f"{project.path}/import/predictions", rows)
    push(project, order)
    assert project.versions() == {version: 6}
    assert project.settings()["model_version"] == version
    assert [project.next(k) for k in range(3)] == planned[:3]
    push_again(project, order)


def test_each_annotator_is_served_their_plan(project: Project) -> None:
    tasks = project.add(12)
    planned = shuffled(tasks)
    plans = [planned[0::3], planned[1::3], planned[2::3] + planned[0:1]]
    order = Operation("order", "", {"items": keys(planned)})
    assignments = [Operation("assign", project.people[k].id, {"items": keys(plan)}) for k, plan in enumerate(plans)]
    wanted = Operation("labels_wanted", "", {"items": {str(planned[0]): 2}})
    push(project, wanted, order, *assignments)
    assert len(project.views()) == 4  # the default tab stays the first
    mine = [project.tab(k) for k in range(3)]
    in_order = [sorted(plan, key=planned.index) for plan in plans]
    assert [project.listed(tab) for tab in mine] == in_order
    seen: list[list[int]] = [[], [], []]
    for turn in range(15):
        number = project.next(turn % 3, mine[turn % 3])
        if number is not None:
            seen[turn % 3].append(number)
            project.answer(turn % 3, number, "good")
    assert seen == in_order
    push_again(project, order, *assignments)


def test_annotator_1_is_not_annotator_10(project: Project) -> None:
    tasks = project.add(2)
    key = project.people[0].id
    other = {"task": tasks[1], "result": [], "model_version": f"hitl-assign-{key}0;of somebody else"}
    project.admin.post(f"{project.path}/import/predictions", [other])
    push(project, Operation("assign", key, {"items": keys(tasks[:1])}))  # verified: the tab shows exactly this
    push(project, Operation("assign", key, {"items": []}))
    assert project.versions() == {other["model_version"]: 1}


def test_assignments_are_replaced_and_taken_back(project: Project) -> None:
    tasks = project.add(6)
    key = project.people[0].id
    first = Operation("assign", key, {"items": keys(tasks[:3])})
    second = Operation("assign", key, {"items": keys(tasks[2:])})
    nothing = Operation("assign", key, {"items": []})
    push(project, Operation("order", "", {"items": keys(tasks)}), first)
    backwards = Operation("assign", key, {"items": keys(tasks[2:][::-1])})
    assert "in the order of the project" in push(project, backwards)[0].detail
    (receipt,) = push(project, second)
    assert receipt.detail == f"4 tasks for {project.people[0].email}"
    view = project.tab(0)
    assert project.listed(view) == tasks[2:]
    push(project, nothing)
    assert project.listed(view) == []
    assert project.next(0, view) is None
    push_again(project, nothing)


def test_a_tab_that_somebody_changed_is_mended(project: Project) -> None:
    tasks = project.add(2)
    assign = Operation("assign", project.people[0].id, {"items": keys(tasks[:1])})
    push(project, assign)
    view = project.views()[f"hitl: {project.people[0].email}"]
    data = view["data"] | {"ordering": ["tasks:id"], "filters": {"conjunction": "and", "items": []}}
    project.admin.patch(f"/api/dm/views/{view['id']}/", {"data": data})
    assert push(project, assign)[0].changed == 1
    assert project.listed(view["id"]) == tasks[:1]


def consensus(
    items: dict[int, float], classes: tuple[str, str] = ("good", "bad"), name: str = "sentiment"
) -> Operation:
    rows = []
    for number, p in items.items():
        shares = {classes[0]: p, classes[1]: 1 - p}
        label = max(shares, key=shares.__getitem__)
        rows.append({"item": str(number), "label": label, "confidence": shares[label], "probabilities": shares})
    return Operation("consensus", "", {"questions": {name: rows}})


def test_the_consensus_is_stored_but_not_shown(project: Project) -> None:
    tasks = project.add(3)
    order = Operation("order", "", {"items": keys(tasks)})
    first = consensus({tasks[0]: 0.9, tasks[1]: 0.2})
    second = consensus({tasks[0]: 0.7, tasks[1]: 0.1, tasks[2]: 0.6})
    push(project, order, first)
    push(project, second)
    version = f"hitl-consensus-{second.digest}"
    assert project.versions() == {f"hitl-order-{order.digest}": 3, version: 3}
    assert project.settings()["model_version"] == f"hitl-order-{order.digest}"
    assert project.person(0).get(f"{project.path}/next")["predictions"] == []
    stored = project.admin.get("/api/predictions/", task=tasks[0])
    (prediction,) = [one for one in stored if one["model_version"] == version]
    assert prediction["score"] == pytest.approx(0.7)
    assert prediction["result"][0]["value"] == {"choices": ["good"]}
    assert prediction["result"][0]["meta"]["hitl"]["distribution"] == {"good": 0.7, "bad": pytest.approx(0.3)}
    push_again(project, order, second)
    project.admin.patch(f"{project.path}/", {"model_version": version})  # somebody shows the consensus
    push(project, second)
    assert not project.settings()["model_version"]


KINDS: dict[str, tuple[str, str, Any]] = {
    "rating": ('<Rating name="c" toName="text" maxRating="4"/>', "3", {"rating": 3}),
    "pairwise": ('<Text name="b" value="$text"/><Pairwise name="c" toName="text,b"/>', "right", {"selected": "right"}),
    "taxonomy": (
        '<Taxonomy name="c" toName="text"><Choice value="A"><Choice value="A1"/></Choice><Choice value="B"/>'
        "</Taxonomy>",
        "A / A1",
        {"taxonomy": [["A", "A1"]]},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_consensus_of_every_kind_of_control_is_accepted(make_project: Callable[..., Project], kind: str) -> None:
    control, label, value = KINDS[kind]
    project = make_project(f'<View><Text name="text" value="$text"/>{control}</View>')
    (number,) = project.add(1)
    classes = project.connector.questions()[0].classes
    shares = {str(name): 0.7 if name == label else 0.3 / (len(classes) - 1) for name in classes}
    row = {"item": str(number), "label": label, "confidence": 0.7, "probabilities": shares}
    operation = Operation("consensus", "", {"questions": {"c": [row]}})
    push(project, operation)
    (stored,) = project.admin.get("/api/predictions/", task=number)
    assert stored["result"][0]["value"] == value
    push_again(project, operation)


def test_the_questions_of_a_multiple_choice_become_one_prediction(make_project: Callable[..., Project]) -> None:
    project = make_project(TOPICS)
    tasks = project.add(2)
    questions = {}
    for name, p in (("art", 0.9), ("law", 0.2), ("war", 0.6)):
        part = consensus({tasks[0]: p, tasks[1]: 0.1}, ("yes", "no"), f"topics={name}")
        questions.update(part.payload["questions"])
    operation = Operation("consensus", "", {"questions": questions})
    push(project, operation)
    (stored,) = project.admin.get("/api/predictions/", task=tasks[0])
    assert stored["result"][0]["value"] == {"choices": ["art", "war"]}
    assert stored["result"][0]["meta"]["hitl"]["distribution"] == {"art": 0.9, "law": 0.2, "war": 0.6}
    assert stored["score"] == pytest.approx(0.6)
    push_again(project, operation)  # the task whose topics are all "no" is stored too


def test_labels_wanted_opens_and_closes_tasks(project: Project) -> None:
    tasks = project.add(4)
    for number in tasks[:3]:
        project.answer(0, number, "good")
    project.skip(1, tasks[0])
    operation = Operation("labels_wanted", "", {"items": dict(zip(keys(tasks), (2, 1, 0, 3), strict=True))})
    (receipt,) = push(project, operation)
    assert receipt.changed == 2  # two tasks were as they should be
    found = [(project.task(number)["overlap"], project.task(number)["is_labeled"]) for number in tasks]
    assert found == [(2, False), (1, True), (1, True), (3, False)]
    push_again(project, operation)
    project.answer(2, tasks[0], "bad")
    assert project.task(tasks[0])["is_labeled"]
    assert project.task(tasks[0])["data"] == {"text": "text 0"}


def test_reopened_tasks_are_served_first_in_order(project: Project) -> None:
    tasks = project.add(5)
    for number in tasks[:2]:
        project.answer(0, number, "good")
    planned = [tasks[1], tasks[4], tasks[2]]
    wanted = Operation("labels_wanted", "", {"items": {str(tasks[1]): 2}})
    push(project, wanted, Operation("order", "", {"items": keys(planned)}))
    assert served(project, 1, 1, 1) == planned


def test_items_are_added_once(project: Project) -> None:
    items = [{"key": f"row {n}", "data": {"text": f"new {n}"}} for n in range(5)]
    operation = Operation("add_items", "batch 1", {"items": items})
    assert push(project, operation)[0].changed == 5
    push_again(project, operation)
    more = Operation("add_items", "batch 2", {"items": [*items[3:], {"key": "row 9", "data": {"text": "new 9"}}]})
    assert push(project, more)[0].changed == 1
    metas = [task["meta"] for task in project.admin.tasks(project.number, ("id", "meta"))]
    assert [meta["hitl"] for meta in metas] == ["row 0", "row 1", "row 2", "row 3", "row 4", "row 9"]


def gold(labels: dict[int, str]) -> Operation:
    return Operation("gold", "", {"questions": {"sentiment": {str(n): label for n, label in labels.items()}}})


def test_gold_is_written_once_and_does_not_use_up_a_label(project: Project) -> None:
    tasks = project.add(2)
    operation = gold({tasks[0]: "good"})
    assert push(project, operation)[0].changed == 1
    task = project.task(tasks[0])
    assert (task["overlap"], task["is_labeled"]) == (2, False)
    assert [a["ground_truth"] for a in task["annotations"]] == [True]
    push_again(project, operation, Operation("labels_wanted", "", {"items": {str(tasks[0]): 1}}))
    wanted = Operation("labels_wanted", "", {"items": {str(tasks[0]): 2}})
    push(project, wanted)
    assert project.task(tasks[0])["overlap"] == 3
    push_again(project, wanted, operation)
    changed = gold({tasks[0]: "bad"})
    push(project, changed)
    task = project.task(tasks[0])
    assert task["overlap"] == 3
    assert [a["result"][0]["value"]["choices"] for a in task["annotations"]] == [["bad"]]


def test_a_crash_before_the_gold_annotation_raises_the_overlap_once(project: Project) -> None:
    (number,) = project.add(1)
    push_until_killed(project, "POST", gold({number: "good"}))
    push(project, gold({number: "good"}))
    task = project.task(number)
    assert (task["overlap"], len(task["annotations"])) == (2, 1)


def test_gold_of_a_multiple_choice_needs_every_class(make_project: Callable[..., Project]) -> None:
    project = make_project(TOPICS)
    a, b = keys(project.add(2))
    truth = {"topics=art": {a: "yes", b: "yes"}, "topics=law": {a: "no"}, "topics=war": {a: "yes"}}
    (receipt,) = push(project, Operation("gold", "", {"questions": truth}))
    assert receipt.changed == 1
    assert "1 left out" in receipt.detail
    (annotation,) = project.task(int(a))["annotations"]
    assert annotation["result"][0]["value"] == {"choices": ["art", "war"]}


def test_predictions_dropped_by_the_platform_are_noticed(project: Project) -> None:
    tasks = project.add(2)
    connector = project.connect()
    assert connector.questions()[0].classes == ("good", "bad", "Unsure")
    config = project.settings()["label_config"].replace("bad", "poor")
    project.admin.patch(f"{project.path}/", {"label_config": config})
    operation = consensus({tasks[0]: 0.9, tasks[1]: 0.2})  # "bad" is no choice any more
    with pytest.raises(Refused, match="dropped 1 of 2"):
        list(connector.push([operation]))
    assert project.versions() == {}


def test_an_import_is_not_repeated_when_its_answer_is_lost(project: Project) -> None:
    tasks = project.add(2)

    def lose(request: httpx.Request) -> None:
        if request.url.path.endswith("/import/predictions"):
            body = json.loads(request.content)
            project.admin.post(f"{project.path}/import/predictions", body)
            raise httpx.ReadTimeout("the answer is lost")

    order = Operation("order", "", {"items": keys(tasks)})
    project.recorder.fail = lose
    with pytest.raises(Unreachable):
        push(project, order)
    project.recorder.fail = None
    push(project, order)
    assert project.versions() == {f"hitl-order-{order.digest}": 2}
