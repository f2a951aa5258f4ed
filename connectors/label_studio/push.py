"""Make a project as the operations say. Each looks first and changes only what differs.

    order, consensus      predictions.py
    assign                assign.py
    labels_wanted         the task's overlap, and whether it is closed (is_labeled)
    add_items             new tasks, known by their meta {"hitl": key}, and by source.key where that is set
    gold                  a ground-truth annotation by the token's user

Label Studio serves a task while it has fewer annotations than its overlap. It counts all of them: a second one of the
same annotator, one that cannot be read, ground truth. So overlap = its own count + the answers still wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.answers import NotUnderstood
from hitl.connectors.label_studio.assign import assign, made_at_once
from hitl.connectors.label_studio.backends import follow
from hitl.connectors.label_studio.client import Client, NoAnswer
from hitl.connectors.label_studio.form import Form
from hitl.connectors.label_studio.predictions import Versions, consensus, order, said, task_ids
from hitl.connectors.label_studio.pull import META, added_as, answers, submitted
from hitl.errors import Refused, Unreachable
from hitl.platform import Operation, Receipt, id_in

IMPORT_BATCH = 500
_WHO = ("annotations", "completed_by", "was_cancelled", "ground_truth")
RAISED = "hitl_gold"
"""In the meta of a task whose known truth `hitl gold` has written."""


def receipts(
    client: Client,
    project: int,
    form: Form,
    operations: Iterable[Operation],
    field: str | None = None,
    *,
    whole: bool = False,
) -> Iterator[Receipt]:
    """Carry out the operations in the order given; a receipt says that the platform is as it should be.

    `field` names the field of a task's data that holds the user's own id (source.key). `whole`: predictions that are
    there under the right name are compared as a whole, instead of counted.
    """
    operations = tuple(operations)
    versions = Versions(client, project, whole=whole)
    made = made_at_once(client, project, [each for each in operations if each.kind == "assign"])
    kinds: dict[str, Callable[[Client, int, Operation], Receipt]] = {
        "order": partial(order, versions),
        "consensus": partial(consensus, form, versions),
        "assign": partial(assign, versions, made),
        "labels_wanted": partial(_labels_wanted, form),
        "add_items": partial(_add_items, field),
        "gold": partial(_gold, form),
    }
    for operation in operations:
        if operation.kind not in kinds:
            raise Refused(f"Label Studio: an operation {operation.kind!r} is not known")
        yield kinds[operation.kind](client, project, operation)
    if operations:
        follow(client, project, versions)


def _labels_wanted(form: Form, client: Client, project: int, operation: Operation) -> Receipt:
    """Ask for n labels of each task; a task that has them is closed, any other is open."""
    wanted = {task_ids([item])[0]: int(n) for item, n in operation.payload["items"].items()}
    found = client.tasks_by_id(project, wanted, ("id", "overlap", "is_labeled", "result", *_WHO))
    patches = []
    for number, task in found.items():
        missing = max(wanted[number] - answers(form, task), 0)
        goal = {"overlap": max(submitted(task) + missing, 1), "is_labeled": not missing}
        if goal != {name: task[name] for name in goal}:
            patches.append((number, goal))
    refused = [said for said in client.map(lambda patch: _patch_task(client, *patch), patches) if said is not None]
    if refused:  # the others are as they should be
        more = f" (and {len(refused) - 1} tasks more)" if len(refused) > 1 else ""
        raise Refused(f"{refused[0]}{more}")
    return Receipt(operation, len(patches), said(len(found), "with their number of labels", _missing(wanted, found)))


def _patch_task(client: Client, number: int, goal: Mapping[str, object]) -> str | None:
    """Make a task so; why Label Studio refuses. One that was deleted meanwhile needs nothing."""
    try:
        answer = client.patch(f"/api/tasks/{number}/", goal)
    except Refused as error:
        try:
            client.get(f"/api/tasks/{number}/")
        except Refused:
            return None
        return str(error)
    wrong = {name: answer[name] for name in goal if answer[name] != goal[name]}
    return f"task {number} keeps {wrong} instead of {dict(goal)}: is the token's user a manager?" if wrong else None


def _add_items(field: str | None, client: Client, project: int, operation: Operation) -> Receipt:
    """Create the tasks that are not there yet; each has its own id in its meta, and in the field that is named.

    What is there afterwards counts, not the answer: a request may be carried out twice, or cut short, on its way.
    """
    wanted = {str(item["key"]): _with_id(item["data"], field, str(item["key"])) for item in operation.payload["items"]}
    there = _there(client, project, field)
    rows = [{"data": data, "meta": {META: key}} for key, data in wanted.items() if key not in there]
    for start in range(0, len(rows), IMPORT_BATCH):
        batch = rows[start : start + IMPORT_BATCH]
        answer = client.post(f"/api/projects/{project}/import", batch, replies.TASK_COUNT)
        if answer["task_count"] != len(batch):
            raise Refused(
                f"Label Studio took {answer['task_count']} of {len(batch)} tasks: look at the project's import"
            )
    if rows:
        there = _there(client, project, field)
    lacking = [key for key in wanted if key not in there]
    if lacking:
        raise Unreachable(f"Label Studio lacks {len(lacking)} of the new tasks. Give the same command again")
    copies = _drop_copies(client, [there[key] for key in wanted])
    return Receipt(operation, len(rows) + copies, f"{len(wanted)} items are tasks of the project")


def _there(client: Client, project: int, field: str | None) -> dict[str, list[dict[str, Any]]]:
    """The tasks by their own id, the oldest first."""
    include = ("id", "meta", "total_annotations", "cancelled_annotations", *(() if field is None else ("data",)))
    there: dict[str, list[dict[str, Any]]] = {}
    for task in client.tasks(project, include, page_size=5000):
        for key in {added_as(task), None if field is None else id_in(task["data"], field)} - {None}:
            there.setdefault(str(key), []).append(task)
    return there


def _drop_copies(client: Client, groups: Iterable[Sequence[Mapping[str, Any]]]) -> int:
    """Delete the second and later tasks that `add` made under one own id, if they have no answers; how many."""
    copies = [task for group in groups for task in group[1:] if added_as(task) is not None]
    copies = [task for task in copies if task.get("total_annotations") == task.get("cancelled_annotations") == 0]
    client.map(lambda task: client.delete(f"/api/tasks/{task['id']}/"), copies)
    return len(copies)


def _with_id(data: Mapping[str, Any], field: str | None, key: str) -> Mapping[str, Any]:
    """The data of a new task with its own id in this field. Raises Refused where the field has another."""
    given = None if field is None else id_in(data, field)
    if field is None or given == key:
        return data
    if given is not None:
        raise Refused(
            f"item {key!r} has {given!r} in its field {field!r}, which holds the own id of a task (source.key): "
            f"expected {key!r}, or no such field; `hitl add --item {field}` takes the ids from it"
        )
    return {**data, field: key}


def _gold(form: Form, client: Client, project: int, operation: Operation) -> Receipt:
    """Have a ground-truth annotation with these labels on each task, and one more label asked for."""
    wanted: dict[int, dict[str, str]] = {}
    for question, labels in operation.payload["questions"].items():
        for item, label in labels.items():
            wanted.setdefault(task_ids([item])[0], {})[question] = str(label)
    found = client.tasks_by_id(project, wanted, ("id", "meta", "overlap", "result", *_WHO))
    me = client.get("/api/current-user/whoami", replies.WITH_ID)["id"]
    truths, left = _truths(form, wanted, found, me)
    wrong = {number: truth for number, truth in truths.items() if not _has_gold(form, found[number], truth)}
    if wrong:
        client.map(lambda number: _make_gold(client, found[number], wrong[number], me), list(wrong))
        made = client.tasks_by_id(project, wrong, ("id", "result", *_WHO))
        lacking = [number for number, task in made.items() if not _has_gold(form, task, wrong[number])]
        if lacking:
            raise NoAnswer(f"{client.url} took the ground truth of {len(lacking)} tasks, and does not have it")
        _drop_second_golds(client, made, me, found)
    detail = said(len(truths), "with their ground truth", _missing(wanted, found))
    if left:
        number, why = next(iter(left.items()))
        detail += f"; {len(left)} left out (task {number}: {why})"
    return Receipt(operation, len(wrong), detail)


Truth = tuple[Mapping[str, str], list[dict[str, Any]]]
"""The known truth of a task: question -> label, and the whole result that says so."""


def _truths(
    form: Form, wanted: Mapping[int, Mapping[str, str]], found: Mapping[int, Mapping[str, Any]], me: int
) -> tuple[dict[int, Truth], dict[int, str]]:
    """What to write on each task that is there; and why not, of those that are left out."""
    truths: dict[int, Truth] = {}
    left: dict[int, str] = {}
    for number, task in found.items():
        try:
            truths[number] = _truth(form, wanted[number], task, me)
        except NotUnderstood as error:
            left[number] = str(error)
    return truths, left


def _truth(form: Form, labels: Mapping[str, str], task: Mapping[str, Any], me: int) -> Truth:
    """These labels as they are read, and the result that says so. Raises NotUnderstood where it cannot be written."""
    if form.half_known(labels):  # an unticked box says no
        raise NotUnderstood(f"the truth of every class of {form.name!r} is needed")
    here = _ground_truth(task)
    own = None if here is None or here.get("completed_by") != me else here["result"]
    try:
        result = form.as_truth(labels, own)
    except NotUnderstood:  # what is there cannot be read, and says nothing
        result = form.as_truth(labels)
    read = form.read(result)
    known = {name: str(read[name]) for name in labels}
    if here is not None and own is None and not _says(form, here, known):
        raise NotUnderstood(
            f"user {here.get('completed_by')} has set its ground truth, and a task can have only one: change that "
            "annotation in Label Studio"
        )
    return known, result


def _ground_truth(task: Mapping[str, Any]) -> Mapping[str, Any] | None:
    given = task.get("annotations") or ()
    return next((each for each in given if each.get("ground_truth") and not each.get("was_cancelled")), None)


def _has_gold(form: Form, task: Mapping[str, Any], truth: Truth) -> bool:
    here = _ground_truth(task)
    return here is not None and _says(form, here, truth[0])


def _says(form: Form, annotation: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    try:
        return labels.items() <= form.read(annotation["result"]).items()
    except NotUnderstood:
        return False


def _make_gold(client: Client, task: Mapping[str, Any], truth: Truth, me: int) -> None:
    number, (_, result) = task["id"], truth
    here = _ground_truth(task)
    if here is not None and here.get("completed_by") == me:
        client.patch(f"/api/annotations/{here['id']}/", {"result": result})
        return
    meta = task.get("meta") or {}
    if not meta.get(RAISED):
        # Overlap and mark go in one request: a crash before the annotation does not raise it twice.
        client.patch(f"/api/tasks/{number}/", {"overlap": int(task["overlap"]) + 1, "meta": {**meta, RAISED: True}})
    body = {"result": result, "ground_truth": True}
    client.post(f"/api/tasks/{number}/annotations/", body, replies.GOLD)


def _drop_second_golds(
    client: Client, tasks: Mapping[int, Mapping[str, Any]], me: int, before: Mapping[int, Any]
) -> None:
    """Delete what a request that was carried out twice has left: the same again, no longer ground truth.

    Label Studio lets a task have one ground truth, so that the first of two would count as an answer.
    """
    for number, task in tasks.items():
        known = {each["id"] for each in before[number]["annotations"] or ()}
        mine = [each for each in task["annotations"] or () if each["completed_by"] == me and each["id"] not in known]
        gold = [each for each in mine if each["ground_truth"]]
        copies = [
            each for each in mine if not each["ground_truth"] and any(each["result"] == one["result"] for one in gold)
        ]
        for each in copies:
            client.delete(f"/api/annotations/{each['id']}/")


def _missing(wanted: Iterable[int], found: Mapping[int, object]) -> list[int]:
    return [number for number in wanted if number not in found]
