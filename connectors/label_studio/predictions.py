"""Push the order in which tasks are served and the consensus, both as predictions, and set up hitl as model backend.

Predictions are the only thing Label Studio accepts in bulk, and it has no upsert. Each state is therefore a model
version named after its content, "hitl-order-<mark of the store>-<digest>". It replaces the old state in four steps:
import the new version, set the project's model_version, verify it, delete the old versions. After a crash at any point,
repeating the steps repairs the state.

The order consists of predictions with an empty result, whose score rises with the rank. With "Uncertainty sampling",
Label Studio serves the lowest score of the project's model_version first (and random tasks, silently, if model_version
is not exactly that). The consensus is never the active version: annotators would see it, and their answers would no
longer be independent.

Label Studio asks a model backend about the served task if the backend's title is the active version too. The title of
hitl's backend therefore follows the order. Its predictions, the suggestions, have a version of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.config import Form, adapted
from hitl.errors import BadSettings, Refused
from hitl.formatting import counted
from hitl.kinds.kind import kind_of
from hitl.platform import Operation, Question, Receipt

ORDER, CONSENSUS, SUGGESTS = "hitl-order-", "hitl-consensus-", "hitl-suggests-"
"""Prefixes of versions. SUGGESTS is followed by the kind of suggestion and a text that changes with suggestions."""
MARK_ENDS = "-"
"""Separates the store's mark from the digest of an order; neither contains it."""
HIDE = "show_collab_predictions"
"""Project setting that shows predictions to annotators if it is true."""
TITLE = "hitl"
"""Title of hitl's model backend until there is an order."""
SAMPLING = "Uncertainty sampling"
BATCH = 10_000
"""Number of predictions per request. It is large because each import makes Label Studio recount the project's tasks."""
TRIES = 3
"""Maximum number of times that a version is imported if its predictions arrive more than once."""

Row = dict[str, Any]
Answer = Mapping[str, Any]
"""A row of the operation `consensus`."""


