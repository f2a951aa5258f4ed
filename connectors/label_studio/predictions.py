"""Push the order in which tasks are served, and the consensus: both travel as predictions.

Predictions are the only thing Label Studio takes in bulk, and it has no upsert. So each state is a model version
named after its content, "hitl-order-<mark of the store>-<digest>", and is swapped in: import the new one, move the
project's model_version, verify it, delete the old ones. A crash anywhere in between is repaired by doing it again.

The order: predictions with an empty result, whose score rises with the rank. Under "Uncertainty sampling" Label
Studio serves the lowest score of the project's model_version first (and random tasks, silently, when
model_version is not exactly that). The consensus is never the active version: annotators would be shown it, and
their answers would no longer be independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.form import Form
from hitl.errors import BadSettings, Refused
from hitl.kinds.kind import kind_of
from hitl.platform import Operation, Question, Receipt

ORDER = "hitl-order-"
MARK_ENDS = "-"
"""Between the mark of the store that an order is from and its digest; neither has it."""
CONSENSUS = "hitl-consensus-"
HIDE = "show_collab_predictions"
"""The project's setting that shows annotators predictions where it is true."""
TITLE = "hitl"
"""Title of hitl's model backend before there is an order; it follows the order then (backends.py)."""
SAMPLING = "Uncertainty sampling"
BATCH = 10_000
"""Predictions per request: large, because each import makes Label Studio count anew for all tasks of the project."""
TRIES = 3
"""Predictions that arrive several times each are imported so often."""

Row = dict[str, Any]


def order(versions: Versions, client: Client, project: int, operation: Operation) -> Receipt:
    """Serve these items first to last, before all others.

    With no items a single prediction stands in for the order: a project without a model_version would show
    annotators every prediction there is, the consensus among them.
    """
    by = operation.payload.get("by")
    name = f"{ORDER}{by}{MARK_ENDS}{operation.digest}" if by else ORDER + operation.digest
    changed = _prepare(client, project)
    planned, missing = existing(client, project, [{"task": task} for task in task_ids(operation.payload["items"])])
    served = planned or [{"task": int(task["id"])} for task in client.tasks_page(project, ("id",), page_size=1).tasks]
    rows = [
        row | {"result": [], "score": rank / len(served) if planned else 1.0, "model_version": name}
        for rank, row in enumerate(served)
    ]
    if rows:
        changed += versions.make(name, rows)
        changed += _activate(client, project, name, hidden=not any(map(is_ours, versions.backends)))
    changed += versions.delete(ORDER, keep=name if rows else None)
    return Receipt(operation, changed, detail_of(len(planned), "in order", missing))


def consensus(form: Form, versions: Versions, client: Client, project: int, operation: Operation) -> Receipt:
    """Show the consensus beside the tasks, as predictions that are not given to annotators."""
    name = CONSENSUS + operation.digest
    by_item: dict[str, dict[str, Mapping[str, Any]]] = {}
    for question, answers in operation.payload["questions"].items():
        for answer in answers:
            by_item.setdefault(str(answer["item"]), {})[question] = answer
    asked = {question.name: question for question in form.questions}
    if gone := operation.payload["questions"].keys() - asked.keys():
        raise BadSettings(f"{min(gone)!r} is no question of {form.name}")
    all_rows = [
        {
            "task": task_ids([item])[0],
            "result": form.write(
                {name: label_of(asked[name], answer) for name, answer in answers.items()},
                {name: _probabilities(asked[name], answer) for name, answer in answers.items()},
            ),
            "score": score_of(answers),
            "model_version": name,
        }
        for item, answers in by_item.items()
    ]
    rows, missing = existing(client, project, all_rows)
    changed = 0
    if rows:
        changed += versions.make(name, rows)
        if versions.active().startswith(CONSENSUS):
            client.patch(f"/api/projects/{project}/", {"model_version": ""})
            changed += 1
    changed += versions.delete(CONSENSUS, keep=name if rows else None)
    return Receipt(operation, changed, detail_of(len(rows), "with a consensus", missing))


