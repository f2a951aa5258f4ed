"""Read a project: everything once, then what changed.

    bulk      tasks in order of their ids                            cursor {"phase": "bulk", "after": id, ...}
    changes   tasks with updated_at > since - 30 s, by id            cursor {"phase": "changes", "since": time, ...}

`since` is the server's clock when the previous pass began; the 30 s cover requests that were being written then.
Label Studio moves a task's updated_at when an annotation is written, changed, skipped or deleted. Two things it
does not show there:

Deleted tasks. The cursor keeps `tasks`, how many tasks were handed over and still exist as far as known, and
`last`, the highest id among them. A task above `last` is new and adds one. When the project then holds another
number of tasks, some were deleted, and a sweep over the ids tells which (Page.live). One case is not decided by
counting: a task at or below `last` that was created inside the window may be new (ids can be committed out of
order) or known; then the sweep is made without asking. So no deletion is lost: an uncounted addition can hide one
only if it is such a task.

Predictions that were imported in bulk. The cursor keeps count and time of every foreign model version. New or
more: the tasks of that version are read again. Fewer, or replaced: everything is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hitl.connectors.label_studio.answers import Answers, NotUnderstood
from hitl.connectors.label_studio.client import Client, TaskPage, where
from hitl.connectors.label_studio.form import Form
from hitl.errors import BadSettings
from hitl.exchange import AnnotationRow, AnnotatorRow, Cursor, ItemRow, Kind, Page, PredictionRow, spans_in
from hitl.texts.marked_labels import number_of

OVERLAP = timedelta(seconds=30)
OURS = "hitl-"
"""Model versions that we write begin with this; they are not evidence."""
META = "hitl"
"""Where the meta of a task that we made keeps the user's own id."""
ID_PAGE = 5000
_TASK = ("id", "data", "meta", "is_labeled", "overlap", "created_at", "updated_at")
_ANNOTATION = ("annotations", "result", "completed_by", "was_cancelled", "ground_truth", "lead_time")
_PREDICTION = ("predictions", "score", "model_version")


@dataclass
class State:
    """The cursor while a pull runs; `save` gives its JSON form."""

    phase: str
    since: str
    after: int = 0
    tasks: int = 0
    last: int = 0
    began: str = ""
    sweep: bool = False
    models: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, cursor: Cursor) -> State:
        """Raises BadSettings for a cursor of another connector or version."""
        try:
            if cursor["version"] != 1:
                raise KeyError("version")
            return cls(**{name: value for name, value in cursor.items() if name != "version"})
        except (KeyError, TypeError):
            raise BadSettings(
                "the saved cursor is not one of the Label Studio connector: pull from the start"
            ) from None

    def save(self) -> Cursor:
        """JSON values."""
        return {"version": 1, **vars(self), "models": dict(self.models)}


def pages(client: Client, project: int, form: Form, cursor: Cursor | None, page_size: int) -> Iterator[Page]:
    """Pages of the project from the cursor on; the last one's cursor is where the next pull begins.

    Raises Refused and Unreachable as the client does; the pages before stay valid.
    """
    reader = _Reader(client, project, form, page_size)
    state = reader.start() if cursor is None else State.load(cursor)
    if state.phase == "changes" and not state.after:
        state = reader.begin_changes(state)
    yield reader.people(state)
    yield from reader.everything(state) if state.phase == "bulk" else reader.changes(state)


def annotators(client: Client) -> tuple[AnnotatorRow, ...]:
    """All users of the server."""
    return tuple(AnnotatorRow(str(user["id"]), user.get("email") or f"user {user['id']}") for user in client.users())


