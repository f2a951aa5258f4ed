"""Read a project: everything once, then what changed.

    bulk      tasks in order of their ids                            cursor {"phase": "bulk", "after": id, ...}
    changes   tasks with updated_at > since, by id                   cursor {"phase": "changes", "since": time, ...}

Label Studio moves a task's updated_at when an annotation is written, changed, skipped or deleted. `since` is the
largest updated_at that the project had when the previous pass began. Only stamps of one clock are compared with one
another: those of the server's application. The clock of a proxy (the header `Date`), of the database or of this machine
may say anything.

That clock may go back, and a row may become visible long after its stamp. Both leave something behind that is not
above `since`, and so do deleted tasks: `compare` finds it. Pages come in the order in which they were read, so the
later one is right whatever its versions say (`Page.latest`).

Predictions that were imported in bulk do not move updated_at. The cursor keeps count and time of every foreign model
version. New or more: the tasks of that version are read again. Fewer, or replaced: everything is.
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
from hitl.connectors.label_studio.answers import Answers, NotUnderstood, began_as_suggestion
from hitl.connectors.label_studio.client import Client, NoAnswer, TaskPage, where
from hitl.connectors.label_studio.form import Form
from hitl.errors import BadSettings, Refused
from hitl.kinds.kind import kind_of
from hitl.platform import (
    AnnotationKind,
    AnnotationRow,
    AnnotatorRow,
    Cursor,
    ItemRow,
    Page,
    PredictionRow,
)

NEVER = "1970-01-01T00:00:00.000000Z"
"""Before the first change of any project."""
OURS = "hitl-"
"""Model versions that we write begin with this; they are not evidence."""
META = "hitl"
"""Where the meta of a task that we made keeps the user's own id."""
ID_PAGE = 5000
"""Tasks a request where little is asked of each."""
_TASK = ("id", "data", "meta", "is_labeled", "overlap", "created_at", "updated_at")
_ANNOTATION = ("annotations", "result", "completed_by", "was_cancelled", "ground_truth", "lead_time", "updated_by")
_PREDICTION = ("predictions", "score", "model_version")


@dataclass
class State:
    """The cursor while a pull runs; `save` gives its JSON form.

    `since` and `began` are stamps of the project's tasks: the largest when the last pass, and this one, began. `moved`
    is when a change was last seen, by our clock, in seconds since the epoch. `whole`: the pass has read everything, so
    that nothing has to be compared yet. `drift`: how many more tasks and annotations Label Studio counts than it lists.
    `form`: the digest of the form by which was read what is stored. `imported`: known truth that came with an import,
    counted in a first pull.
    """

    phase: str
    since: str
    after: int = 0
    began: str = ""
    moved: float = 0.0
    whole: bool = False
    drift: list[int] = field(default_factory=lambda: [0, 0])
    models: dict[str, list[Any]] = field(default_factory=dict)
    form: str = ""
    imported: int | None = None

    @classmethod
    def load(cls, cursor: Cursor) -> State:
        """Raises BadSettings for a cursor of another connector."""
        try:
            return cls(**cursor)
        except (KeyError, TypeError, ValueError):
            raise BadSettings(
                "the saved cursor is not one of the Label Studio connector: run `hitl pull --full`"
            ) from None

    def save(self) -> Cursor:
        """JSON values."""
        return {**vars(self), "drift": list(self.drift), "models": dict(self.models)}


def pages(client: Client, project: int, form: Form, cursor: Cursor | None, page_size: int) -> Iterator[Page]:
    """Pages of the project from the cursor on; the last one's cursor is where the next pull begins.

    Raises Refused and Unreachable as the client does; the pages before stay valid.
    """
    reader = Reader(client, project, form, page_size)
    state = replace(reader.start(), imported=0) if cursor is None else State.load(cursor)
    if state.form not in ("", form.digest):  # what was read is read otherwise now
        state = reader.start()
    state.form = form.digest
    if state.phase == "changes" and not state.after:
        state = reader.begin_changes(state)
    yield reader.people(state)
    yield from reader.everything(state) if state.phase == "bulk" else reader.changes(state)


