"""Label the traces of an Arize Phoenix project: annotations of people and judges on its root spans.

Phoenix has no queues: `hitl plan` says which traces each person reads next, with links. Every pull reads all spans
(`connectors.rescan`).

    root span                     an item; annotators see its input and output
    annotation config             a question: categorical
    annotation, HUMAN             an answer of its user, else of its identifier
    annotation, LLM or CODE       the prediction of a model of this name
    identifier "hitl:gold"        ground truth, which `hitl gold` writes
    identifier "hitl:consensus"   the consensus `<question>_hitl` of hitl (CODE), never read as an answer

Names of raters are claims: whoever uses an identifier again overwrites its answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from hitl.connectors.rescan import Rated, page_of, rescanned
from hitl.connectors.rest import SECONDS, WAITS, Json, Rest
from hitl.errors import HitlError, Refused, Unreachable
from hitl.formatting import listed, short
from hitl.platform import (
    AnnotationRow,
    AnnotatorRow,
    Check,
    Connector,
    Cursor,
    Difference,
    ItemRow,
    Operation,
    Page,
    Progress,
    Question,
    Receipt,
    silent,
)
from hitl.settings import SourceSettings
from hitl.settings.environment import secret

CONSENSUS, GOLD, SUFFIX = "hitl:consensus", "hitl:gold", "_hitl"
ID = "hitl.id"
"""Attribute of a span with the user's own id."""
HUMAN = "HUMAN"
"""Kind of annotator of people. All others are models."""
PAGE, IDS, BATCH = 1000, 500, 1000
"""Spans of a page; ids of a request, whose address gets 13 kB long; annotations of a write."""
VISIBLE_SECONDS = 60.0
"""Time in which an added span must become visible: Phoenix takes them in later."""
NO_QUEUES = "Phoenix has no queues; `hitl plan` lists what each annotator reads next"


class PhoenixSettings(SourceSettings):
    """Keys of `[source]` for Phoenix."""

    kind: Literal["phoenix"] = "phoenix"
    """Phoenix."""
    url: str = "http://localhost:6006"
    """Address of the server."""
    project: str = Field(min_length=1)
    """Name of the project."""
    questions: tuple[str, ...] = ()
    """Questions to use; empty: all with one answer out of several."""


class Server(Rest):
    """Client of one Phoenix server."""

    name = "Phoenix"
    advice: ClassVar = {
        401: "Set PHOENIX_API_KEY to a key of an account of hitl's own",
        403: "hitl's account must be a member",
        404: "Check source.url and source.project",
    }


