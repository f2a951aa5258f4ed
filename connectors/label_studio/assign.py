"""Ask annotators about their tasks.

Community has no assignments. Each annotator gets a Data Manager tab, "hitl: <email>", that shows exactly the tasks with
a prediction of version "hitl-assign-<user id>;<digest>" (empty, never shown to anyone), sorted by the score of the
order. The label stream of the tab respects its filter and order, and locks tasks. A filter by task ids would show the
same tasks, but one such tab keeps the project's Data Manager from opening, for all users. The tab hides the columns
with other annotators' answers and with predictions. Tabs are shared, so nothing keeps annotators in their own tab.

Enterprise has assignments: the task's assignees are set through the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.client import Client, NoAnswer, where
from hitl.connectors.label_studio.predictions import Row, Versions, detail_of, task_ids
from hitl.errors import BadSettings, Refused
from hitl.platform import Operation, Receipt

ASSIGN = "hitl-assign-"
TAB = "hitl: "
ADVICE = (
    'choose "Label Tasks As Displayed" in the tab; "Label All Tasks" ignores the tab: it serves the questions of all '
    "annotators, and locks those that are opened"
)
"""Advice shown to annotators with their tab."""
_HIDDEN = [
    *("tasks:inner_id", "tasks:total_annotations", "tasks:cancelled_annotations", "tasks:total_predictions"),
    *("tasks:annotators", "tasks:annotations_results", "tasks:annotations_ids", "tasks:predictions_model_versions"),
    *("tasks:predictions_results", "tasks:file_upload", "tasks:storage_filename", "tasks:created_at"),
    *("tasks:updated_at", "tasks:updated_by", "tasks:avg_lead_time", "tasks:draft_exists"),
]


def import_together(client: Client, project: int, operations: Sequence[Operation]) -> dict[str, int]:
    """Import the predictions of all these annotators in one request. Return version -> count, for new versions.

    Each import makes Label Studio recount all tasks of a project, which takes longer than everything else. `assign`
    checks the result.
    """
    if len(operations) < 2 or not client.community:
        return {}
    versions = Versions(client, project)
    try:
        there, people = versions.counts(), {str(user["id"]) for user in client.users()}
        new = [each for each in operations if each.key in people and _version(each) not in there]
        wanted = {each.key: task_ids(each.payload["items"]) for each in new}
        tasks = client.tasks_by_id(project, {task for numbers in wanted.values() for task in numbers}, ("id",))
        rows = {_version(each): _marks(each, [task for task in wanted[each.key] if task in tasks]) for each in new}
        versions.send([row for marks in rows.values() for row in marks])
    except (Refused, NoAnswer, BadSettings):  # `assign` imports them one by one, and shows which is refused, and why
        return {}
    return {name: len(marks) for name, marks in rows.items()}


def assign(versions: Versions, imported: Mapping[str, int], operation: Operation) -> Receipt:
    """Ask the annotator (operation.key, a user id) about exactly these tasks. `imported`: see `import_together`."""
    client, wanted, prefix = versions.client, task_ids(operation.payload["items"]), _prefix(operation.key)
    person = client.user(operation.key)
    if person is None and not wanted:
        deleted = versions.delete(prefix) if client.community else 0
        return Receipt(operation, deleted, f"there is no user {operation.key}")
    if person is None:
        raise Refused(
            f"{client.url} has no user {operation.key}: fix crew.annotators, or invite the annotator; their questions "
            "go to others then"
        )
    rows, missing = versions.existing([{"task": task} for task in wanted])
    planned = [row["task"] for row in rows]
    email = person.get("email") or f"user {operation.key}"
    detail = detail_of(len(rows), f"for {email}", missing)
    if not client.community:
        return Receipt(operation, _set_assignees(client, versions.project, int(person["id"]), planned), detail)
    changed, served = 0, list[int]()
    if planned:
        changed += versions.make(_version(operation), _marks(operation, planned))
        view, touched = _have_tab(versions, TAB + email, prefix)
        changed += touched + versions.delete(prefix, keep=_version(operation))
        asked = {"project": versions.project, "view": view, "fields": "all", "include": "id"}
        page = client.get("/api/tasks", replies.tasks(["id"]), **asked, page_size=len(planned) + 1)
        served = [task["id"] for task in page["tasks"]]
    else:
        changed += versions.delete(prefix)  # keep the empty tab: it may be open in a browser
    if sorted(served) != sorted(planned):
        raise Refused(f"the tab of {email} shows {len(served)} tasks instead of {len(planned)}: push again")
    if served != planned:
        detail += "; served in the order of the project, which is another one"
    return Receipt(operation, changed + imported.get(_version(operation), 0), detail)


def tabs(client: Client, project: int) -> dict[str, str]:
    """Return email -> URL of the annotator's tab. "Label Tasks As Displayed" serves their questions there."""
    oldest = {_title(view): view["id"] for view in _views(client, project)[::-1]}
    return {
        title.removeprefix(TAB): f"{client.url}/projects/{project}/data?tab={view}"
        for title, view in oldest.items()
        if title.startswith(TAB)
    }


