"""Label the traces of an MLflow experiment (3.17 or later): its review queues, questions, people's answers and judges'.

    client    requests, errors
    rows      traces and assessments -> items and answers

Pull: MLflow has no "updated since" and tells no deletions, so every pull reads all traces (`connectors.rescan`).
Push: everything is compared with the server, and only differences are written:

    consensus       feedback `<question>_hitl` of hitl (CODE), with its confidence; nobody else's answer is touched
    assign          a review queue "hitl: <annotator>" each, because the first answer clears a trace for the whole queue
    order           with source.shared: the queue "hitl" of anyone, at most MOST traces
    gold            expectations;  add_items: traces;  labels_wanted: nothing, as each person has a queue

Names of raters are claims: without a login, MLflow lets everybody write as anyone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from hitl.connectors.mlflow.client import API, Client
from hitl.connectors.mlflow.rows import ID_TAG, OWN, SUFFIX, Asked, answers_in, asked_in, declined, is_own, item_of
from hitl.connectors.rescan import Rated, page_of, rescanned
from hitl.connectors.rest import SECONDS, WAITS
from hitl.errors import HitlError, Refused
from hitl.formatting import counted, listed
from hitl.platform import (
    Check,
    Connector,
    Cursor,
    Difference,
    Operation,
    Page,
    Pages,
    Progress,
    Question,
    Receipt,
    silent,
)
from hitl.settings import CrewSettings, SourceSettings
from hitl.settings.environment import secret

ITEMS = "review-queues/items/list"
MOST = 500
"""Traces in the queue of anyone: MLflow adds them one by one, or their order is lost."""
OPERATIONS = ("consensus", "order", "assign", "labels_wanted", "add_items", "gold")

Json = dict[str, Any]


class MLflowSettings(SourceSettings):
    """Keys of `[source]` for MLflow."""

    kind: Literal["mlflow"] = "mlflow"
    """MLflow."""
    url: str = "http://localhost:5000"
    """Address of the server."""
    experiment: str = Field(min_length=1)
    """Name or number of the experiment."""
    questions: tuple[str, ...] = ()
    """Questions to use; empty: all with one answer out of several."""
    shared: bool = False
    """Put traces for anyone into a queue "hitl", for projects without `crew.annotators`."""

    def crew(self, crew: CrewSettings) -> CrewSettings:
        """Return the crew in lower case, because MLflow ignores case in people's names."""
        people = {name: {who.casefold(): None for who in getattr(crew, name)} for name in ("annotators", "judges")}
        tables = {
            name: {who.casefold(): value for who, value in getattr(crew, name).items()}
            for name in ("capacities", "costs", "skills")
        }
        return crew.model_copy(update=tables | {name: tuple(names) for name, names in people.items()})


@dataclass(frozen=True)
class Write:
    """A request that brings the server to what an operation describes, and why it is needed."""

    method: str
    path: str
    why: str
    body: Mapping[str, Any] = field(default_factory=dict)


