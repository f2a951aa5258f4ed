"""Read a project: everything once, then only changes.

    bulk      tasks in order of their ids                            cursor {"phase": "bulk", "after": id, ...}
    changes   tasks with updated_at > since, by id                   cursor {"phase": "changes", "since": time, ...}

Label Studio updates a task's updated_at when an annotation is written, changed, skipped or deleted. `since` is the
latest updated_at that the project had when the previous pass began. Only timestamps of the server's application are
compared with one another, because the clocks of a proxy (the header `Date`), the database or this machine may differ.
The server's clock may go back, and a row may become visible long after its timestamp. Such changes are not later than
`since`, and a deleted task has no updated_at; compare.py finds both. Pages come in the order in which they were read,
so the later one is right whatever its versions say (`Page.latest`).

Bulk imports of predictions do not change updated_at. The cursor therefore stores the count and time of every foreign
model version. If a version is new or has grown, its tasks are read again. If one has shrunk or was replaced, everything
is read again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.annotations import Reading, count_answers, read_annotations, submitted
from hitl.connectors.label_studio.client import Client, NoAnswer, TaskPage, where
from hitl.connectors.label_studio.config import Form
from hitl.connectors.label_studio.controls import NotUnderstood, began_as_suggestion
from hitl.errors import BadSettings, Refused
from hitl.platform import AnnotationRow, AnnotatorRow, Cursor, ItemRow, Page, PredictionRow

NEVER = "1970-01-01T00:00:00.000000Z"
"""Time before the first change of any project."""
OURS = "hitl-"
"""Prefix of model versions that we write; they are not evidence."""
META = "hitl"
"""Key in the meta of a task that we created, for the user's own id."""
ID_PAGE = 10_000
"""Number of tasks per request if few fields are requested."""
_TASK = ("id", "data", "meta", "is_labeled", "overlap", "created_at", "updated_at")
_ANNOTATION = ("annotations", "result", "completed_by", "was_cancelled", "ground_truth", "lead_time", "updated_by")
_PREDICTION = ("predictions", "score", "model_version")

Json = Mapping[str, Any]


@dataclass
class State:
    """Cursor of a pull in progress; `save` returns its JSON form.

    Attributes:
        phase: "bulk" or "changes" (see above).
        since, began: latest timestamp of the project's tasks when the last pass began, and when this one began.
        after: highest task id read in this pass.
        moved: time when a change was last seen, by our clock, in seconds since the epoch.
        compared: time when the window was last compared, by our clock.
        floor: time of the server after which a change could still have been missed by then; "" if nothing was compared.
        whole: True if the pass has read everything, so that the window before `since` need not be compared.
        drift: how many more tasks, and annotations, Label Studio counts than it lists.
        models: foreign model version -> number of predictions and time of the latest.
        form: digest of the form with which the stored rows were read.
        imported: number of imported gold annotations so far in a first pull; None in later ones.
    """

    phase: str
    since: str
    after: int = 0
    began: str = ""
    moved: float = 0.0
    compared: float = 0.0
    floor: str = ""
    whole: bool = False
    drift: list[int] = field(default_factory=lambda: [0, 0])
    models: dict[str, list[Any]] = field(default_factory=dict)
    form: str = ""
    imported: int | None = None

    @classmethod
    def load(cls, cursor: Cursor) -> State:
        """Parse a cursor. Raises BadSettings for a cursor of another connector."""
        try:
            return cls(**cursor)
        except TypeError:
            raise BadSettings(
                "the saved cursor is not one of the Label Studio connector: run `hitl pull --full`"
            ) from None

    def save(self) -> Cursor:
        """Return the cursor, which has only JSON values."""
        return {**vars(self), "drift": list(self.drift), "models": dict(self.models)}


def pages(reader: Reader, cursor: Cursor | None) -> Iterator[Page]:
    """Yield pages from the cursor on. The next pull begins at the cursor of the last page.

    Raises Refused and Unreachable as the client does. Pages already yielded stay valid.
    """
    form = reader.form
    state = replace(reader.start(), imported=0) if cursor is None else State.load(cursor)
    if state.form not in ("", form.digest):  # the stored rows would now be read differently
        state = reader.start()
    state.form = form.digest
    if state.phase == "changes" and not state.after:
        state = reader.begin_changes(state)
    yield reader.people(state)
    yield from reader.everything(state) if state.phase == "bulk" else reader.changes(state)


def annotators(client: Client) -> tuple[AnnotatorRow, ...]:
    """Return all users of the server."""
    return tuple(AnnotatorRow(str(user["id"]), user.get("email") or f"user {user['id']}") for user in client.users())


