"""Whether a project on Label Studio is as the store says: the oracle of the tests of faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hitl.store import Store
from tests.connectors.label_studio.conftest import Project


def differences(project: Project, store: Store, name: str = "p") -> list[str]:
    """A line for each thing that is not as it should be; the platform is read directly."""
    listed = project.admin.get("/api/tasks", project=project.number, fields="all", page=1, page_size=10_000)
    tasks = {str(task["id"]): task for task in listed["tasks"]}
    said = {(operation.kind, operation.key): operation.payload for operation, _ in store.operations(name)}
    found = [f"pending {operation.kind} {operation.key}" for operation in store.pending(name)]
    found += _evidence(tasks, store, name)
    versions: dict[str, dict[str, list[float]]] = {}
    for key, task in tasks.items():
        for prediction in task["predictions"]:
            of_version = versions.setdefault(prediction["model_version"], {})
            of_version.setdefault(key, []).append(prediction["score"])
    for version, of_tasks in versions.items():
        if any(len(scores) > 1 for scores in of_tasks.values()):
            found.append(f"{version} has several predictions of one task")
    found += _order(project, versions, said.get(("order", "")))
    found += _consensus(versions, said.get(("consensus", "")))
    found += _tabs(project, versions, {key: each for (kind, key), each in said.items() if kind == "assign"})
    for key, wanted in said.get(("labels_wanted", ""), {"items": {}})["items"].items():
        given = [each for each in tasks[key]["annotations"] if not each["was_cancelled"]]
        counted = len({each["completed_by"] for each in given if not each["ground_truth"]})
        missing = max(wanted - counted, 0)
        shown = (tasks[key]["overlap"], tasks[key]["is_labeled"])
        if shown != (max(len(given) + missing, 1), not missing):
            found.append(f"task {key} has overlap and mark {shown}, of {wanted} wanted and {len(given)} given")
    return found


def _evidence(tasks: Mapping[str, Any], store: Store, name: str) -> list[str]:
    there = sum(not each["ground_truth"] for task in tasks.values() for each in task["annotations"])
    keys = set(store.items(name).column("item").to_pylist())
    counts = store.counts(name)
    stored = counts["annotations"]
    lines = [] if keys == set(tasks) else [f"the store has {len(keys)} items, the platform {len(tasks)}"]
    return lines if stored == there else [*lines, f"the store has {stored} annotations, the platform {there}"]


def _order(project: Project, versions: Mapping[str, Any], payload: Mapping[str, Any] | None) -> list[str]:
    if payload is None:
        return []
    active = project.settings()["model_version"]
    orders = [version for version in versions if version.startswith("hitl-order-")]
    if orders != [active]:
        return [f"orders {orders}, active {active!r}"]
    scores = {key: max(given) for key, given in versions[active].items()}
    served = sorted(scores, key=lambda key: scores[key])
    return [] if not payload["items"] or served == payload["items"] else [f"served {served}, not {payload['items']}"]


def _consensus(versions: Mapping[str, Any], payload: Mapping[str, Any] | None) -> list[str]:
    shown = [version for version in versions if version.startswith("hitl-consensus-")]
    if payload is None:
        return []
    (rows,) = payload["questions"].values()
    if len(shown) != 1:
        return [f"consensus {shown}"]
    sure = {key: round(max(given), 6) for key, given in versions[shown[0]].items()}
    wanted = {row["item"]: round(row["confidence"], 6) for row in rows}
    return [] if sure == wanted else [f"consensus of {len(sure)} tasks, not of {len(wanted)}, or of other confidence"]


def _tabs(project: Project, versions: Mapping[str, Any], assigned: Mapping[str, Any]) -> list[str]:
    found = []
    views = project.admin.get("/api/dm/views/", project=project.number)
    titles = [view["data"].get("title") for view in views]
    if len(titles) != len(set(titles)):
        found.append(f"tabs {titles}")
    emails = {person.id: person.email for person in project.people}
    for key, payload in assigned.items():
        theirs = [version for version in versions if version.startswith(f"hitl-assign-{key};")]
        tasks = set(versions[theirs[0]]) if theirs else set()
        if len(theirs) > 1 or tasks != set(payload["items"]):
            found.append(f"{theirs} assign {sorted(tasks)} to {key}, not {payload['items']}")
        if payload["items"] and f"hitl: {emails[key]}" not in titles:
            found.append(f"{emails[key]} has no tab")
    return found
