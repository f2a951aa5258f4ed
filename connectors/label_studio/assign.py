"""Which annotator is asked about which tasks.

Community has no assignments. Each annotator gets a Data Manager tab, "hitl: <email>", that shows exactly the
tasks which have a prediction of version "hitl-assign-<user id>;<digest>" (empty, never shown to anybody), sorted
by the score of the order (predictions.py). The label stream of the tab keeps filter, order and locks. A filter by
task ids would do the same on the server, but Label Studio's web page knows no `in_list` for numbers: one such tab
and the Data Manager of the project no longer opens, for anybody.

The tab hides the columns with other annotators' answers and with predictions. Tabs are shared: nothing but custom
keeps annotators in their own.

Enterprise has assignments: the task's assignees are set through the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.client import Client, NoAnswer, where
from hitl.connectors.label_studio.predictions import Versions, existing, said, task_ids
from hitl.errors import BadSettings, Refused
from hitl.platform import Operation, Receipt

ASSIGN = "hitl-assign-"
TAB = "hitl: "
AT_ONCE = 2
"""From so many annotators on their predictions are imported together."""
ANNOTATE = "AN"
ADVICE = (
    'choose "Label Tasks As Displayed" in the tab; "Label All Tasks" ignores the tab: it serves the questions of all '
    "annotators, and locks those that are opened"
)
"""What annotators should know of their tab."""
_ORDERING = ["tasks:predictions_score"]
_HIDDEN = [
    f"tasks:{column}"
    for column in (
        "inner_id",
        "total_annotations",
        "cancelled_annotations",
        "total_predictions",
        "annotators",
        "annotations_results",
        "annotations_ids",
        "predictions_model_versions",
        "predictions_results",
        "file_upload",
        "storage_filename",
        "created_at",
        "updated_at",
        "updated_by",
        "avg_lead_time",
        "draft_exists",
    )
]


def made_at_once(client: Client, project: int, operations: Sequence[Operation]) -> dict[str, int]:
    """Import the predictions of all these annotators in one request; version -> how many, of those that were not there.

    Label Studio counts anew for all tasks of a project with each import, which takes longer than all else. What comes
    of it is looked at as each annotator's turn comes.
    """
    if len(operations) < AT_ONCE or not client.community:
        return {}
    versions = Versions(client, project)
    try:
        there, people = versions.counts(), {str(user["id"]) for user in client.users()}
        new = [each for each in operations if each.key in people and _prefix(each.key) + each.digest not in there]
        wanted = {each.key: task_ids(each.payload["items"]) for each in new}
        found = client.tasks_by_id(project, {task for tasks in wanted.values() for task in tasks}, ("id",))
        rows = {
            _prefix(each.key) + each.digest: _marks(each, [task for task in wanted[each.key] if task in found])
            for each in new
        }
        versions.send([row for marks in rows.values() for row in marks])
    except (Refused, NoAnswer, BadSettings):  # each by itself says what is refused, and why
        return {}
    return {name: len(marks) for name, marks in rows.items()}


def assign(versions: Versions, made: Mapping[str, int], client: Client, project: int, operation: Operation) -> Receipt:
    """Ask the annotator (operation.key, a user id) about exactly these tasks.

    `made`: what was imported for this operation already, as `made_at_once` says.
    """
    wanted = task_ids(operation.payload["items"])
    person = client.user(operation.key)
    if person is None and not wanted:
        left = versions.delete(_prefix(operation.key)) if client.community else 0
        return Receipt(operation, left, f"there is no user {operation.key}")
    if person is None:
        raise Refused(
            f"{client.url} has no user {operation.key}: fix crew.annotators, or invite the annotator; their questions "
            "go to others then"
        )
    rows, missing = existing(client, project, [{"task": task} for task in wanted])
    planned = [row["task"] for row in rows]
    email = person.get("email") or f"user {operation.key}"
    detail = said(len(rows), f"for {email}", missing)
    if not client.community:
        return Receipt(operation, _assignees(client, project, int(person["id"]), planned), detail)
    changed, served = _tab(versions, operation, email, planned)
    changed += made.get(_prefix(operation.key) + operation.digest, 0)
    if sorted(served) != sorted(planned):
        raise Refused(f"the tab of {email} shows {len(served)} tasks instead of {len(planned)}: push again")
    if served != planned:
        detail += "; served in the order of the project, which is another one"
    return Receipt(operation, changed, detail)


def tabs(client: Client, project: int) -> dict[str, str]:
    """Email -> address of the annotator's tab. "Label Tasks As Displayed" there serves their questions."""
    titles = {_title(view): view["id"] for view in _views(client, project)[::-1]}
    return {
        title.removeprefix(TAB): f"{client.url}/projects/{project}/data?tab={view}"
        for title, view in titles.items()
        if title.startswith(TAB)
    }