class Reader:
    """One pull of one project."""

    def __init__(self, client: Client, project: int, form: Form, page_size: int) -> None:
        self.client = client
        self.project = project
        self.form = form
        self.page_size = page_size
        self.people_read: tuple[AnnotatorRow, ...] | None = None
        self.users: set[str] | None = None  # keys of users whose names are known; None: keep the stored names
        self.models: dict[str, list[Any]] | None = None  # foreign model versions when this pass over changes began
        self.listed: Json | None = None  # counts of tasks and annotations then, if no task had a later time

    def start(self) -> State:
        """Return the state of a pull from the beginning."""
        return State("bulk", since=_latest(self._listing()), models=self._models(), form=self.form.digest)

    def begin_changes(self, state: State) -> State:
        """Return the state of a pass over changes, or of a new bulk pass if models lost predictions."""
        listing, models = self._listing(), self._models()
        began = _latest(listing)
        for name, (count, latest) in state.models.items():
            now = models.get(name)
            if now is None or now[0] < count or (now[0] == count and now[1] != latest):
                return State("bulk", since=began, models=models, form=self.form.digest)
        state.began, self.models = began, models
        if began != state.since:
            state.moved = time.time()
        else:
            self.listed = listing
        return state

    def people(self, state: State) -> Page:
        """Read all users of the server. Keep the stored names if it does not list them."""
        try:
            rows = annotators(self.client)
        except (Refused, NoAnswer) as error:
            why = f"the list of users cannot be read, and annotators keep the names they had: {error}"
            return Page(cursor=state.save(), problems=(why,))
        self.people_read, self.users = rows, {row.key for row in rows}
        return Page(cursor=state.save(), annotators=rows)

    def everything(self, state: State) -> Iterator[Page]:
        """Read all tasks. The last page lists the existing tasks, unless the first part was read by an earlier pass."""
        seen: list[str] | None = [] if state.after == 0 else None
        done = 0
        for read in self._scan(state.after, with_predictions=bool(state.models)):
            total, live, problems = None if seen is None else done + read.total, None, []
            if state.imported is not None:
                state.imported += sum(is_imported(a) for task in read.tasks for a in task.get("annotations") or ())
            if seen is not None:
                seen.extend(str(task["id"]) for task in read.tasks)
            done += len(read.tasks)
            state.after = read.last or state.after
            if not read.more:
                problems = [imported_truth(state.imported)] if state.imported else []
                live = None if seen is None else frozenset(seen)
                moved, whole = time.time(), seen is not None
                state = State("changes", state.since, moved=moved, whole=whole, models=state.models, form=state.form)
            page = self._page(state, read.tasks)
            yield replace(page, live=live, total=total, problems=(*page.problems, *problems))

    def changes(self, state: State) -> Iterator[Page]:
        """Read the tasks that changed since the last pass, and those of foreign model versions that grew."""
        models = self._models() if self.models is None else self.models
        if state.began != state.since:
            for read in self._scan(state.after, [above(state.since)], with_predictions=bool(models)):
                state.after = read.last or state.after
                yield self._page(state, read.tasks)
        if grown := [name for name, now in models.items() if state.models.get(name) != now]:
            # This filter does not find versions without a name.
            versions = [] if "" in grown else [where("predictions_model_versions", "contains", "List", grown)]
            for read in self._scan(0, versions, with_predictions=True):
                once = {int(task["id"]): task for task in read.tasks}  # tasks are repeated for each matching prediction
                yield self._page(state, once.values())
        yield Page(cursor=replace(state, since=state.began, after=0, began="", whole=False, models=models).save())

    def again(self, state: State, tasks: Collection[int]) -> Iterator[Page]:
        """Read the current state of these tasks, leaving out deleted ones."""
        include, wanted = _include(bool(state.models)), sorted(tasks)
        for start in range(0, len(wanted), self.page_size):
            some = wanted[start : start + self.page_size]
            yield self._page(state, self.client.tasks_by_id(self.project, some, include).values())

    def _scan(self, after: int, filters: Sequence[Json] = (), *, with_predictions: bool) -> Iterator[TaskPage]:
        """Yield pages of tasks by id, while the next page is fetched in the background."""
        include = _include(with_predictions)

        def fetch(above: int) -> TaskPage:
            return self.client.tasks_page(self.project, include, after=above, filters=filters, page_size=self.page_size)

        with ThreadPoolExecutor(1, thread_name_prefix="hitl-pull") as pool:
            coming: Future[TaskPage] | None = pool.submit(fetch, after)
            while coming is not None:
                read = coming.result()
                coming = pool.submit(fetch, read.last) if read.more else None
                yield read

    def _page(self, state: State, tasks: Collection[Json]) -> Page:
        items: list[ItemRow] = []
        left: list[AnnotatorRow] = []
        problems: list[str] = []
        annotations: list[AnnotationRow] = []
        predictions: list[PredictionRow] = []
        for task in tasks:
            readings = read_annotations(self.form, task)
            items.append(_item(task, count_answers(readings)))
            for reading in readings:
                user = reading.annotator
                if user is not None and self.users is not None and user not in self.users:  # the annotator has left
                    self.users.add(user)
                    left.append(AnnotatorRow(user, f"user {user}", named=False))
                annotations += self._annotation(task, reading)
            for prediction in task.get("predictions") or ():
                predictions += self._prediction(task, prediction, problems)
        rows = (tuple(items), tuple(annotations), tuple(predictions), tuple(left))
        return Page(state.save(), *rows, problems=tuple(problems), latest=True)

    def _annotation(self, task: Json, reading: Reading) -> Iterator[AnnotationRow]:
        row, suggested = reading.row, began_as_suggestion(reading.row["result"])
        for question in self.form.questions:
            label = reading.answers.get(question.name)
            yield AnnotationRow(
                key=str(row["id"]),
                item=str(task["id"]),
                question=question.name,
                annotator=reading.annotator,
                label=label,
                kind=reading.kind(question.name),
                version=row["updated_at"],
                created=row["created_at"],
                duration=reading.seconds,
                suggested=suggested,
                note=None
                if label is None and reading.answers
                else reading.note,  # a repair says nothing of open questions
            )

    def _prediction(self, task: Json, prediction: Json, problems: list[str]) -> Iterator[PredictionRow]:
        model = prediction.get("model_version") or "undefined"
        if model.startswith(OURS):
            return
        try:
            answers = self.form.read_prediction(prediction.get("result"), prediction.get("score"))
        except NotUnderstood as error:
            problems.append(f"task {task['id']}, prediction of {model!r}: {error}")
            return
        for question, probabilities in answers.items():
            yield PredictionRow(str(task["id"]), question, model, probabilities)

    def _models(self) -> dict[str, list[Any]]:
        """Return foreign model version -> [count, time of the latest prediction]; "" is the version without a name."""
        listed = self.client.get(f"/api/projects/{self.project}/model-versions/", replies.MODELS, extended="true")
        return {
            entry["model_version"] or "": [int(entry["count"]), str(entry["latest"])]
            for entry in listed["static"]
            if not (entry["model_version"] or "").startswith(OURS)
        }

    def _listing(self) -> dict[str, Any]:
        return first_listed(self.client, self.project, [], ["-tasks:updated_at"])