class Phoenix(Connector):
    """Root spans of one Phoenix project. The server is contacted only when needed.

    Example:
        >>> from hitl.connectors.phoenix import Phoenix
        >>> Phoenix("http://localhost:6006", "chat").place
        'http://localhost:6006 project chat'
    """

    Settings = PhoenixSettings

    @classmethod
    def open(cls, settings: PhoenixSettings, folder: Path) -> Phoenix:
        """Return the project that `[source]` names. The key, if there is one, is in the environment."""
        return cls(settings.url, settings.project, settings.questions, secret("PHOENIX_API_KEY"))

    def __init__(self, url: str, project: str, questions: Sequence[str] = (), key: str | None = None) -> None:
        self.server = Server(url, token=key)
        self._project, self._wanted = project, tuple(questions)
        self._path = f"/v1/projects/{project}"
        self._names: dict[str, str] = {}

    @property
    def place(self) -> str:
        """Address and project."""
        return f"{self.server.url} project {self._project}"

    @property
    def lease_seconds(self) -> float:
        """Seconds that a request may take with its repetitions."""
        return SECONDS * (len(WAITS) + 1)

    def fence(self, may_write: Callable[[], float] | None) -> None:
        """Check the lease before every write."""
        self.server.fence(may_write)

    # -- source --------------------------------------------------------------------------------------------

    def questions(self) -> tuple[Question, ...]:
        """Return the categorical annotation configs of the project. Raises Refused if there is none."""
        found = []
        for config in sorted(self._pages(f"{self._path}/annotation_configs"), key=lambda one: str(one["name"])):
            labels = tuple(value["label"] for value in config.get("values") or ())
            if (
                config["type"] == "CATEGORICAL"
                and len(labels) > 1
                and config["name"] in (self._wanted or [config["name"]])
            ):
                found.append(Question(config["name"], labels, labels))
        missing = sorted(set(self._wanted) - {one.name for one in found})
        if missing or not found:
            what = f"no annotation config {listed(missing)}" if missing else "no annotation config"
            raise Refused(
                f"project {self._project!r} has {what} that is categorical. Make it in Phoenix (Settings > "
                "Annotations) and add it to the project, then run this again"
            )
        return tuple(found)

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """Read all root spans, and yield the pages that have changed since the cursor; then which spans exist."""
        asked = {one.name: one for one in self.questions()}
        self._names.clear()  # users can be renamed
        return rescanned(
            cursor,
            list(asked.values()),
            lambda token: self._spans(token, list(asked)),
            _id_of,
            lambda span: [_id_of(span), span["annotations"]],
            lambda spans, after: page_of(
                after,
                [self._item(span) for span in spans],
                [row for span in spans for row in answers_in(span["annotations"], asked)],
                asked,
            ),
        )

    def _spans(self, token: str | None, names: Sequence[str]) -> tuple[list[Json], str | None]:
        """Return a page of root spans with the annotations of others, oldest first, and the token of the next."""
        more = {"cursor": token} if token else {}
        answer = self.server.get(f"{self._path}/spans", limit=PAGE, sort="id", order="asc", **more)
        spans = [span for span in answer["data"] if not span.get("parent_id")]
        told: dict[str, list[Json]] = {_id_of(span): [] for span in spans}
        for one in self._annotations(list(told), names):
            told[one["span_id"]].append(one | {"user_name": self._user_name(one)})
        return [span | {"annotations": told[_id_of(span)]} for span in spans], answer.get("next_cursor") or None

    def _annotations(self, spans: Sequence[str], names: Sequence[str]) -> Iterator[Json]:
        """Yield the annotations of these names on these spans."""
        for start in range(0, len(spans), IDS):
            ids = spans[start : start + IDS]
            given = {"span_ids": ids, "include_annotation_names": list(names), "limit": 10_000}
            yield from self._pages(f"{self._path}/span_annotations", **given)

    def _user_name(self, one: Json) -> str | None:
        """Return the name of the user who gave an annotation, which only GraphQL tells accounts that are no admins."""
        user = one.get("user_id")
        if user and user not in self._names:
            query = "query($id: ID!) { node(id: $id) { ... on SpanAnnotation { user { username } } } }"
            node = (self.server.ask("/graphql", query=query, variables={"id": one["id"]}).get("data") or {}).get("node")
            if not node or not node.get("user"):
                return None  # the annotation or the user was deleted meanwhile
            self._names[user] = node["user"]["username"]
        return self._names.get(str(user))

    def _pages(self, path: str, **parameters: Any) -> Iterator[Json]:
        more: dict[str, str] = {}
        while True:
            page = self.server.get(path, **parameters, **more)
            yield from page["data"]
            if not page.get("next_cursor"):
                return
            more = {"cursor": page["next_cursor"]}

    def _item(self, span: Json) -> ItemRow:
        attributes = span.get("attributes") or {}
        data = {name: attributes.get(f"{name}.value", "") for name in ("input", "output")}
        link = f"{self.server.url}/redirects/spans/{_id_of(span)}"
        return ItemRow(_id_of(span), data | {"link": link}, "", ref=attributes.get(ID))

    # -- sink ----------------------------------------------------------------------------------------------

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Compare each operation with the server, and write what differs."""
        for operation in operations:
            wanted = self._wanted_of(operation)
            if operation.kind == "add_items":
                yield Receipt(operation, self._add(operation.payload["items"]))
                continue
            for start in range(0, len(wanted), BATCH):
                self.server.write("POST", "/v1/span_annotations?sync=true", data=wanted[start : start + BATCH])
            yield Receipt(operation, len(wanted), "" if operation.kind in ("consensus", "gold") else NO_QUEUES)

    def departures(self, operations: Sequence[Operation], progress: Progress = silent) -> Iterable[Difference]:
        """Return what `push` would write."""
        for done, operation in enumerate(operations):
            progress("audit", done, len(operations))
            for one in self._wanted_of(operation):
                why = f"{one['span_id']}: {one['name']} is not {one['result']['label']!r}, or of another confidence"
                yield Difference(operation.kind, operation.key, why)

    def _wanted_of(self, operation: Operation) -> list[Json]:
        """Return the annotations that differ from what an operation describes, or are missing."""
        match operation.kind:
            case "consensus":
                wanted = [
                    _annotation(row["item"], f"{name}{SUFFIX}", CONSENSUS, str(row["label"]), _metadata(row))
                    for name, rows in operation.payload["questions"].items()
                    for row in rows
                ]
            case "gold":
                wanted = [
                    _annotation(item, name, GOLD, str(label), {})
                    for name, labels in operation.payload["questions"].items()
                    for item, label in labels.items()
                ]
            case "order" | "assign" | "labels_wanted" | "add_items":
                return []
            case _:
                raise Refused(f"phoenix: an operation {operation.kind!r} is not known; expected consensus, gold, ...")
        spans = list(dict.fromkeys(one["span_id"] for one in wanted))
        names = list(dict.fromkeys(one["name"] for one in wanted))
        exists = {_id_of(span) for span in self._pages(f"{self._path}/spans", limit=PAGE)} if wanted else set()
        there = {
            (one["span_id"], one["name"], one["identifier"]): _content(one)
            for one in self._annotations([span for span in spans if span in exists], names)
        }
        return [
            one
            for one in wanted
            if one["span_id"] in exists and there.get((one["span_id"], one["name"], one["identifier"])) != _content(one)
        ]

    def _add(self, items: Sequence[Json]) -> int:
        """Make a root span of each item, whose id follows from the user's own, and wait until Phoenix shows it."""
        ids = [sha256(f"{self._project} {row['key']}".encode()).hexdigest() for row in items]
        there = {_id_of(span) for span in self._pages(f"{self._path}/spans", limit=PAGE)}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        spans = [
            {
                **{"name": "item", "span_kind": "UNKNOWN", "status_code": "OK", "start_time": now, "end_time": now},
                **{"context": {"span_id": key[:16], "trace_id": key[:32]}},
                "attributes": {ID: row["key"]}
                | {f"{name}.value": str(row["data"].get(name, "")) for name in ("input", "output")},
            }
            for key, row in zip(ids, items, strict=True)
            if key[:16] not in there
        ]
        if spans:
            self.server.write("POST", f"{self._path}/spans", data=spans)
            until, wanted = time.monotonic() + VISIBLE_SECONDS, {_id_of(span) for span in spans}
            while not wanted <= {_id_of(span) for span in self._pages(f"{self._path}/spans", limit=PAGE)}:
                if time.monotonic() > until:
                    raise Unreachable(f"{self.server.url}: added spans are not visible after {VISIBLE_SECONDS:g} s")
                time.sleep(0.5)
        return len(spans)

    # -- check ---------------------------------------------------------------------------------------------

    def check(self) -> Iterator[Check]:
        """Check the connection, the project and its questions."""
        name = "phoenix"
        try:
            project = self.server.get(self._path)["data"]
            yield Check(name, True, f"{self.server.url}: project {project['name']}")
            name = "questions"
            told = [f"{one.name}: {', '.join(map(str, one.options))}" for one in self.questions()]
            yield Check(name, True, "; ".join(told))
        except HitlError as error:
            detail, _, fix = str(error).partition(". ")
            yield Check(name, False, detail, fix or "check source.url and source.project", stops=True)
            return
        detail = "names of raters are claims: whoever uses an identifier again overwrites its answer"
        yield Check("names", True, detail, "let people answer in the browser, under their own login", warns=True)