def annotators(client: Client) -> tuple[AnnotatorRow, ...]:
    """All users of the server."""
    return tuple(AnnotatorRow(str(user["id"]), user.get("email") or f"user {user['id']}") for user in client.users())


class Reader:
    """One pull of one project."""

    def __init__(self, client: Client, project: int, form: Form, page_size: int) -> None:
        self.client = client
        self.project = project
        self.form = form
        self.page_size = page_size
        self.known: set[str] | None = None  # users whose names are known; None: the stored names stay

    def start(self) -> State:
        """The state of a pull from the beginning."""
        return State("bulk", since=self._latest(), models=self._models(), form=self.form.digest)

    def begin_changes(self, state: State) -> State:
        """The state of a new pass over what changed, or of a new bulk pass when models lost predictions."""
        began, models = self._latest(), self._models()
        if any(_lost(known, models.get(name)) for name, known in state.models.items()):
            return State("bulk", since=began, models=models, form=self.form.digest)
        state.began = began
        if state.began != state.since:
            state.moved = time.time()
        return state

    def people(self, state: State) -> Page:
        """All who may annotate; where the server lists no user the stored names stay."""
        try:
            rows = annotators(self.client)
        except (Refused, NoAnswer) as error:
            why = f"the list of users cannot be read, and annotators keep the names they had: {error}"
            return Page(cursor=state.save(), problems=(why,))
        self.known = {row.key for row in rows}
        return Page(cursor=state.save(), annotators=rows)

    def everything(self, state: State) -> Iterator[Page]:
        """The bulk pass. Its last page tells which tasks live, unless the first part was read by a pass before."""
        seen: list[str] | None = [] if state.after == 0 else None
        done = 0
        for read in self._scan(state.after, with_predictions=bool(state.models)):
            total = done + read.total if seen is not None else None
            rows = self._rows(read)
            if state.imported is not None:
                state.imported += sum(is_imported(a) for task in read.tasks for a in task.get("annotations") or ())
            if seen is not None:
                seen.extend(item.key for item in rows.items)
            done += len(read.tasks)
            state.after = read.last or state.after
            live = None
            if not read.more:
                rows.problems += [imported_truth(state.imported)] if state.imported else []
                live = None if seen is None else frozenset(seen)
                moved, whole = time.time(), seen is not None
                state = replace(
                    state, phase="changes", after=0, began="", moved=moved, whole=whole, drift=[0, 0], imported=None
                )
            yield _page(state, rows, live, total)

    def changes(self, state: State) -> Iterator[Page]:
        """What changed since the last pass."""
        models = self._models()
        if state.began != state.since:
            for read in self._scan(state.after, [above(state.since)], with_predictions=bool(models)):
                state.after = read.last or state.after
                yield _page(state, self._rows(read))
        yield from self._new_predictions(state, models)
        yield Page(cursor=replace(state, since=state.began, after=0, began="", whole=False, models=models).save())

    def again(self, state: State, tasks: Collection[int]) -> Iterator[Page]:
        """These tasks as they are now; those that are gone are left out."""
        include = (*_TASK, *_ANNOTATION, *(_PREDICTION if state.models else ()))
        wanted = sorted(tasks)
        for start in range(0, len(wanted), self.page_size):
            found = self.client.tasks_by_id(self.project, wanted[start : start + self.page_size], include)
            yield _page(state, self._rows(TaskPage(list(found.values()), len(found))))

    def _new_predictions(self, state: State, models: Mapping[str, list[Any]]) -> Iterator[Page]:
        """Tasks of the foreign model versions that grew; Label Studio does not count these as changed."""
        grown = [name for name, now in models.items() if state.models.get(name) != now]
        if not grown:
            return
        versions = where("predictions_model_versions", "contains", "List", grown)  # which finds none without a name
        for read in self._scan(0, [] if "" in grown else [versions], with_predictions=True):
            once = {int(task["id"]): task for task in read.tasks}  # a task comes once for each prediction that matches
            yield _page(state, self._rows(TaskPage(list(once.values()), read.total)))

    def _scan(
        self, after: int, filters: Sequence[Mapping[str, object]] = (), *, with_predictions: bool
    ) -> Iterator[TaskPage]:
        """Pages of tasks by id; the next one is fetched while the current one is worked on."""
        include = (*_TASK, *_ANNOTATION, *(_PREDICTION if with_predictions else ()))

        def fetch(above: int) -> TaskPage:
            return self.client.tasks_page(self.project, include, after=above, filters=filters, page_size=self.page_size)

        with ThreadPoolExecutor(1, thread_name_prefix="hitl-pull") as pool:
            coming: Future[TaskPage] | None = pool.submit(fetch, after)
            while coming is not None:
                read = coming.result()
                coming = pool.submit(fetch, read.last) if read.more else None
                yield read

    def _rows(self, read: TaskPage) -> _Rows:
        rows = _Rows()
        for task in read.tasks:
            rows.items.append(_item(self.form, task))
            for annotation in task.get("annotations") or ():
                self._add_annotation(rows, task, annotation)
            for prediction in task.get("predictions") or ():
                self._add_prediction(rows, task, prediction)
        return rows

    def _add_annotation(self, rows: _Rows, task: Mapping[str, Any], annotation: Mapping[str, Any]) -> None:
        person = self._person(rows, _user(annotation))
        answers, error = read_answers(self.form, annotation)
        if error is not None:
            rows.problems.append(
                f"task {task['id']}, annotation {annotation['id']}: {error}; it counts as a skip, and its annotator is "
                "not asked again: fix or delete it in Label Studio"
            )
        rows.problems += _outside(self.form, task, annotation, answers)
        stated: AnnotationKind = "gold" if annotation.get("ground_truth") else "answer"
        suggested = began_as_suggestion(annotation["result"])
        for question in self.form.questions:
            label = answers.get(question.name)
            rows.annotations.append(
                AnnotationRow(
                    key=str(annotation["id"]),
                    item=str(task["id"]),
                    question=question.name,
                    annotator=person,
                    label=label,
                    kind="skip" if label is None else stated,
                    version=annotation["updated_at"],
                    created=annotation["created_at"],
                    duration=annotation.get("lead_time"),
                    suggested=suggested,
                )
            )

    def _person(self, rows: _Rows, completed_by: object) -> str | None:
        if completed_by is None:
            return None
        key = str(completed_by)
        if self.known is not None and key not in self.known:  # an annotator who has left
            self.known.add(key)
            rows.annotators.append(AnnotatorRow(key, f"user {key}"))
        return key

    def _add_prediction(self, rows: _Rows, task: Mapping[str, Any], prediction: Mapping[str, Any]) -> None:
        model = prediction.get("model_version") or "undefined"
        if model.startswith(OURS):
            return
        try:
            said = self.form.read_prediction(prediction.get("result"), prediction.get("score"))
        except NotUnderstood as error:
            rows.problems.append(f"task {task['id']}, prediction of {model!r}: {error}")
            return
        for question, probabilities in said.items():
            rows.predictions.append(PredictionRow(str(task["id"]), question, model, probabilities))

    def _models(self) -> dict[str, list[Any]]:
        """Foreign model versions: name -> [count, time of the latest prediction]; "" are those without a name."""
        listed = self.client.get(f"/api/projects/{self.project}/model-versions/", replies.MODELS, extended="true")
        return {
            entry["model_version"] or "": [int(entry["count"]), str(entry["latest"])]
            for entry in listed["static"]
            if not (entry["model_version"] or "").startswith(OURS)
        }

    def _latest(self) -> str:
        """The largest updated_at of the project's tasks."""
        latest = listed(self.client, self.project, [], ["-tasks:updated_at"])["tasks"]
        return stamp(datetime.fromisoformat(latest[0]["updated_at"])) if latest else NEVER