def _prefix(user: str) -> str:
    return f"{ASSIGN}{user};"  # the semicolon separates user 1 from user 10


def _version(operation: Operation) -> str:
    return _prefix(operation.key) + operation.digest


def _marks(operation: Operation, planned: Sequence[int]) -> list[Row]:
    return [
        {"task": task, "result": [], "score": rank / len(planned), "model_version": _version(operation)}
        for rank, task in enumerate(planned)
    ]


def _views(client: Client, project: int) -> list[dict[str, Any]]:
    return sorted(client.get("/api/dm/views/", replies.VIEWS, project=project), key=lambda view: int(view["id"]))


def _title(view: Mapping[str, Any]) -> str:
    return str((view["data"] or {}).get("title") or "")


def _have_tab(versions: Versions, title: str, prefix: str) -> tuple[int, int]:
    """Create or repair the tab. Return its id and the number of changes."""
    client, project = versions.client, versions.project
    shown = where("predictions_model_versions", "contains", "List", [prefix])
    data = {
        "title": title,
        "type": "list",
        "target": "tasks",
        "ordering": ["tasks:predictions_score"],
        "filters": {"conjunction": "and", "items": [shown]},
        "hiddenColumns": {"explore": _HIDDEN, "labeling": _HIDDEN},
    }
    views = _views(client, project)
    if not any(_title(view) == title for view in views):
        if not views:  # Label Studio creates its default tab only in a project without tabs
            _make_tab(client, project, {"title": "Default"})
        return _make_tab(client, project, data), 1
    view, deleted = _only_tab(client, views, title)
    if all((view["data"] or {}).get(name) == data[name] for name in ("ordering", "filters")):
        return int(view["id"]), deleted
    client.patch(f"/api/dm/views/{view['id']}/", {"data": {**(view["data"] or {}), **data}})
    return int(view["id"]), 1 + deleted


def _make_tab(client: Client, project: int, data: Mapping[str, Any]) -> int:
    """Create a tab and return its id. If the request was sent twice, only one tab remains."""
    client.post("/api/dm/views/", {"project": project, "data": data}, replies.VIEW)
    return int(_only_tab(client, _views(client, project), data["title"])[0]["id"])


def _only_tab(client: Client, views: Sequence[Mapping[str, Any]], title: str) -> tuple[Mapping[str, Any], int]:
    """Return the oldest tab with this title, and how many others were deleted."""
    named = [view for view in views if _title(view) == title]
    if not named:
        raise Refused(f"Label Studio does not have the tab {title!r} that was made just now: push again")
    for view in named[1:]:
        client.delete(f"/api/dm/views/{view['id']}/")
    return named[0], len(named) - 1


def _set_assignees(client: Client, project: int, user: int, wanted: Sequence[int]) -> int:
    """Assign missing tasks, and withdraw those that are neither planned nor begun. Return the number of changes."""
    theirs = where("annotators", "contains", "List", user)
    answered = {
        int(task["id"]): any(row.get("completed_by") == user for row in task.get("annotations") or ())
        for task in client.tasks(project, ("id", "annotations", "completed_by"), filters=[theirs])
    }
    add = [task for task in wanted if task not in answered]
    drop = [task for task, done in answered.items() if not done and task not in set(wanted)]

    def withdraw(task: int) -> None:
        client.call(lambda projects: projects.assignments.delete(project, task, type="AN", users=str(user)))

    if add:
        some = {"all": False, "included": add}
        client.call(
            lambda projects: projects.assignments.bulk_assign(project, selected_items=some, type="AN", users=[user])
        )
    for task in drop:
        withdraw(task)
    return len(add) + len(drop)