def answers_in(annotations: Iterable[Json], asked: Mapping[str, Question]) -> list[Rated]:
    """Return the answers to these questions, and who gave them: the latest one of each rater."""
    latest: dict[tuple[str, str, str, bool], Json] = {}
    for one in annotations:
        is_truth = one["identifier"] == GOLD
        key = one["name"], one["annotator_kind"], _rater_of(one).key, is_truth
        if one["name"] in asked and (key not in latest or one["updated_at"] >= latest[key]["updated_at"]):
            latest[key] = one
    return [
        (_answer(one, asked[name], is_truth), _rater_of(one), not (is_truth or kind == HUMAN))
        for (name, kind, _, is_truth), one in latest.items()
    ]


def _answer(one: Json, question: Question, is_truth: bool) -> AnnotationRow:
    label, note = (one.get("result") or {}).get("label"), None
    if label is not None and label not in question.options:
        label, note = None, f"{short(label)} is none of {listed(question.options)}"
    kind: Literal["answer", "skip", "gold"] = "skip" if label is None else "gold" if is_truth else "answer"
    at, created = one["updated_at"], one["created_at"]
    return AnnotationRow(
        one["id"], one["span_id"], question.name, _rater_of(one).key, label, kind, at, created, note=note
    )


def _rater_of(one: Json) -> AnnotatorRow:
    user = one.get("user_id")
    key = str(user or one["identifier"] or "default")
    return AnnotatorRow(key, one.get("user_name") or key, named=not user or bool(one.get("user_name")))


def _id_of(span: Json) -> str:
    return str(span["context"]["span_id"])


def _annotation(item: str, name: str, identifier: str, label: str, metadata: Json) -> Json:
    result = {"label": label, "score": metadata.get("confidence")}
    found = {"span_id": item, "name": name, "annotator_kind": "CODE", "identifier": identifier}
    return found | {"result": result, "metadata": metadata}


def _content(one: Json) -> Json:
    """Return what an annotation says."""
    return {name: one["result"].get(name) for name in ("label", "score")} | {"metadata": one.get("metadata")}


def _metadata(row: Json) -> Json:
    shares = {str(name): round(share, 4) for name, share in row["probabilities"].items()}
    return {"confidence": round(row["confidence"], 4), "probabilities": shares}
