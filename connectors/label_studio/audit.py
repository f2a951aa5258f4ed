"""What a Label Studio project holds, read plainly: an oracle beside the code that pulls and pushes.

One listing with everything there is of each task. What operations have asked for is looked up in it and in the settings
of the project; nothing of `pull`, `push`, `predictions` and `assign` is used, so that none of their errors is repeated.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.answers import NotUnderstood
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.form import Form
from hitl.connectors.label_studio.predictions import label_of
from hitl.platform import (
    Difference,
    Operation,
    Progress,
    SeenAnswer,
    Snapshot,
    silent,
)

PAGE = 500
ORDER, CONSENSUS, ASSIGN, TAB = "hitl-order-", "hitl-consensus-", "hitl-assign-", "hitl: "
OURS = "hitl-"
SAMPLING = "Uncertainty sampling"
SHOWN = 5
TINY = 1e-6
"""Scores that differ by less are one."""
_OF_TASKS = ("overlap", "is_labeled", "meta")
_OF_ANSWERS = ("id", "completed_by", "was_cancelled", "ground_truth", "result")
_ALL = replies.tasks(
    ("id", "data", "meta", "is_labeled", "overlap", "annotations", *_OF_ANSWERS, "predictions", "model_version")
)


def snapshot(client: Client, project: int, form: Form, progress: Progress = silent) -> Snapshot:
    """Every task, answer and foreign prediction of the project as it is now."""
    answers: dict[str, frozenset[SeenAnswer]] = {}
    data: dict[str, Mapping[str, Any]] = {}
    predictions: dict[tuple[str, str, str], Mapping[str, float]] = {}
    for task in tasks(client, project, progress):
        item = str(task["id"])
        data[item] = task["data"]
        answers[item] = frozenset(one for said in task["annotations"] or () for one in _answers(form, said))
        for said in task["predictions"] or ():
            model = said.get("model_version") or "undefined"
            if not model.startswith(OURS):
                predictions |= {(item, question, model): p for question, p in _predicted(form, said).items()}
    return Snapshot(answers, data, predictions)


def departures(
    client: Client, project: int, form: Form, operations: Sequence[Operation], progress: Progress = silent
) -> Iterator[Difference]:
    """Where the project is not as these operations say, and what of ours none of them says."""
    seen = _Seen(client, project, form, progress)
    for operation in operations:
        look = getattr(seen, f"of_{operation.kind}", None)
        for why in look(operation) if look else ():
            yield Difference(operation.kind, operation.key, why)
    yield from seen.left_over(operations)


def tasks(client: Client, project: int, progress: Progress = silent) -> Iterator[dict[str, Any]]:
    """All tasks with everything of them, in order of their ids."""
    after, done = 0, 0
    while True:
        above = {"filter": "filter:tasks:id", "operator": "greater", "type": "Number", "value": after}
        query = json.dumps({"filters": {"conjunction": "and", "items": [above]}, "ordering": ["tasks:id"]})
        read = client.get("/api/tasks", _ALL, project=project, fields="all", page=1, page_size=PAGE, query=query)
        yield from read["tasks"]
        total, done = done + int(read["total"]), done + len(read["tasks"])
        progress("audit", done, total)
        if len(read["tasks"]) >= read["total"]:
            return
        after = int(read["tasks"][-1]["id"])


class _Seen:
    """The project as it is, and how it departs from each kind of operation: reasons in words."""

    def __init__(self, client: Client, project: int, form: Form, progress: Progress) -> None:
        self.client = client
        self.project = project
        self.form = form
        self.settings = client.project(project)
        self.views: list[dict[str, Any]] = client.get("/api/dm/views/", replies.VIEWS, project=project)
        self.tasks: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for task in tasks(client, project, progress):
            key = str(task["id"])
            said = [{name: one[name] for name in _OF_ANSWERS} for one in task["annotations"]]
            self.tasks[key] = {name: task[name] for name in _OF_TASKS} | {"annotations": said}
            for one in task["predictions"]:
                if (one.get("model_version") or "").startswith(OURS):
                    kept = {"score": one["score"], "result": one["result"]}
                    self.versions.setdefault(one["model_version"], {}).setdefault(key, []).append(kept)

    def of_order(self, operation: Operation) -> Iterator[str]:
        """The tasks of the one active version, by their scores; and the sampling that honours them."""
        by = operation.payload.get("by")
        name = f"{ORDER}{by}-{operation.digest}" if by else ORDER + operation.digest
        if not self.tasks:
            return
        yield from self._only(ORDER, name)
        if self.settings.get("model_version") != name:
            yield f"the project serves by {self.settings.get('model_version')!r} instead of {name!r}"
        if self.settings.get("sampling") != SAMPLING:
            yield f"the sampling is {self.settings.get('sampling')!r} instead of {SAMPLING!r}"
        planned = self._there(operation.payload["items"])
        if planned:
            yield from self._same(planned, self._ranked(name), name)

    def of_assign(self, operation: Operation) -> Iterator[str]:
        """The annotator's version, and what their tab shows."""
        prefix, planned = f"{ASSIGN}{operation.key};", self._there(operation.payload["items"])
        if not self.client.community:
            return
        yield from self._only(prefix, prefix + operation.digest if planned else None)
        people = {str(user["id"]): user for user in self.client.users()}
        if not planned or operation.key not in people:
            yield from (f"there is no user {operation.key}",) if planned else ()
            return
        yield from self._same(planned, self._ranked(prefix + operation.digest), prefix + operation.digest)
        title = TAB + (people[operation.key].get("email") or f"user {operation.key}")
        tabs = [view for view in self.views if _title(view) == title]
        if len(tabs) != 1:
            yield f"there are {len(tabs)} tabs {title!r} instead of one"
            return
        asked = {"project": self.project, "view": tabs[0]["id"], "page": 1, "page_size": len(self.tasks) + 1}
        shown = self.client.get("/api/tasks", replies.tasks(["id"]), **asked)
        if {str(task["id"]) for task in shown["tasks"]} != set(planned):
            yield f"the tab {title!r} shows {len(shown['tasks'])} tasks instead of {len(planned)}"

    def of_labels_wanted(self, operation: Operation) -> Iterator[str]:
        """Whether each task is open for as many answers as are wanted still."""
        for key, wanted in operation.payload["items"].items():
            task = self.tasks.get(str(key))
            if task is None:
                continue
            counted = [one for one in task["annotations"] if not one["was_cancelled"]]
            missing = max(int(wanted) - self._answers(counted), 0)
            goal = (max(len(counted) + missing, 1), not missing)
            if goal != (task["overlap"], task["is_labeled"]):
                yield f"task {key}: overlap {task['overlap']}, closed {task['is_labeled']}; expected {goal}"

    def of_consensus(self, operation: Operation) -> Iterator[str]:
        """One version, with the label of each task that is there."""
        wanted: dict[str, dict[str, Mapping[str, Any]]] = {}
        for question, rows in operation.payload["questions"].items():
            for row in rows:
                wanted.setdefault(str(row["item"]), {})[question] = row
        wanted = {item: rows for item, rows in wanted.items() if item in self.tasks}
        name = CONSENSUS + operation.digest
        yield from self._only(CONSENSUS, name if wanted else None)
        shown = self.versions.get(name, {})
        if wanted:
            yield from self._same(sorted(wanted), sorted(item for item, said in shown.items() for _ in said), name)
        for item in wanted.keys() & shown.keys():
            yield from self._wrong_label(item, wanted[item], shown[item][0])
        if str(self.settings.get("model_version") or "").startswith(CONSENSUS):
            yield "annotators are shown the consensus: it is the active version"

    def left_over(self, operations: Sequence[Operation]) -> Iterator[Difference]:
        """What a push that was killed, or done twice, or one of another store may leave behind."""
        kinds = {operation.kind for operation in operations}
        people = {operation.key for operation in operations if operation.kind == "assign"}
        for name in sorted(self.versions):
            person = name.removeprefix(ASSIGN).partition(";")[0]
            said_by = {ORDER: ("order", "", "order" in kinds), CONSENSUS: ("consensus", "", "consensus" in kinds)}
            said_by[ASSIGN] = ("assign", person, person in people)
            for prefix, (kind, key, known) in said_by.items():
                if name.startswith(prefix) and not known:
                    yield Difference(kind, key, f"there is the version {name}, and nothing that was pushed says so")
        titles = Counter(_title(view) for view in self.views if _title(view).startswith(TAB))
        yield from (
            Difference("tab", title, f"there are {n} of it; delete all but one on the platform")
            for title, n in titles.items()
            if n > 1
        )
        made: dict[str, list[str]] = {}
        for item, task in self.tasks.items():
            own = task["meta"].get("hitl") if isinstance(task.get("meta"), dict) else None
            made.setdefault(str(own), []).extend([] if own is None else [item])
        for own, several in made.items():
            if len(several) > 1:
                yield Difference("added item", own, f"tasks {', '.join(several)} have this id; delete all but one")

    def _wrong_label(self, item: str, rows: Mapping[str, Mapping[str, Any]], said: Mapping[str, Any]) -> Iterator[str]:
        try:
            read = self.form.read(said["result"])
        except NotUnderstood as error:
            yield f"task {item}: the consensus cannot be read: {error}"
            return
        asked = {question.name: question for question in self.form.questions}
        wrong = sorted(name for name, row in rows.items() if read.get(name) != label_of(asked[name], row))
        if wrong:
            yield f"task {item}: the consensus on {', '.join(wrong)} is another one"
        score = min(max(min(float(row["confidence"]) for row in rows.values()), 0.0), 1.0)
        if said["score"] is None or abs(said["score"] - score) > TINY:
            yield f"task {item}: the consensus has the score {said['score']} instead of {score:.6g}"

    def _answers(self, annotations: Sequence[Mapping[str, Any]]) -> int:
        """How many annotators gave one that can be read; each without a user counts; known truth does not."""
        found = [_user(said) for said in annotations if any(a.kind == "answer" for a in _answers(self.form, said))]
        return len({*found} - {None}) + found.count(None)

    def _there(self, items: Sequence[object]) -> list[str]:
        return [key for key in dict.fromkeys(map(str, items)) if key in self.tasks]

    def _only(self, prefix: str, name: str | None) -> Iterator[str]:
        """Reasons unless exactly this version begins so (None: no version)."""
        named = sorted(version for version in self.versions if version.startswith(prefix))
        if named != ([] if name is None else [name]):
            yield f"there are the versions {', '.join(named[:SHOWN]) or 'none'}; expected {name or 'none'}"

    def _ranked(self, name: str) -> list[str]:
        rows = [(said["score"] or 0.0, key) for key, all_ in self.versions.get(name, {}).items() for said in all_]
        return [key for _, key in sorted(rows, key=lambda row: row[0])]

    @staticmethod
    def _same(planned: Sequence[str], found: Sequence[str], name: str) -> Iterator[str]:
        if list(planned) != list(found):
            what = "another order" if sorted(planned) == sorted(found) else f"{len(found)} tasks"
            yield f"{name} has {what}; expected {len(planned)} tasks: {', '.join(planned[:SHOWN])}, ..."


def _answers(form: Form, said: Mapping[str, Any]) -> Iterator[SeenAnswer]:
    """What an annotation says to each question; a skip where it says nothing, or nothing that can be read."""
    try:
        labels = {} if said["was_cancelled"] else form.read(said["result"])
    except NotUnderstood:
        labels = {}
    for question in form.questions:
        label = labels.get(question.name)
        kind = "skip" if label is None else "gold" if said["ground_truth"] else "answer"
        yield SeenAnswer(str(said["id"]), question.name, _user(said), label, kind)


def _predicted(form: Form, said: Mapping[str, Any]) -> Mapping[str, Mapping[str, float]]:
    try:
        return form.read_prediction(said.get("result"), said.get("score"))
    except NotUnderstood:
        return {}


def _user(said: Mapping[str, Any]) -> str | None:
    by = said["completed_by"]
    by = by["id"] if isinstance(by, dict) else by
    return None if by is None else str(by)


def _title(view: Mapping[str, Any]) -> str:
    return str((view.get("data") or {}).get("title") or "")