class _Reader:
    """One pull of one project."""

    def __init__(self, client: Client, project: int, form: Form, page_size: int) -> None:
        self.client = client
        self.project = project
        self.form = form
        self.page_size = page_size
        self.known: set[str] = set()

    def start(self) -> State:
        """The state of a pull from the beginning."""
        return State("bulk", since=self._now(), models=self._models())

    def begin_changes(self, state: State) -> State:
        """The state of a new pass over what changed, or of a new bulk pass when models lost predictions."""
        began, models = self._now(), self._models()
        if any(_lost(known, models.get(name)) for name, known in state.models.items()):
            return State("bulk", since=began, models=models)
        state.began = began
        return state

    def people(self, state: State) -> Page:
        """All who may annotate."""
        rows = annotators(self.client)
        self.known = {row.key for row in rows}
        return Page(cursor=state.save(), annotators=rows)

    def everything(self, state: State) -> Iterator[Page]:
        """The bulk pass. Its last page tells which tasks live."""
        seen: list[str] | None = [] if state.after == 0 else None
        for read in self._scan(state.after, with_predictions=bool(state.models)):
            total = state.tasks + read.total
            rows = self._rows(read)
            if seen is not None:
                seen.extend(item.key for item in rows.items)
            state.tasks += len(read.tasks)
            state.after = state.last = read.last or state.last
            live = None
            if not read.more:
                # A resumed pass does not remember the ids of its first part.
                live = frozenset(seen) if seen is not None else self._sweep(state)
                state = State("changes", since=state.since, tasks=state.tasks, last=state.last, models=state.models)
            yield _page(state, rows, live, total)

    def changes(self, state: State) -> Iterator[Page]:
        """What changed since the last pass; ends with the live tasks when some may be gone."""
        since = datetime.fromisoformat(state.since) - OVERLAP
        changed = where("updated_at", "greater", "Datetime", _stamp(since))
        models = self._models()
        for read in self._scan(state.after, [changed], with_predictions=bool(models)):
            for task in read.tasks:
                if int(task["id"]) > state.last:
                    state.tasks += 1
                elif datetime.fromisoformat(task["created_at"]) > since:
                    state.sweep = True
            state.after = read.last or state.after  # `last` stays: new is what lies above the pass before
            yield _page(state, self._rows(read))
        yield from self._new_predictions(state, models)
        yield self._end_of_changes(state, models)

    def _end_of_changes(self, state: State, models: dict[str, list[Any]]) -> Page:
        last = max(state.last, state.after)
        done = State("changes", since=state.began, tasks=state.tasks, last=last, models=models)
        live = None
        if state.sweep or state.tasks != self._number_of_tasks():
            live = self._sweep(done)
        return Page(cursor=done.save(), live=live)

    def _new_predictions(self, state: State, models: Mapping[str, list[Any]]) -> Iterator[Page]:
        """Tasks of the foreign model versions that grew; Label Studio does not count these as changed."""
        grown = [name for name, now in models.items() if state.models.get(name) != now]
        if not grown:
            return
        versions = where("predictions_model_versions", "contains", "List", grown)
        for read in self._scan(0, [versions], with_predictions=True):
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
            again = "counts as a skip, and its annotator is not asked again"
            rows.problems.append(f"task {task['id']}, annotation {annotation['id']}: {error}; it {again}")
        rows.problems += _outside(self.form, task, annotation, answers)
        stated: Kind = "gold" if annotation.get("ground_truth") else "answer"
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
                )
            )

    def _person(self, rows: _Rows, completed_by: object) -> str | None:
        if completed_by is None:
            return None
        key = str(completed_by)
        if key not in self.known:  # an annotator who has left
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
        """Foreign model versions: name -> [count, time of the latest prediction]."""
        listed = self.client.get(f"/api/projects/{self.project}/model-versions/", extended="true")
        return {
            str(entry["model_version"]): [int(entry["count"]), str(entry["latest"])]
            for entry in listed.get("static", ())
            if not str(entry["model_version"]).startswith(OURS)
        }

    def _number_of_tasks(self) -> int:
        return self.client.tasks_page(self.project, ("id",), page_size=1).total

    def _sweep(self, state: State) -> frozenset[str]:
        """Ids of all tasks. Counts in the state those that were handed over."""
        ids = [int(task["id"]) for task in self.client.tasks(self.project, ("id",), page_size=ID_PAGE)]
        state.tasks = sum(number <= state.last for number in ids)
        return frozenset(map(str, ids))

    def _now(self) -> str:
        """The server's clock, before anything of the pass is read."""
        return _stamp(self.client.now())


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
    return Page(state.save(), live=live, total=total, **gathered)


def _item(form: Form, task: Mapping[str, Any]) -> ItemRow:
    return ItemRow(
        key=str(task["id"]),
        data=task["data"],
        version=task["updated_at"],
        labels_wanted=max(answers(form, task) + int(task["overlap"]) - submitted(task), 1),
        closed=bool(task["is_labeled"]),
        ref=added_as(task),
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
    """The answers that count here: of how many annotators one can be read (ground truth is none)."""
    given = [a for a in task.get("annotations") or () if not a.get("ground_truth")]
    return len({_user(a) for a in given if any(label is not None for label in read_answers(form, a)[0].values())})


def _outside(form: Form, task: Mapping[str, Any], annotation: Mapping[str, Any], answers: Answers) -> Iterator[str]:
    """A line for each span that reaches beyond the text of its task, and each stretch of time of no length."""
    for question in form.questions:
        label, text = answers.get(question.name), task["data"].get(question.text)
        for start, end, kind in spans_in(label) if question.line is not None and label is not None else ():
            if number_of(start) >= number_of(end):
                yield (
                    f"task {task['id']}, annotation {annotation['id']}: {kind!r} from {start} to {end} is no stretch "
                    "of time; it is left out"
                )
        if question.text is None or label is None or not isinstance(text, str):
            continue
        for start, end, kind in spans_in(label):
            if end > len(text):
                yield (
                    f"task {task['id']}, annotation {annotation['id']}: {kind!r} from {start} to {end} reaches beyond "
                    f"the text, which has {len(text)} characters; this span is left out"
                )


def _user(annotation: Mapping[str, Any]) -> object:
    by = annotation.get("completed_by")
    return by.get("id") if isinstance(by, dict) else by


def _stamp(time: datetime) -> str:
    # Label Studio's filter wants exactly this form.
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _lost(known: Sequence[Any], now: Sequence[Any] | None) -> bool:
    """Whether a model version has fewer predictions than before, or others in their place."""
    return now is None or now[0] < known[0] or (now[0] == known[0] and now[1] != known[1])