class MLflow(Connector):
    """Traces of one MLflow experiment. The server is contacted only when needed.

    `login` (user and password) or `token` are what MLflow's own clients use.

    Example:
        >>> from hitl.connectors.mlflow import MLflow
        >>> MLflow("http://localhost:5000", "chat").place
        'http://localhost:5000 experiment chat'
    """

    Settings = MLflowSettings

    @classmethod
    def open(cls, settings: MLflowSettings, folder: Path) -> MLflow:
        """Return the experiment that `[source]` names. User and password or token are in the environment."""
        user, password = secret("MLFLOW_TRACKING_USERNAME"), secret("MLFLOW_TRACKING_PASSWORD")
        login = (user.strip(), password.strip()) if user and password else None
        token, shared = secret("MLFLOW_TRACKING_TOKEN"), settings.shared
        return cls(settings.url, settings.experiment, settings.questions, login, token, shared=shared)

    def __init__(
        self,
        url: str,
        experiment: str,
        questions: Sequence[str] = (),
        login: tuple[str, str] | None = None,
        token: str | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self.client = Client(url, login, token)
        self._named, self._wanted, self._shared = experiment, tuple(questions), shared

    @property
    def place(self) -> str:
        """Address and experiment."""
        return f"{self.client.url} experiment {self._named}"

    @property
    def lease_seconds(self) -> float:
        """Seconds that a request may take with its repetitions."""
        return SECONDS * (len(WAITS) + 1)

    def fence(self, may_write: Callable[[], float] | None) -> None:
        """Check the lease before every write."""
        self.client.fence(may_write)

    @cached_property
    def experiment(self) -> str:
        """Number of the experiment. Raises Refused if there is none of this name or number."""
        try:
            found = self.client.get("/api/2.0/mlflow/experiments/get-by-name", experiment_name=self._named)
        except Refused:
            if not self._named.isdecimal():
                raise
            found = self.client.get("/api/2.0/mlflow/experiments/get", experiment_id=self._named)
        return str(found["experiment"]["experiment_id"])

    # -- source --------------------------------------------------------------------------------------------

    def _asked(self) -> list[Asked]:
        schemas = self.client.pages("label-schemas/list", "label_schemas", experiment_id=self.experiment)
        asked = asked_in(schemas, self._wanted)
        missing = sorted(set(self._wanted) - {one.question.name for one in asked})
        if missing or not asked:
            what = f"no question {listed(missing)}" if missing else "no question"
            raise Refused(
                f"experiment {self._named!r} has {what} of the kind pass / fail or categorical with one answer. Make "
                "it in MLflow (Review Queue > Manage questions), then run this again"
            )
        return asked

    def questions(self) -> tuple[Question, ...]:
        """Return the experiment's questions with one answer out of several. Raises Refused if there is none."""
        return tuple(one.question for one in self._asked())

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """Read all traces, and yield the pages that have changed since the cursor; then which traces exist."""
        own = {"experiment": self.experiment}
        if cursor is not None and cursor.get("experiment", self.experiment) != self.experiment:
            raise Refused(
                f"{self._named!r} is experiment number {self.experiment} now, and the stored traces are of number "
                f"{cursor['experiment']}. If it was renamed, set source.experiment to its new name and run "
                "`hitl pull --full`, which also replaces the stored traces if the new experiment is the right one"
            )
        asked = {one.question.name: one for one in self._asked()}
        questions = {name: one.question for name, one in asked.items()}
        skipped = self._declined()

        def rows(trace: Json) -> list[Rated]:
            answers = answers_in(trace, asked)
            return answers + declined(trace, skipped.get(trace["trace_id"], {}), asked, answers)

        pages = rescanned(
            cursor,
            list(questions.values()),
            lambda token: self.client.traces(self.experiment, token),
            lambda trace: str(trace["trace_id"]),
            lambda trace: [item_of(trace).data, trace.get("tags"), _of_others(trace), skipped.get(trace["trace_id"])],
            lambda traces, after: page_of(
                after,
                [item_of(trace) for trace in traces],
                [row for trace in traces for row in rows(trace)],
                questions,
            ),
        )
        return (replace(page, cursor={**page.cursor, **own}) for page in pages)

    def _declined(self) -> dict[str, dict[str, str]]:
        """Return trace -> annotators who declined it in their queue -> when."""
        found: dict[str, dict[str, str]] = {}
        for name, queue in self._queues().items():
            rows = self.client.pages(ITEMS, "items", queue_id=queue["queue_id"], status="DECLINED")
            for row in rows if name != OWN else ():
                at = datetime.fromtimestamp(int(row["last_update_time_ms"]) / 1000, UTC)
                found.setdefault(row["item_id"], {})[name.removeprefix(f"{OWN}: ")] = at.isoformat(
                    timespec="milliseconds"
                )
        return found

    def workplaces(self) -> Pages:
        """Return each annotator's review queue."""
        link = f"{self.client.url}/#/experiments/{self.experiment}/review-queue"
        names = [name.removeprefix(f"{OWN}: ") for name in self._queues() if name != OWN]
        return Pages(dict.fromkeys(names, link), "Choose the queue with your name.", self._named)

    # -- sink ----------------------------------------------------------------------------------------------

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Compare each operation with the server, and write what differs."""
        for operation in operations:
            changed = 0
            for write in self._writes(operation):
                self.client.write(write.method, write.path, **write.body)
                changed += 1
            yield Receipt(operation, changed)

    def departures(self, operations: Sequence[Operation], progress: Progress = silent) -> Iterable[Difference]:
        """Return what `push` would write."""
        for done, operation in enumerate(operations):
            progress("audit", done, len(operations))
            if operation.kind != "add_items":
                yield from (Difference(operation.kind, operation.key, write.why) for write in self._writes(operation))

    def _writes(self, operation: Operation) -> Iterator[Write]:
        match operation.kind:
            case "consensus":
                return self._consensus(operation.payload["questions"])
            case "gold":
                return self._gold(operation.payload["questions"])
            case "assign":
                return self._queue(f"{OWN}: {operation.key.casefold()}", [operation.key], operation.payload["items"])
            case "order":
                return self._queue(OWN, [], operation.payload["items"][:MOST] if self._shared else [])
            case "add_items":
                return self._added(operation.payload["items"])
            case "labels_wanted":
                return iter(())
        raise Refused(f"mlflow: an operation {operation.kind!r} is not known; expected {', '.join(OPERATIONS)}")

    def _consensus(self, questions: Mapping[str, Sequence[Json]]) -> Iterator[Write]:
        """Write what is not on the traces yet, and delete own rows that are there twice."""
        asked = {one.question.name: one for one in self._asked()}
        wanted = {
            (row["item"], f"{name}{SUFFIX}"): (asked[name].values[str(row["label"])], _metadata(row))
            for name, rows in questions.items()
            for row in rows
        }
        there: dict[tuple[str, str], list[Json]] = {}
        exists = set()
        for trace in self.client.infos(list(dict.fromkeys(item for item, _ in wanted))):
            exists.add(trace["trace_id"])
            for own in filter(is_own, trace.get("assessments", [])):
                there.setdefault((trace["trace_id"], own["assessment_name"]), []).append(own)
        for (item, name), (value, metadata) in wanted.items():
            if item not in exists:
                continue  # deleted since the pull
            path, own_rows = f"{API}/traces/{item}/assessments", there.get((item, name), [])
            if not own_rows:
                yield Write("POST", path, f"{item}: no {name}", _assessment(item, name, value, metadata))
                continue
            own, *more = own_rows
            if own["feedback"].get("value") != value or own.get("metadata") != metadata:
                body = {"assessment_id": own["assessment_id"], "trace_id": item, "assessment_name": name}
                body |= {"feedback": {"value": value}, "metadata": metadata}
                why = f"{item}: {name} is {own['feedback'].get('value')!r}, not {value!r}, or of another confidence"
                changed = {"assessment": body, "update_mask": "feedback,metadata"}
                yield Write("PATCH", f"{path}/{own['assessment_id']}", why, changed)
            for twice in more:
                yield Write("DELETE", f"{path}/{twice['assessment_id']}", f"{item}: {name} is there twice")

    def _gold(self, questions: Mapping[str, Mapping[str, str]]) -> Iterator[Write]:
        """Write ground truth as expectations of hitl, next to those of other people."""
        asked = {one.question.name: one for one in self._asked()}
        items = list(dict.fromkeys(item for labels in questions.values() for item in labels))
        there = {trace["trace_id"]: trace.get("assessments", []) for trace in self.client.infos(items)}
        for name, labels in questions.items():
            for item, label in labels.items():
                value = asked[name].values[str(label)]
                own = [
                    one
                    for one in there.get(item, ())
                    if "expectation" in one and one["assessment_name"] == name and one["source"]["source_id"] == OWN
                ]
                path = f"{API}/traces/{item}/assessments"
                if [one["expectation"].get("value") for one in own] == [value] or item not in there:
                    continue
                for one in own:
                    yield Write("DELETE", f"{path}/{one['assessment_id']}", f"{item}: another ground truth")
                body = _assessment(item, name, value, {}, "expectation")
                yield Write("POST", path, f"{item}: no ground truth of {name}", body)

    def _queue(self, name: str, users: Sequence[str], items: Sequence[str]) -> Iterator[Write]:
        """Make a queue serve these traces in this order.

        MLflow serves the last added first, and a trace that is added again keeps its place. So the end of the queue
        that is right already stays, everything before it is removed, and the rest is added one by one, last first.
        """
        queue = self._queues().get(name)
        schemas = [one.schema for one in self._asked()] if items else []
        if queue is not None and not {*schemas} <= {*queue.get("schema_ids", ())}:
            why = f"{name}: questions are missing, and MLflow adds none to a queue with traces"
            yield Write("POST", f"{API}/review-queues/delete", why, {"queue_id": queue["queue_id"]})
            queue = None
        if queue is None:
            if not items:
                return
            body = {"experiment_id": self.experiment, "name": name, "queue_type": "CUSTOM", "users": list(users)}
            yield Write("POST", f"{API}/review-queues/create", f"no queue {name!r}", body | {"schema_ids": schemas})
            queue = self._queues().get(name)  # None only if the writes are not sent
        number = None if queue is None else queue["queue_id"]
        rows = [] if number is None else self.client.pages(ITEMS, "items", queue_id=number)
        status = {row["item_id"]: row["status"] for row in rows}
        there = [item for item, of in status.items() if of == "PENDING"]
        exists = {trace["trace_id"] for trace in self.client.infos(items)}
        wanted = [item for item in items if item in exists]
        same = 0
        while same < min(len(there), len(wanted)) and there[-1 - same] == wanted[-1 - same]:
            same += 1
        stale = set(there[: len(there) - same]) | {item for item in wanted if status.get(item, "PENDING") != "PENDING"}
        if stale:
            removed = {"queue_id": number, "item_ids": sorted(stale)}
            why = f"{name}: {counted(len(stale), 'trace')} too many, or at another place"
            yield Write("POST", f"{API}/review-queues/items/remove", why, removed)
        for item in reversed(wanted[: len(wanted) - same]):
            added = {"queue_id": number, "item_type": "TRACE", "item_ids": [item]}
            yield Write("POST", f"{API}/review-queues/items/add", f"{name}: {item} is missing", added)

    def _added(self, items: Sequence[Json]) -> Iterator[Write]:
        """Make a trace of each item; its id follows from the user's own."""
        names = [f"{self.experiment} {row['key']}".encode() for row in items]
        ids = [f"tr-{sha256(name).hexdigest()[:32]}" for name in names]
        there = {trace["trace_id"] for trace in self.client.infos(ids)}
        where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self.experiment}}
        for trace, row in zip(ids, items, strict=True):
            if trace not in there:
                info = {"trace_id": trace, "trace_location": where, "request_time": _now(), "execution_duration": "0s"}
                info |= {"state": "OK", "tags": {ID_TAG: row["key"]}, "trace_metadata": {}}
                info |= {f"{name}_preview": str(row["data"].get(name, "")) for name in ("request", "response")}
                yield Write("POST", f"{API}/traces", f"no trace of {row['key']}", {"trace": {"trace_info": info}})

    def _queues(self) -> dict[str, Json]:
        """Return the queues of hitl by their names, whose case MLflow ignores."""
        rows = self.client.pages("review-queues/list", "review_queues", experiment_id=self.experiment)
        names = ((row["name"].casefold(), row) for row in rows)
        return {name: row for name, row in names if name == OWN or name.startswith(f"{OWN}: ")}

    # -- check ---------------------------------------------------------------------------------------------

    def check(self) -> Iterator[Check]:
        """Check the connection, the experiment and its questions."""
        name = "mlflow"
        try:
            yield Check(name, True, f"{self.client.url}: {self.client.text('/version')}")
            name = "experiment"
            yield Check(name, True, f"{self._named} (number {self.experiment})")
            name = "questions"
            told = [f"{one.name}: {', '.join(map(str, one.options))}" for one in self.questions()]
            yield Check(name, True, "; ".join(told))
        except HitlError as error:
            detail, _, fix = str(error).partition(". ")
            yield Check(name, False, detail, fix or "check source.url and source.experiment", stops=True)
            return
        detail = "names of raters are claims: whoever may edit the experiment can write as anyone"
        yield Check("names", True, detail, "give only people you trust the permission EDIT", warns=True)


def _of_others(trace: Json) -> list[Json]:
    """Return the assessments of a trace, without the consensus that hitl wrote."""
    return [one for one in trace.get("assessments", []) if not is_own(one)]


def _metadata(row: Json) -> dict[str, str]:
    """Return confidence and probabilities as MLflow keeps them: text."""
    shares = {str(name): round(share, 4) for name, share in row["probabilities"].items()}
    return {"confidence": f"{row['confidence']:.4f}", "probabilities": json.dumps(shares, ensure_ascii=False)}


def _assessment(item: str, name: str, value: object, metadata: Mapping[str, str], kind: str = "feedback") -> Json:
    source = {"source_type": "CODE", "source_id": OWN}
    body: Json = {"assessment_name": name, "trace_id": item, "source": source, kind: {"value": value}}
    return {"assessment": body | {"create_time": _now(), "last_update_time": _now(), "metadata": dict(metadata)}}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
