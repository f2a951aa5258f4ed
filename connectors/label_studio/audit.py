"""Read a Label Studio project independently, to check the code that pulls and pushes.

This reads each task in full, and looks for the results of operations in the tasks and the project's settings. It uses
nothing from `pull`, `push`, `predictions` and `assign`, so that it repeats none of their errors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.annotations import read_annotations
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.config import Form
from hitl.connectors.label_studio.controls import NotUnderstood
from hitl.kinds.kind import kind_of
from hitl.platform import Difference, Operation, Progress, SeenAnswer, Snapshot, silent

PAGE = 500
ORDER, CONSENSUS, ASSIGN, TAB = "hitl-order-", "hitl-consensus-", "hitl-assign-", "hitl: "
OURS = "hitl-"
SAMPLING = "Uncertainty sampling"
SHOWN = 5
TINY = 1e-6
"""Scores that differ by less count as equal."""
_TASK = ("id", "data", "meta", "is_labeled", "overlap", "annotations", "predictions")
_ALL = replies.tasks((*_TASK, "completed_by", "was_cancelled", "ground_truth", "result", "model_version", "score"))

Json = Mapping[str, Any]


def snapshot(client: Client, project: int, form: Form, progress: Progress = silent) -> Snapshot:
    """Read every task, answer and foreign prediction of the project."""
    answers: dict[str, frozenset[SeenAnswer]] = {}
    data: dict[str, Json] = {}
    predictions: dict[tuple[str, str, str], Mapping[str, float]] = {}
    for task in _tasks(client, project, progress):
        item = str(task["id"])
        data[item] = task["data"]
        answers[item] = frozenset(_answers(form, task))
        for row in task["predictions"] or ():
            model = row["model_version"] or "undefined"
            if model.startswith(OURS):
                continue
            try:
                read = form.read_prediction(row["result"], row["score"])
            except NotUnderstood:
                continue
            predictions |= {(item, question, model): p for question, p in read.items()}
    return Snapshot(answers, data, predictions)


def departures(
    client: Client, project: int, form: Form, operations: Sequence[Operation], progress: Progress = silent
) -> Iterator[Difference]:
    """Find differences between the project and these operations, and leftovers of operations that are not there."""
    audited = _Audited(client, project, form, progress)
    kinds: dict[str, Callable[[Operation], Iterator[str]]] = {
        "order": audited.order,
        "assign": audited.assign,
        "labels_wanted": audited.labels_wanted,
        "consensus": audited.consensus,
    }
    for operation in operations:
        if operation.kind in kinds:
            for why in kinds[operation.kind](operation):
                yield Difference(operation.kind, operation.key, why)
    yield from audited.leftovers(operations)


def _tasks(client: Client, project: int, progress: Progress) -> Iterator[dict[str, Any]]:
    after, done, more = 0, 0, True
    while more:
        above = {"filter": "filter:tasks:id", "operator": "greater", "type": "Number", "value": after}
        query = json.dumps({"filters": {"conjunction": "and", "items": [above]}, "ordering": ["tasks:id"]})
        page = client.get("/api/tasks", _ALL, project=project, fields="all", page=1, page_size=PAGE, query=query)
        tasks, left = page["tasks"], int(page["total"])
        yield from tasks
        progress("audit", done + len(tasks), done + left)
        done, more = done + len(tasks), len(tasks) < left
        after = int(tasks[-1]["id"]) if tasks else 0


class _Audited:
    """Current state of a project, with a check for each kind of operation, which yields differences in words."""

    def __init__(self, client: Client, project: int, form: Form, progress: Progress) -> None:
        self.client = client
        self.project = project
        self.form = form
        self.settings = client.project(project)
        views = client.get("/api/dm/views/", replies.VIEWS, project=project)
        self.tabs = [(str((view["data"] or {}).get("title") or ""), view["id"]) for view in views]
        self.tasks: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, list[tuple[str, Json]]] = {}  # our versions -> (item, prediction)
        for task in _tasks(client, project, progress):
            item = str(task["id"])
            for row in task.pop("predictions") or ():
                if (row["model_version"] or "").startswith(OURS):
                    self.versions.setdefault(row["model_version"], []).append((item, row))
            self.tasks[item] = task

    def order(self, operation: Operation) -> Iterator[str]:
        """Check that this is the only order, that tasks are served by it, and that it ranks tasks as planned."""
        by = operation.payload.get("by")
        name = f"{ORDER}{by}-{operation.digest}" if by else ORDER + operation.digest
        if not self.tasks:
            return
        yield from self._only(ORDER, name)
        for what, key, expected in (
            ("project serves by", "model_version", name),
            ("sampling is", "sampling", SAMPLING),
        ):
            if self.settings.get(key) != expected:
                yield f"the {what} {self.settings.get(key)!r} instead of {expected!r}"
        if planned := self._existing(operation.payload["items"]):
            yield from self._same(planned, name)

    def assign(self, operation: Operation) -> Iterator[str]:
        """Check the annotator's version, and the tasks in their tab."""
        if not self.client.community:
            return
        prefix, planned = f"{ASSIGN}{operation.key};", self._existing(operation.payload["items"])
        name = prefix + operation.digest
        yield from self._only(prefix, name if planned else None)
        if not planned:
            return
        emails = {str(user["id"]): user.get("email") or f"user {user['id']}" for user in self.client.users()}
        if operation.key not in emails:
            yield f"there is no user {operation.key}"
            return
        yield from self._same(planned, name)
        title = TAB + emails[operation.key]
        views = [view for tab, view in self.tabs if tab == title]
        if len(views) != 1:
            yield f"there are {len(views)} tabs {title!r} instead of one"
            return
        asked = {"project": self.project, "view": views[0], "page": 1, "page_size": len(self.tasks) + 1}
        listed = self.client.get("/api/tasks", replies.tasks(["id"]), **asked)["tasks"]
        if {str(task["id"]) for task in listed} != set(planned):
            yield f"the tab {title!r} shows {len(listed)} tasks instead of {len(planned)}"

    def labels_wanted(self, operation: Operation) -> Iterator[str]:
        """Check that each task accepts as many more answers as are still wanted."""
        for key in self._existing(list(operation.payload["items"])):
            task = self.tasks[key]
            # Count annotators with a readable answer. Each answer without a user counts, ground truth does not.
            users = {row.key: row.annotator for row in _answers(self.form, task) if row.kind == "answer"}
            answers = len({*users.values()} - {None}) + [*users.values()].count(None)
            missing = max(int(operation.payload["items"][key]) - answers, 0)
            counted = sum(not row["was_cancelled"] for row in task["annotations"] or ())
            goal = (max(counted + missing, 1), not missing)
            if goal != (task["overlap"], task["is_labeled"]):
                yield f"task {key}: overlap {task['overlap']}, closed {task['is_labeled']}; expected {goal}"

    def consensus(self, operation: Operation) -> Iterator[str]:
        """Check that there is one version, and that it has the label of each existing task."""
        wanted: dict[str, dict[str, Json]] = {}
        for question, rows in operation.payload["questions"].items():
            for row in rows:
                if str(row["item"]) in self.tasks:
                    wanted.setdefault(str(row["item"]), {})[question] = row
        name = CONSENSUS + operation.digest
        yield from self._only(CONSENSUS, name if wanted else None)
        shown = self.versions.get(name, [])
        if sorted(wanted) != sorted(item for item, _ in shown):
            yield from self._same(sorted(wanted), name)
        for item, prediction in dict(reversed(shown)).items():  # if there are several, the first wins
            if item in wanted:
                yield from self._wrong_label(item, wanted[item], prediction)
        if str(self.settings.get("model_version") or "").startswith(CONSENSUS):
            yield "annotators are shown the consensus: it is the active version"

    def leftovers(self, operations: Sequence[Operation]) -> Iterator[Difference]:
        """Find leftovers of a push that was interrupted or carried out twice, or of another store."""
        pushed = {(each.kind, each.key if each.kind == "assign" else "") for each in operations}
        for name in sorted(self.versions):
            person = name.removeprefix(ASSIGN).partition(";")[0]
            for prefix, kind, key in ((ORDER, "order", ""), (CONSENSUS, "consensus", ""), (ASSIGN, "assign", person)):
                if name.startswith(prefix) and (kind, key) not in pushed:
                    yield Difference(kind, key, f"there is the version {name}, and nothing that was pushed says so")
        for title, count in Counter(title for title, _ in self.tabs if title.startswith(TAB)).items():
            if count > 1:
                yield Difference("tab", title, f"there are {count} of it; delete all but one on the platform")
        made: dict[str, list[str]] = {}
        for item, task in self.tasks.items():
            if isinstance(task["meta"], dict) and task["meta"].get("hitl") is not None:
                made.setdefault(str(task["meta"]["hitl"]), []).append(item)
        for own, items in made.items():
            if len(items) > 1:
                yield Difference("added item", own, f"tasks {', '.join(items)} have this id; delete all but one")

    def _wrong_label(self, item: str, rows: Mapping[str, Json], prediction: Json) -> Iterator[str]:
        try:
            read = self.form.read(prediction["result"])
        except NotUnderstood as error:
            yield f"task {item}: the consensus cannot be read: {error}"
            return
        asked = {question.name: question for question in self.form.questions}
        labels = {
            name: kind_of(asked[name]).write(row.get("parts", [row])) for name, row in rows.items() if name in asked
        }
        if wrong := [name for name in sorted(rows) if name not in labels or read.get(name) != labels[name]]:
            yield f"task {item}: the consensus on {', '.join(wrong)} is another one"
        score = min(max(min(float(row["confidence"]) for row in rows.values()), 0.0), 1.0)
        if prediction["score"] is None or abs(prediction["score"] - score) > TINY:
            yield f"task {item}: the consensus has the score {prediction['score']} instead of {score:.6g}"

    def _existing(self, items: Sequence[object]) -> list[str]:
        return [key for key in dict.fromkeys(map(str, items)) if key in self.tasks]

    def _only(self, prefix: str, name: str | None) -> Iterator[str]:
        """Yield a reason unless this is the only version with the prefix (None: no version)."""
        named = sorted(version for version in self.versions if version.startswith(prefix))
        if named != ([] if name is None else [name]):
            yield f"there are the versions {', '.join(named[:SHOWN]) or 'none'}; expected {name or 'none'}"

    def _same(self, planned: Sequence[str], name: str) -> Iterator[str]:
        """Yield a reason unless the version's tasks, by rising score, are the planned ones."""
        actual = [key for key, _ in sorted(self.versions.get(name, []), key=lambda row: row[1]["score"] or 0.0)]
        if list(planned) != actual:
            what = "another order" if sorted(planned) == sorted(actual) else f"{len(actual)} tasks"
            yield f"{name} has {what}; expected {len(planned)} tasks: {', '.join(planned[:SHOWN])}, ..."


def _answers(form: Form, task: Json) -> Iterator[SeenAnswer]:
    """Yield each annotation's answer to each question; a skip if there is none, or none that can be read."""
    for read in read_annotations(form, task):
        for question in form.questions:
            label, kind = read.answers.get(question.name), read.kind(question.name)
            yield SeenAnswer(str(read.row["id"]), question.name, read.annotator, label, kind)