class Versions:
    """Model versions of a project's predictions.

    With `whole`, `make` compares every prediction of a version, otherwise only their number. The number is far quicker
    to get, and enough if only pushes write these predictions.
    """

    def __init__(self, client: Client, project: int, *, whole: bool = False) -> None:
        self.client = client
        self.project = project
        self.whole = whole
        self.path = f"/api/projects/{project}"

    def counts(self) -> dict[str, int]:
        """Return version -> number of predictions."""
        counts: dict[str, int] = self.client.get(f"{self.path}/model-versions/", replies.COUNTS)
        return counts

    def active(self) -> str:
        """Return the project's active version."""
        return str(self.client.project(self.project).get("model_version") or "")

    @cached_property
    def backends(self) -> Sequence[Mapping[str, Any]]:
        """Model backends of the project (read once); empty if the token's user may not see them."""
        try:
            backends: Sequence[Mapping[str, Any]] = self.client.get("/api/ml/", replies.BACKENDS, project=self.project)
        except Refused:
            return ()
        return backends

    def existing(self, rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
        """Return the rows whose tasks exist, and the missing tasks of the others, which would make an import fail."""
        tasks = self.client.tasks_by_id(self.project, [row["task"] for row in rows], ("id",))
        return [row for row in rows if row["task"] in tasks], [row["task"] for row in rows if row["task"] not in tasks]

    def make(self, name: str, rows: Sequence[Row]) -> int:
        """Make the version hold exactly these predictions. Return how many were written, 0 if it already does.

        The state is checked afterwards, not just the response, because a request may be carried out twice. Raises
        Refused if Label Studio drops some (it does so without an error), or keeps duplicates.
        """
        count = self.counts().get(name, 0)
        if count == len(rows) and not (self.whole and self._differs(name, rows)):
            return 0
        for _ in range(TRIES):
            if count:  # left by a crash, or by a request that came twice
                self.remove(name)
            created = self.send(rows)
            if created != len(rows):
                self.remove(name)
                raise Refused(
                    f"Label Studio dropped {len(rows) - created} of {len(rows)} predictions of {name} without saying "
                    "why: was the labeling configuration changed meanwhile? Pull and try again"
                )
            count = self.counts().get(name, 0)
            if count == len(rows):
                return count
        self.remove(name)
        raise Refused(
            f"Label Studio has {count} predictions of {name} where {len(rows)} were sent, {TRIES} times: does a proxy "
            "between it and hitl send requests twice? Fix that, and push again"
        )

    def _differs(self, name: str, rows: Sequence[Row]) -> bool:
        """Return True if the version's predictions, equal in number, have other contents or other tasks."""
        include = ("id", "predictions", "model_version", "score", "result")
        tasks = self.client.tasks_by_id(self.project, [row["task"] for row in rows], include)
        for row in rows:
            predictions = tasks.get(row["task"], {}).get("predictions") or ()
            ours = [(each["score"], each["result"]) for each in predictions if each["model_version"] == name]
            if ours != [(row["score"], row["result"])]:
                return True
        return False

    def send(self, rows: Sequence[Row]) -> int:
        """Import these predictions, of one version or several. Return how many Label Studio reports as imported."""
        parts = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        path = f"{self.path}/import/predictions"
        return sum(self.client.post(path, part, replies.CREATED)["created"] for part in parts)

    def delete(self, prefix: str, keep: str | None = None) -> int:
        """Delete the versions with this prefix. Return how many there were."""
        old = [name for name in self.counts() if name.startswith(prefix) and name != keep]
        for name in old:
            self.remove(name)
        if old and any(name.startswith(prefix) and name != keep for name in self.counts()):
            raise Refused(f"Label Studio keeps predictions of {old[0]} that were to be deleted: push again")
        return len(old)

    def remove(self, name: str) -> None:
        """Delete one version.

        If the active version is a backend's title, Label Studio resets it whenever any version is deleted. So it is
        activated again.
        """
        active = self.active() if self.backends else None
        self.client.delete(f"{self.path}/model-versions/", {"model_version": name})
        if active and active != name and self.active() != active:
            self.activate(active)

    def activate(self, name: str, *, hidden: bool = False) -> int:
        """Activate a version and verify it. Return 1 if something had to be changed.

        `hidden`: hide predictions from annotators. Otherwise, Label Studio's editor starts from the prediction of the
        active version, even an empty one, and sends its number with the answer. Label Studio refuses the answer if that
        prediction was deleted meanwhile, as happens with every new order.
        """
        now, wanted = self.client.project(self.project), {"model_version": name, **({HIDE: False} if hidden else {})}
        if all(now.get(key) == value for key, value in wanted.items()):
            return 0
        self.client.patch(f"{self.path}/", wanted)  # one request, because hiding alone resets the active version
        if (active := self.active()) != name:
            raise Refused(
                f"project {self.project} keeps model_version {active!r} instead of {name!r}: tasks would be served at "
                "random. Is a model backend connected? Its title takes that place; disconnect it or let hitl be the "
                "backend"
            )
        return 1


def order(versions: Versions, operation: Operation) -> Receipt:
    """Serve these items first to last, before all others.

    If there are no items, a single prediction stands in for the order: a project without a model_version would show
    annotators all predictions, including the consensus.
    """
    client, project, by = versions.client, versions.project, operation.payload.get("by")
    name = f"{ORDER}{by}{MARK_ENDS}{operation.digest}" if by else ORDER + operation.digest
    # Write only if needed, because writing maximum_annotations resets the overlap of every task above it.
    now, goal = client.project(project), {"sampling": SAMPLING, "maximum_annotations": 1}
    changes = {key: value for key, value in goal.items() if now.get(key) != value}
    if changes:
        client.patch(f"{versions.path}/", changes)
    planned, missing = versions.existing([{"task": task} for task in task_ids(operation.payload["items"])])
    served = planned or [{"task": int(task["id"])} for task in client.tasks_page(project, ("id",), page_size=1).tasks]
    rows = [
        row | {"result": [], "score": rank / len(served) if planned else 1.0, "model_version": name}
        for rank, row in enumerate(served)
    ]
    changed = len(changes)
    if rows:
        changed += versions.make(name, rows)
        changed += versions.activate(name, hidden=not any(map(is_ours, versions.backends)))
    changed += versions.delete(ORDER, keep=name if rows else None)
    return Receipt(operation, changed, detail_of(len(planned), "in order", missing))


def consensus(form: Form, versions: Versions, operation: Operation) -> Receipt:
    """Show the consensus next to the tasks, as predictions that annotators do not see."""
    name = CONSENSUS + operation.digest
    by_item: dict[str, dict[str, Answer]] = {}
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
    rows, missing = versions.existing(all_rows)
    changed = 0
    if rows:
        changed += versions.make(name, rows)
        if versions.active().startswith(CONSENSUS):
            versions.client.patch(f"{versions.path}/", {"model_version": ""})
            changed += 1
    changed += versions.delete(CONSENSUS, keep=name if rows else None)
    return Receipt(operation, changed, detail_of(len(rows), "with a consensus", missing))


def marks(client: Client, project: int) -> frozenset[str]:
    """Return the marks of the stores whose order is in the project."""
    names = [name.removeprefix(ORDER) for name in Versions(client, project).counts() if name.startswith(ORDER)]
    return frozenset(name.partition(MARK_ENDS)[0] for name in names if MARK_ENDS in name)


def score_of(answers: Mapping[str, Answer]) -> float:
    """Return the score of a prediction: the lowest confidence of these answers."""
    return min(max(min(float(answer["confidence"]) for answer in answers.values()), 0.0), 1.0)


def label_of(question: Question, answer: Answer) -> str:
    """Return the label of an answer."""
    return kind_of(question).write(answer.get("parts", [answer]))


def _probabilities(question: Question, answer: Answer) -> Mapping[str, float]:
    """Return class -> probability or, for parts, the label of each single part -> its probability."""
    if "parts" not in answer:
        return dict(answer["probabilities"])
    return {label_of(question, {"parts": [part]}): float(part["confidence"]) for part in answer["parts"]}


def task_ids(items: Sequence[object]) -> list[int]:
    """Return the task numbers of item keys, in order and without duplicates. Raises BadSettings for other keys."""
    try:
        return list(dict.fromkeys(int(str(item)) for item in items))
    except ValueError as error:
        raise BadSettings(f"items of Label Studio are task numbers: {error}") from None


def detail_of(count: int, what: str, missing: Sequence[int]) -> str:
    """Return the detail of a receipt."""
    gone = f"; {len(missing)} no longer exist ({', '.join(map(str, missing[:5]))})" if missing else ""
    return f"{counted(count, 'task')} {what}{gone}"


def is_ours(backend: Mapping[str, Any]) -> bool:
    """Return True if a model backend is hitl's, by its title."""
    title = str(backend["title"] or "")
    return title == TITLE or title.startswith(ORDER)


def register_backend(client: Client, project: int, url: str, user: str, password: str) -> int:
    """Register this address as the project's model backend, with a user and password. Return its number.

    Raises Refused if Label Studio cannot reach it, or the password is rejected.
    """
    backends: Sequence[Mapping[str, Any]] = client.get("/api/ml/", replies.BACKENDS, project=project)
    active = Versions(client, project).active()
    wanted = {
        "project": project,
        "url": url,
        "title": active if active.startswith(ORDER) else TITLE,
        "auth_method": "BASIC_AUTH",
        "basic_auth_user": user,
        "basic_auth_pass": password,
    }
    registered = next((each for each in backends if each["url"] == url or is_ours(each)), None)
    if registered is None:
        registered = client.post("/api/ml/", wanted, replies.WITH_ID)
    else:
        _change_backend(client, registered, wanted)
    client.patch(f"/api/projects/{project}/", {HIDE: True})  # an order without a backend has switched it off
    # Delete the webhook that comes with a backend: it would delay each annotation, and hitl does not use it.
    for hook in client.get("/api/webhooks/", replies.WEBHOOKS, project=project):
        if hook["url"] == f"{url.rstrip('/')}/webhook":
            client.delete(f"/api/webhooks/{hook['id']}/")
    return int(registered["id"])


def follow_order(versions: Versions) -> None:
    """Set the title of hitl's backend to the version of the order, after everything is pushed.

    If the order is not active any more, activate it again. The title of a backend that is down cannot be changed,
    because Label Studio contacts it first. Nothing is suggested then, but the order still works.
    """
    ours = [each for each in versions.backends if is_ours(each)]
    if not ours:
        return
    active = versions.active()
    if not active.startswith(ORDER):
        orders = [name for name, count in versions.counts().items() if name.startswith(ORDER) and count]
        if len(orders) != 1:
            return
        (active,) = orders
        versions.client.patch(f"{versions.path}/", {"model_version": active})
    for each in ours:
        if each["title"] != active:
            same = {name: each[name] for name in ("url", "project", "auth_method", "basic_auth_user", "extra_params")}
            with suppress(Refused):  # the backend is down; "" keeps the password
                _change_backend(versions.client, each, {**same, "title": active, "basic_auth_pass": ""})


def _change_backend(client: Client, backend: Mapping[str, Any], wanted: Mapping[str, object]) -> None:
    """PATCH a backend with all its fields, which Label Studio needs to check the address again."""
    client.patch(f"/api/ml/{backend['id']}", wanted, unsaid=("basic_auth_pass",))


@lru_cache(maxsize=64)
def form_of(xml: str, control: str | None, abstain: tuple[str, ...]) -> Form | None:
    """Return the controls of a labeling configuration, or None if none is supported."""
    try:
        return adapted(xml, control, abstain)[0]
    except (BadSettings, Refused):
        return None


def suggestion(form: Form | None, answers: Mapping[str, Answer], version: str) -> dict[str, Any] | None:
    """Return a prediction of hitl's backend with these answers (question -> answer).

    Return None without answers, or if the form has changed and lacks a question or label.
    """
    if form is None or not answers:
        return None
    try:
        asked = {question.name: question for question in form.questions}
        result = form.write({name: label_of(asked[name], answer) for name, answer in answers.items()})
    except (BadSettings, KeyError):
        return None
    return {"result": result, "score": score_of(answers), "model_version": version}