def _include(with_predictions: bool) -> tuple[str, ...]:
    return (*_TASK, *_ANNOTATION, *(_PREDICTION if with_predictions else ()))


def _latest(listing: Json) -> str:
    latest = listing["tasks"]
    return stamp(datetime.fromisoformat(latest[0]["updated_at"])) if latest else NEVER


def first_listed(client: Client, project: int, filters: Sequence[Json], ordering: Sequence[str] = ()) -> dict[str, Any]:
    """Return the first task that passes the filters, in this order, and the numbers of tasks and annotations."""
    query = {"filters": {"conjunction": "and", "items": [*filters]}, "ordering": [*ordering]}
    asked = {"fields": "all", "include": "id,updated_at", "query": json.dumps(query, separators=(",", ":"))}
    page: dict[str, Any] = client.get("/api/tasks", replies.LISTED, project=project, page=1, page_size=1, **asked)
    return page


def stamp(when: datetime) -> str:
    """Format a time in the only way that Label Studio's filters accept."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def above(since: str) -> dict[str, object]:
    """Return the filter for tasks with a later updated_at."""
    return where("updated_at", "greater", "Datetime", stamp(datetime.fromisoformat(since)))


def up_to(until: str) -> dict[str, object]:
    """Return the filter for tasks with this updated_at or an earlier one."""
    return where("updated_at", "less_or_equal", "Datetime", stamp(datetime.fromisoformat(until)))


def _item(task: Json, answers: int) -> ItemRow:
    return ItemRow(
        key=str(task["id"]),
        data=task["data"],
        version=task["updated_at"],
        labels_wanted=max(answers + int(task["overlap"]) - submitted(task), 1),
        closed=bool(task["is_labeled"]),
        ref=added_as(task),
    )


def is_imported(annotation: Json) -> bool:
    """Return True for imported ground truth: every other way to write an annotation records its user."""
    return bool(annotation.get("ground_truth")) and annotation.get("updated_by") is None


def imported_truth(count: int) -> str:
    """Explain that `count` annotations are ground truth because of how they were imported, and what to do about it."""
    are = "annotation is" if count == 1 else "annotations are"
    return (
        f"{count:,} imported {are} taken as gold (ground truth), because Label Studio marks imports as such unless "
        'they say "ground_truth": false. If they are answers by annotators, unset it or import them again (guide: Give '
        "ground truth)"
    )


def added_as(task: Json) -> str | None:
    """Return the user's own id of a task that `hitl add` made, or None."""
    meta = task.get("meta")
    key = meta.get(META) if isinstance(meta, dict) else None
    return None if key is None else str(key)
