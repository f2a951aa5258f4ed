"""Push the order in which tasks are served, and the consensus, both as predictions.

Predictions are the only thing Label Studio accepts in bulk, and it has no upsert. Each state is therefore a model
version named after its content, "hitl-order-<mark of the store>-<digest>", which is swapped in: import the new one,
move the project's model_version, verify it, delete the old ones. Repeating this repairs a crash at any point.

The order consists of predictions with an empty result, whose score rises with the rank. With "Uncertainty sampling",
Label Studio serves the lowest score of the project's model_version first (and random tasks, silently, if model_version
is not exactly that). The consensus is never the active version: annotators would see it, and their answers would no
longer be independent.
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
"""Separates the store's mark from the digest of an order; neither contains it."""
CONSENSUS = "hitl-consensus-"
HIDE = "show_collab_predictions"
"""Project setting that shows predictions to annotators if it is true."""
TITLE = "hitl"
"""Title of hitl's model backend until there is an order. Then the title follows the order (backends.py)."""
SAMPLING = "Uncertainty sampling"
BATCH = 10_000
"""Predictions per request. It is large because each import makes Label Studio recount all tasks of the project."""
TRIES = 3
"""Maximum imports of predictions that arrive more than once."""

Row = dict[str, Any]


def order(versions: Versions, client: Client, project: int, operation: Operation) -> Receipt:
    """Serve these items first to last, before all others.

    If there are no items, a single prediction stands in for the order: a project without a model_version would show
    annotators all predictions, including the consensus.
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
    """Show the consensus next to the tasks, as predictions that annotators do not see."""
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
    """Model versions of a project's predictions.

    `whole` compares every prediction under a name. A count is far quicker, and enough if only pushes write these
    predictions.
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
        """Make the version hold exactly these predictions. Return how many had to be written.

        Check the state afterwards instead of the response, because a request may be carried out twice. Raises Refused
        if Label Studio drops some (it does so without an error), or has duplicates.
        """
        found = self.counts().get(name, 0)
        if found == len(rows) and not (self.whole and self._differs(name, rows)):
            return 0
        for _ in range(TRIES):
            if found:  # left by a crash, or by a request that came twice
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
        """Return True if the version's predictions, equal in number, have other contents or other tasks."""
        include = ("id", "predictions", "model_version", "score", "result")
        tasks = self.client.tasks_by_id(self.project, [row["task"] for row in rows], include)
        for row in rows:
            predictions = tasks.get(row["task"], {}).get("predictions") or ()
            same = [(one["score"], one["result"]) for one in predictions if one["model_version"] == name]
            if same != [(row["score"], row["result"])]:
                return True
        return False

    def send(self, rows: Sequence[Row]) -> int:
        """Import these predictions, of one version or several. Return how many Label Studio reports as imported."""
        path = f"/api/projects/{self.project}/import/predictions"
        parts = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        return sum(self.client.post(path, part, replies.CREATED)["created"] for part in parts)

    def delete(self, prefix: str, keep: str | None = None) -> int:
        """Delete the versions with this prefix. Return how many there were."""
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

        If the active version is a backend's title, Label Studio resets it whenever any version is deleted, so it is
        restored.
        """
        active = self.active() if self.backends else None
        self.client.delete(self.path, {"model_version": name})
        if active and active != name and self.active() != active:
            _activate(self.client, self.project, active)

    @cached_property
    def backends(self) -> Sequence[Mapping[str, Any]]:
        """Model backends of the project (read once); empty if the token's user may not see them."""
        try:
            listed: Sequence[Mapping[str, Any]] = self.client.get("/api/ml/", replies.BACKENDS, project=self.project)
        except Refused:
            return ()
        return listed


def is_ours(backend: Mapping[str, Any]) -> bool:
    """Return True if a model backend is hitl's, by its title."""
    title = str(backend["title"] or "")
    return title == TITLE or title.startswith(ORDER)


def marks(client: Client, project: int) -> frozenset[str]:
    """Return the marks of the stores whose order is in the project."""
    names = [name.removeprefix(ORDER) for name in Versions(client, project).counts() if name.startswith(ORDER)]
    return frozenset(name.partition(MARK_ENDS)[0] for name in names if MARK_ENDS in name)


def score_of(answers: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the score of a prediction: the lowest confidence among its rows of the operation `consensus`."""
    return min(max(min(float(answer["confidence"]) for answer in answers.values()), 0.0), 1.0)


def label_of(question: Question, answer: Mapping[str, Any]) -> str:
    """Return the label of a row of the operation `consensus`."""
    return kind_of(question).write(answer.get("parts", [answer]))


def _probabilities(question: Question, answer: Mapping[str, Any]) -> Mapping[str, float]:
    """Return class probabilities, or for parts the probability of each, by its one-part label."""
    if "parts" not in answer:
        return dict(answer["probabilities"])
    return {label_of(question, {"parts": [part]}): float(part["confidence"]) for part in answer["parts"]}


def existing(client: Client, project: int, rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
    """Split rows into those with existing tasks, and the missing tasks. A missing task would fail the whole import."""
    found = client.tasks_by_id(project, [row["task"] for row in rows], ("id",))
    return [row for row in rows if row["task"] in found], [row["task"] for row in rows if row["task"] not in found]


def _prepare(client: Client, project: int) -> int:
    """Change the settings that the order needs. Return the number of changes."""
    # Write only if needed, because writing maximum_annotations resets the overlap of every task above it.
    now, goal = client.project(project), {"sampling": SAMPLING, "maximum_annotations": 1}
    changes = {name: value for name, value in goal.items() if now.get(name) != value}
    if changes:
        client.patch(f"/api/projects/{project}/", changes)
    return len(changes)


def _activate(client: Client, project: int, name: str, *, hidden: bool = False) -> int:
    """Activate a version and verify it. Return 1 if it was not active.

    `hidden`: annotators see no predictions. Otherwise, Label Studio's editor starts from the prediction of the active
    version, even an empty one, and sends its number with the answer. Label Studio refuses the answer if that prediction
    was deleted meanwhile, which every new order does.
    """
    now, wanted = client.project(project), {"model_version": name, **({HIDE: False} if hidden else {})}
    if all(now.get(key) == value for key, value in wanted.items()):
        return 0
    client.patch(f"/api/projects/{project}/", wanted)  # one request, because hiding alone resets the active version
    active = client.project(project).get("model_version")
    if active != name:
        raise Refused(
            f"project {project} keeps model_version {active!r} instead of {name!r}: tasks would be served at random. "
            "Is a model backend connected? Its title takes that place; disconnect it or let hitl be the backend"
        )
    return 1


def task_ids(items: Sequence[object]) -> list[int]:
    """Return the task numbers of item keys, in order and without duplicates. Raises BadSettings for other keys."""
    try:
        return list(dict.fromkeys(int(str(item)) for item in items))
    except ValueError as error:
        raise BadSettings(f"items of Label Studio are task numbers: {error}") from None


def detail_of(count: int, what: str, missing: Sequence[int]) -> str:
    """Return the detail of a receipt."""
    gone = f"; {len(missing)} no longer exist ({', '.join(map(str, missing[:5]))})" if missing else ""
    return f"{count} tasks {what}{gone}"