def _prefix(user: str) -> str:
    return f"{ASSIGN}{user};"  # the semicolon: user 1 is not user 10


def _views(client: Client, project: int) -> list[dict[str, Any]]:
    """The tabs of the project, the oldest first."""
    return sorted(client.get("/api/dm/views/", replies.VIEWS, project=project), key=lambda view: int(view["id"]))


def _tab(versions: Versions, operation: Operation, email: str, planned: Sequence[int]) -> tuple[int, list[int]]:
    """Make the annotator's tab show the tasks: (number of changes, what it shows, in order)."""
    client, project, prefix = versions.client, versions.project, _prefix(operation.key)
    if not planned:
        return versions.delete(prefix), []  # the tab stays, empty: it may be open in a browser
    name = prefix + operation.digest
    changed = versions.make(name, _marks(operation, planned))
    view, touched = _have_tab(client, project, TAB + email, prefix)
    changed += touched + versions.delete(prefix, keep=name)
    parameters = {"fields": "all", "include": "id", "page_size": len(planned) + 1}
    shown = client.get("/api/tasks", replies.tasks(["id"]), project=project, view=view, **parameters)
    return changed, [task["id"] for task in shown["tasks"]]


def _marks(operation: Operation, planned: Sequence[int]) -> list[dict[str, Any]]:
    """The predictions that mark an annotator's tasks, in order."""
    name = _prefix(operation.key) + operation.digest
    return [
        {"task": task, "result": [], "score": rank / len(planned), "model_version": name}
        for rank, task in enumerate(planned)
    ]


def _have_tab(client: Client, project: int, title: str, prefix: str) -> tuple[int, int]:
    """Create or repair the tab: (its id, how much there was to do)."""
    data = {
        "title": title,
        "type": "list",
        "target": "tasks",
        "ordering": _ORDERING,
        "filters": {
            "conjunction": "and",
            "items": [where("predictions_model_versions", "contains", "List", [prefix])],
        },
        "hiddenColumns": {"explore": _HIDDEN, "labeling": _HIDDEN},
    }
    views = _views(client, project)
    theirs = [view for view in views if _title(view) == title]
    if not theirs:
        if not views:  # Label Studio makes its default tab only in a project without tabs
            _one_tab(client, project, "Default", {"title": "Default"})
        return int(_one_tab(client, project, title, data)["id"]), 1
    view, *doubles = theirs
    for double in doubles:  # a request that came twice made it
        client.delete(f"/api/dm/views/{double['id']}/")
    if all((view["data"] or {}).get(name) == data[name] for name in ("ordering", "filters")):
        return int(view["id"]), len(doubles)
    client.patch(f"/api/dm/views/{view['id']}/", {"data": {**(view["data"] or {}), **data}})
    return int(view["id"]), 1 + len(doubles)


def _title(view: Mapping[str, Any]) -> str:
    return str((view["data"] or {}).get("title") or "")


def _one_tab(client: Client, project: int, title: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Make a tab that is not there yet; the request may come twice on its way, the tab is there once."""
    client.post("/api/dm/views/", {"project": project, "data": data}, replies.VIEW)
    made: list[dict[str, Any]] = [view for view in _views(client, project) if _title(view) == title]
    for double in made[1:]:
        client.delete(f"/api/dm/views/{double['id']}/")
    if not made:
        raise Refused(f"Label Studio does not have the tab {title!r} that was made just now: push again")
    return made[0]


def _assignees(client: Client, project: int, user: int, wanted: Sequence[int]) -> int:
    """Enterprise: assign what is missing, take back what is no longer planned and not begun."""
    theirs = where("annotators", "contains", "List", user)
    listed = client.tasks(project, ("id", "annotations", "completed_by"), filters=[theirs])
    begun = {int(task["id"]): _has_answered(task, user) for task in listed}
    assigned = [task for task, answered in begun.items() if not answered]
    add = [task for task in wanted if task not in begun]
    drop = [task for task in assigned if task not in set(wanted)]
    some, kind = {"all": False, "included": add}, ANNOTATE
    if add:
        client.call(
            lambda projects: projects.assignments.bulk_assign(project, selected_items=some, type=kind, users=[user])
        )
    for task in drop:
        client.call(partial(_unassign, project, task, user))
    return len(add) + len(drop)


def _has_answered(task: Mapping[str, Any], user: int) -> bool:
    return any(annotation.get("completed_by") == user for annotation in task.get("annotations") or ())


def _unassign(project: int, task: int, user: int, projects: Any) -> None:
    projects.assignments.delete(project, task, type=ANNOTATE, users=str(user))