def listed(
    client: Client, project: int, filters: Sequence[Mapping[str, object]], ordering: Sequence[str] = ()
) -> dict[str, Any]:
    """The first of the tasks that pass the filters, in this order, and how many there are of them and their rows."""
    query = {"filters": {"conjunction": "and", "items": [*filters]}, "ordering": [*ordering]}
    asked = {"fields": "all", "include": "id,updated_at", "query": json.dumps(query, separators=(",", ":"))}
    found: dict[str, Any] = client.get("/api/tasks", replies.LISTED, project=project, page=1, page_size=1, **asked)
    return found


def above(since: str) -> dict[str, object]:
    """The filter of tasks whose updated_at is later."""
    return where("updated_at", "greater", "Datetime", stamp(datetime.fromisoformat(since)))


def up_to(until: str) -> dict[str, object]:
    """The filter of tasks whose updated_at is not later."""
    return where("updated_at", "less_or_equal", "Datetime", stamp(datetime.fromisoformat(until)))


@dataclass
class _Rows:
    """The rows of one page while they are gathered, by the fields of `Page`."""

    items: list[ItemRow] = field(default_factory=list)
    annotations: list[AnnotationRow] = field(default_factory=list)
    predictions: list[PredictionRow] = field(default_factory=list)
    annotators: list[AnnotatorRow] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _page(state: State, rows: _Rows, live: frozenset[str] | None = None, total: int | None = None) -> Page:
    gathered: dict[str, Any] = {name: tuple(found) for name, found in vars(rows).items()}
    return Page(state.save(), live=live, total=total, latest=True, **gathered)