class Versions:
    """The model versions of a project's predictions.

    `whole` compares what is there under a name as a whole. A count is far quicker, and enough where only pushes
    write these predictions.
    """

    def __init__(self, client: Client, project: int, *, whole: bool = False) -> None:
        self.client = client
        self.project = project
        self.whole = whole
        self.path = f"/api/projects/{project}/model-versions/"

    def counts(self) -> dict[str, int]:
        """Return version -> number of predictions."""
        counts: dict[str, int] = self.client.get(self.path, replies.COUNTS)
        return counts

    def active(self) -> str:
        """Return the project's active version."""
        return str(self.client.project(self.project).get("model_version") or "")

    def make(self, name: str, rows: Sequence[Row]) -> int:
        """Have exactly these predictions under the name; return how many had to be written.

        What Label Studio has afterwards is what counts, not its answer: a request may be carried out twice on its way.
        Raises Refused when Label Studio drops some (it does so without an error), or has them several times.
        """
        found = self.counts().get(name, 0)
        if found == len(rows) and not (self.whole and self._differs(name, rows)):
            return 0
        for _ in range(TRIES):
            if found:  # what a crash has left, or a request that came twice
                self.remove(name)
            created = self.send(rows)
            if created != len(rows):
                self.remove(name)
                raise Refused(
                    f"Label Studio dropped {len(rows) - created} of {len(rows)} predictions of {name} without saying "
                    "why: was the labeling configuration changed meanwhile? Pull and try again"
                )
            found = self.counts().get(name, 0)
            if found == len(rows):
                return found
        self.remove(name)
        raise Refused(
            f"Label Studio has {found} predictions of {name} where {len(rows)} were sent, {TRIES} times: does a proxy "
            "between it and hitl send requests twice? Fix that, and push again"
        )

    def _differs(self, name: str, rows: Sequence[Row]) -> bool:
        """Return True if the predictions of that name, which are as many, are others or stand at other tasks."""
        include = ("id", "predictions", "model_version", "score", "result")
        tasks = self.client.tasks_by_id(self.project, [row["task"] for row in rows], include)
        for row in rows:
            predictions = tasks.get(row["task"], {}).get("predictions") or ()
            same = [(one["score"], one["result"]) for one in predictions if one["model_version"] == name]
            if same != [(row["score"], row["result"])]:
                return True
        return False

    def send(self, rows: Sequence[Row]) -> int:
        """Import these predictions, of one version or several; return how many Label Studio says it took."""
        path = f"/api/projects/{self.project}/import/predictions"
        parts = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        return sum(self.client.post(path, part, replies.CREATED)["created"] for part in parts)

    def delete(self, prefix: str, keep: str | None = None) -> int:
        """Delete the versions that begin with the prefix; return how many there were."""
        old = self._begin_with(prefix, keep)
        for name in old:
            self.remove(name)
        if old and self._begin_with(prefix, keep):
            raise Refused(f"Label Studio keeps predictions of {old[0]} that were to be deleted: push again")
        return len(old)

    def _begin_with(self, prefix: str, keep: str | None) -> list[str]:
        return [name for name in self.counts() if name.startswith(prefix) and name != keep]

    def remove(self, name: str) -> None:
        """Delete one version.

        Label Studio empties the project's active version with any that is deleted, as long as it is a backend's title;
        it is restored.
        """
        active = self.active() if self.backends else None
        self.client.delete(self.path, {"model_version": name})
        if active and active != name and self.active() != active:
            _activate(self.client, self.project, active)

    @cached_property
    def backends(self) -> Sequence[Mapping[str, Any]]:
        """The model backends of the project (read once); none where the token's user may not see them."""
        try:
            listed: Sequence[Mapping[str, Any]] = self.client.get("/api/ml/", replies.BACKENDS, project=self.project)
        except Refused:
            return ()
        return listed


def is_ours(backend: Mapping[str, Any]) -> bool:
    """Return True if a model backend is hitl, by its title."""
    title = str(backend["title"] or "")
    return title == TITLE or title.startswith(ORDER)


def marks(client: Client, project: int) -> frozenset[str]:
    """Return the marks of the stores whose order the project carries."""
    names = [name.removeprefix(ORDER) for name in Versions(client, project).counts() if name.startswith(ORDER)]
    return frozenset(name.partition(MARK_ENDS)[0] for name in names if MARK_ENDS in name)


def score_of(answers: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the score of a prediction: the least confidence of its rows of the operation `consensus`."""
    return min(max(min(float(answer["confidence"]) for answer in answers.values()), 0.0), 1.0)


def label_of(question: Question, answer: Mapping[str, Any]) -> str:
    """Return the label of a row of the operation `consensus`."""
    return kind_of(question).write(answer.get("parts", [answer]))


def _probabilities(question: Question, answer: Mapping[str, Any]) -> Mapping[str, float]:
    """Return class probabilities; of parts the probability of each, by its label alone."""
    if "parts" not in answer:
        return dict(answer["probabilities"])
    return {label_of(question, {"parts": [part]}): float(part["confidence"]) for part in answer["parts"]}


def existing(client: Client, project: int, rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
    """Split rows into those whose tasks exist (a missing one fails a whole import), and the tasks that do not."""
    found = client.tasks_by_id(project, [row["task"] for row in rows], ("id",))
    return [row for row in rows if row["task"] in found], [row["task"] for row in rows if row["task"] not in found]


def _prepare(client: Client, project: int) -> int:
    """Change the settings under which the order is honoured; return the number changed."""
    # Written only when needed: writing maximum_annotations resets the overlap of every task above it.
    now, goal = client.project(project), {"sampling": SAMPLING, "maximum_annotations": 1}
    changes = {name: value for name, value in goal.items() if now.get(name) != value}
    if changes:
        client.patch(f"/api/projects/{project}/", changes)
    return len(changes)


def _activate(client: Client, project: int, name: str, *, hidden: bool = False) -> int:
    """Make the version the project's active one and verify it; return 1 when it was not.

    `hidden`: annotators are shown no predictions. Label Studio's editor begins with the one of the active version, also
    an empty one, and sends its number with the answer; Label Studio refuses the answer once that prediction is deleted,
    as every new order does.
    """
    now, wanted = client.project(project), {"model_version": name, **({HIDE: False} if hidden else {})}
    if all(now.get(key) == value for key, value in wanted.items()):
        return 0
    client.patch(f"/api/projects/{project}/", wanted)  # in one request: hiding alone empties the active version
    active = client.project(project).get("model_version")
    if active != name:
        raise Refused(
            f"project {project} keeps model_version {active!r} instead of {name!r}: tasks would be served at random. "
            "Is a model backend connected? Its title takes that place; disconnect it or let hitl be the backend"
        )
    return 1


def task_ids(items: Sequence[object]) -> list[int]:
    """Return the task numbers of item keys, in order, each once. Raises BadSettings for other keys."""
    try:
        return list(dict.fromkeys(int(str(item)) for item in items))
    except ValueError as error:
        raise BadSettings(f"items of Label Studio are task numbers: {error}") from None


def detail_of(count: int, what: str, missing: Sequence[int]) -> str:
    """Return the detail of a receipt."""
    gone = f"; {len(missing)} no longer exist ({', '.join(map(str, missing[:5]))})" if missing else ""
    return f"{count} tasks {what}{gone}"
