"""Apply operations to a project. Each checks the current state first, and changes only what differs.

    order, consensus      predictions.py
    assign                assign.py
    labels_wanted         the task's overlap, and whether it is closed (is_labeled)
    add_items             new tasks, identified by their meta {"hitl": key}, and by source.key if it is set
    gold                  a ground-truth annotation by the token's user

Label Studio serves a task while it has fewer annotations than its overlap. It counts all except skips, even a second
one by the same annotator, unreadable ones and ground truth. So overlap = this count + the number of answers wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.annotations import FIELDS, count_answers, read_annotations, submitted
from hitl.connectors.label_studio.assign import assign, import_together
from hitl.connectors.label_studio.client import Client, NoAnswer
from hitl.connectors.label_studio.config import Form
from hitl.connectors.label_studio.controls import NotUnderstood
from hitl.connectors.label_studio.predictions import Versions, consensus, detail_of, follow_order, order, task_ids
from hitl.connectors.label_studio.pull import ID_PAGE, META, added_as
from hitl.errors import Refused, Unreachable
from hitl.platform import Operation, Receipt, id_in

IMPORT_BATCH = 500
RAISED = "hitl_gold"
"""Key in the meta of a task whose ground truth `hitl gold` has written."""

Task = Mapping[str, Any]


def receipts(
    client: Client,
    project: int,
    form: Form,
    operations: Iterable[Operation],
    field: str | None = None,
    *,
    whole: bool = False,
) -> Iterator[Receipt]:
    """Carry out the operations in order. A receipt confirms that the platform is in the wanted state.

    `field` names the field of a task's data that holds the user's own id (source.key). `whole`: predictions that exist
    under the right name are compared one by one instead of counted.
    """
    operations = tuple(operations)
    versions = Versions(client, project, whole=whole)
    imported = import_together(client, project, [each for each in operations if each.kind == "assign"])
    kinds: dict[str, Callable[[Operation], Receipt]] = {
        "order": partial(order, versions),
        "consensus": partial(consensus, form, versions),
        "assign": partial(assign, versions, imported),
        "labels_wanted": partial(_labels_wanted, client, project, form),
        "add_items": partial(_add_items, client, project, field),
        "gold": partial(_gold, client, project, form),
    }
    for operation in operations:
        if operation.kind not in kinds:
            raise Refused(f"Label Studio: an operation {operation.kind!r} is not known")
        yield kinds[operation.kind](operation)
    if operations:
        follow_order(versions)


def _labels_wanted(client: Client, project: int, form: Form, operation: Operation) -> Receipt:
    """Request the wanted number of labels for each task. Close tasks that have enough, and open the others."""
    wanted = {task_ids([item])[0]: int(n) for item, n in operation.payload["items"].items()}
    tasks = client.tasks_by_id(project, wanted, ("id", "data", "overlap", "is_labeled", *FIELDS))
    patches = []
    for number, task in tasks.items():
        missing = max(wanted[number] - count_answers(read_annotations(form, task)), 0)
        goal = {"overlap": max(submitted(task) + missing, 1), "is_labeled": not missing}
        if goal != {name: task[name] for name in goal}:
            patches.append((number, goal))
    problems = [problem for problem in client.map(lambda patch: _patch_task(client, *patch), patches) if problem]
    if problems:  # the other tasks are in the wanted state
        more = f" (and {len(problems) - 1} tasks more)" if len(problems) > 1 else ""
        raise Refused(f"{problems[0]}{more}")
    detail = detail_of(len(tasks), "with their number of labels", [number for number in wanted if number not in tasks])
    return Receipt(operation, len(patches), detail)


def _patch_task(client: Client, number: int, goal: Mapping[str, object]) -> str | None:
    """Change a task. Return the reason if Label Studio refuses. A task deleted meanwhile needs no change."""
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


def _add_items(client: Client, project: int, field: str | None, operation: Operation) -> Receipt:
    """Create missing tasks, with the user's own id in the meta and in the named field.

    Check the state afterwards instead of the response, because a request may be carried out twice, or interrupted.
    """
    wanted = {str(item["key"]): _with_id(item["data"], field, str(item["key"])) for item in operation.payload["items"]}
    there = _tasks_by_own_id(client, project, field)
    rows = [{"data": data, "meta": {META: key}} for key, data in wanted.items() if key not in there]
    for start in range(0, len(rows), IMPORT_BATCH):
        batch = rows[start : start + IMPORT_BATCH]
        taken = client.post(f"/api/projects/{project}/import", batch, replies.TASK_COUNT)["task_count"]
        if taken != len(batch):
            raise Refused(f"Label Studio took {taken} of {len(batch)} tasks: look at the project's import")
    if rows:
        there = _tasks_by_own_id(client, project, field)
    if lacking := sum(key not in there for key in wanted):
        raise Unreachable(f"Label Studio lacks {lacking} of the new tasks. Give the same command again")
    # Duplicates without answers, from a request that was carried out twice.
    copies = [task for key in wanted for task in there[key][1:] if added_as(task) is not None]
    copies = [task for task in copies if task.get("total_annotations") == task.get("cancelled_annotations") == 0]
    client.map(lambda task: client.delete(f"/api/tasks/{task['id']}/"), copies)
    return Receipt(operation, len(rows) + len(copies), f"{len(wanted)} items are tasks of the project")


def _tasks_by_own_id(client: Client, project: int, field: str | None) -> dict[str, list[Task]]:
    """Return own id -> tasks, oldest first."""
    include = ("id", "meta", "total_annotations", "cancelled_annotations", *(() if field is None else ("data",)))
    there: dict[str, list[Task]] = {}
    for task in client.tasks(project, include, page_size=ID_PAGE):
        for key in {added_as(task), None if field is None else id_in(task["data"], field)} - {None}:
            there.setdefault(str(key), []).append(task)
    return there


def _with_id(data: Mapping[str, Any], field: str | None, key: str) -> Mapping[str, Any]:
    """Return the data of a new task with its own id in this field. Raises Refused if the field holds another id."""
    current = None if field is None else id_in(data, field)
    if field is None or current == key:
        return data
    if current is not None:
        raise Refused(
            f"item {key!r} has {current!r} in its field {field!r}, which holds the own id of a task (source.key): "
            f"expected {key!r}, or no such field; `hitl add --item {field}` takes the ids from it"
        )
    return {**data, field: key}


def _gold(client: Client, project: int, form: Form, operation: Operation) -> Receipt:
    """Add a ground-truth annotation with these labels to each task, and request one more label."""
    wanted: dict[int, dict[str, str]] = {}
    for question, labels in operation.payload["questions"].items():
        for item, label in labels.items():
            wanted.setdefault(task_ids([item])[0], {})[question] = str(label)
    tasks = client.tasks_by_id(project, wanted, ("id", "meta", "overlap", *FIELDS))
    me = client.get("/api/current-user/whoami", replies.WITH_ID)["id"]
    truths: dict[int, tuple[Mapping[str, str], list[dict[str, Any]]]] = {}
    left_out = []
    for number, task in tasks.items():
        try:
            truths[number] = _truth(form, wanted[number], task, me)
        except NotUnderstood as error:
            left_out.append(f"task {number}: {error}")
    wrong = {number: truth for number, truth in truths.items() if not _says(form, _gold_of(tasks[number]), truth[0])}
    if wrong:
        client.map(lambda number: _write_gold(client, tasks[number], wrong[number][1], me), list(wrong))
        made = client.tasks_by_id(project, wrong, ("id", *FIELDS))
        if lacking := sum(not _says(form, _gold_of(task), wrong[number][0]) for number, task in made.items()):
            raise NoAnswer(f"{client.url} took the ground truth of {lacking} tasks, and does not have it")
        for number, task in made.items():
            _delete_second_gold(client, task, me, tasks[number])
    missing = [number for number in wanted if number not in tasks]
    detail = detail_of(len(truths), "with ground truth", missing)
    detail += f"; {len(left_out)} left out ({left_out[0]})" if left_out else ""
    return Receipt(operation, len(wrong), detail)


def _truth(
    form: Form, labels: Mapping[str, str], task: Task, me: int
) -> tuple[Mapping[str, str], list[dict[str, Any]]]:
    """Return these labels as they will be read, and the result to write. Raises NotUnderstood if that is impossible."""
    if form.half_known(labels):  # an unticked box means no
        raise NotUnderstood(f"the truth of every class of {form.name!r} is needed")
    here = _gold_of(task)
    own = None if here is None or here.get("completed_by") != me else here["result"]
    try:
        result = form.as_truth(labels, own)
    except NotUnderstood:  # the existing annotation cannot be read, so it has no answers
        result = form.as_truth(labels)
    read = form.read(result)
    as_read = {name: str(read[name]) for name in labels}
    if here is not None and own is None and not _says(form, here, as_read):
        raise NotUnderstood(
            f"user {here.get('completed_by')} has set its ground truth, and a task can have only one: change that "
            "annotation in Label Studio"
        )
    return as_read, result


def _gold_of(task: Task) -> Mapping[str, Any] | None:
    rows = task.get("annotations") or ()
    return next((row for row in rows if row.get("ground_truth") and not row.get("was_cancelled")), None)


def _says(form: Form, annotation: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    try:
        return annotation is not None and labels.items() <= form.read(annotation["result"]).items()
    except NotUnderstood:
        return False


def _write_gold(client: Client, task: Task, result: Sequence[Mapping[str, Any]], me: int) -> None:
    here = _gold_of(task)
    if here is not None and here.get("completed_by") == me:
        client.patch(f"/api/annotations/{here['id']}/", {"result": result})
        return
    path, meta = f"/api/tasks/{task['id']}/", task.get("meta") or {}
    if not meta.get(RAISED):
        # Set overlap and mark in one request, so that a crash before the annotation does not raise the overlap twice.
        client.patch(path, {"overlap": int(task["overlap"]) + 1, "meta": {**meta, RAISED: True}})
    client.post(f"{path}annotations/", {"result": result, "ground_truth": True}, replies.GOLD)


def _delete_second_gold(client: Client, task: Task, me: int, before: Task) -> None:
    """Delete a duplicate left by a request that was carried out twice: the same content, no longer ground truth.

    Label Studio allows one ground truth per task, so the first of two would count as an answer.
    """
    old = {row["id"] for row in before["annotations"] or ()}
    mine = [row for row in task["annotations"] or () if row["completed_by"] == me and row["id"] not in old]
    gold = [row["result"] for row in mine if row["ground_truth"]]
    for row in mine:
        if not row["ground_truth"] and row["result"] in gold:
            client.delete(f"/api/annotations/{row['id']}/")