def _item(form: Form, task: Mapping[str, Any]) -> ItemRow:
    return ItemRow(
        key=str(task["id"]),
        data=task["data"],
        version=task["updated_at"],
        labels_wanted=max(answers(form, task) + int(task["overlap"]) - submitted(task), 1),
        closed=bool(task["is_labeled"]),
        ref=added_as(task),
    )


def is_imported(annotation: Mapping[str, Any]) -> bool:
    """Whether it is known truth and came with an import: whatever else writes an annotation leaves its user."""
    return bool(annotation.get("ground_truth")) and annotation.get("updated_by") is None


def imported_truth(count: int) -> str:
    """What is known truth only because of how it was imported, and what to do."""
    are = "annotation is" if count == 1 else "annotations are"
    return (
        f"{count:,} imported {are} known truth and no answers of annotators, as Label Studio takes them unless an "
        'import says "ground_truth": false. If they are answers, import them again with it, or unset it (guide: Give '
        "known truth)"
    )


def added_as(task: Mapping[str, Any]) -> str | None:
    """The user's own id of a task that `hitl add` made; None of any other."""
    meta = task.get("meta")
    key = meta.get(META) if isinstance(meta, dict) else None
    return None if key is None else str(key)


def read_answers(form: Form, annotation: Mapping[str, Any]) -> tuple[Answers, NotUnderstood | None]:
    """Question -> label of an annotation; nothing where it is a skip, or cannot be read, and then why."""
    if annotation.get("was_cancelled"):
        return {}, None
    try:
        return form.read(annotation["result"]), None
    except NotUnderstood as error:
        return {}, error


def submitted(task: Mapping[str, Any]) -> int:
    """What Label Studio compares with the overlap: annotations that are no skips, several of one annotator too."""
    return sum(not annotation.get("was_cancelled") for annotation in task.get("annotations") or ())


def answers(form: Form, task: Mapping[str, Any]) -> int:
    """The answers that count here: how many annotators gave one that can be read (ground truth does not count).

    Annotations without a user, as of one who was deleted, count one by one, as they do in the evidence.
    """
    given = [a for a in task.get("annotations") or () if not a.get("ground_truth")]
    users = [_user(a) for a in given if any(label is not None for label in read_answers(form, a)[0].values())]
    return len({*users} - {None}) + users.count(None)


def _outside(form: Form, task: Mapping[str, Any], annotation: Mapping[str, Any], answers: Answers) -> Iterator[str]:
    """Yield a line for each marked part that is left out, such as a span that reaches beyond the text of its task."""
    for question in form.questions:
        label = answers.get(question.name)
        for line in [] if label is None else kind_of(question).left_out(label, task["data"].get(question.field)):
            yield f"task {task['id']}, annotation {annotation['id']}: {line}"


def _user(annotation: Mapping[str, Any]) -> object:
    by = annotation.get("completed_by")
    return by.get("id") if isinstance(by, dict) else by


def stamp(when: datetime) -> str:
    """A time as Label Studio writes it."""
    # Label Studio's filter wants exactly this form.
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _lost(known: Sequence[Any], now: Sequence[Any] | None) -> bool:
    """Whether a model version has fewer predictions than before, or others in their place."""
    return now is None or now[0] < known[0] or (now[0] == known[0] and now[1] != known[1])
