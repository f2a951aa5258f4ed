"""The tables. All names start with `hitl_`, so that the store can share a database with other programs.

    project      one row per project: its lease (epoch, owner, until), the cursor, problems of the latest pull, the
                 last failure, the page where annotators answer, this store's mark on the orders it pushes, the features
                 that are complete, the last trainings, the push in progress, the revision, when a run last found no
                 news, what events have reported, and the questions of the last pull
    item, annotator, annotation, prediction     pulled rows, keyed by the platform's own keys
    snapshot                                    derived from rows: the answers per question, and item digests
    vector                                      features of items, keyed also by how they were computed
    model_prediction                            predictions of models trained on the labels of other items
    cycle, consensus                            results of runs
    rework                                      items sent back to annotators
    view                                        saved item searches
    question_log                                every planned question, for whom, and by which run first
    operation                                   the outbox: operations to push, and operations the platform confirmed
    user, grant, session, token                 users and access rights of the service (`service.web`)
    event, address                              events to send and their deliveries; counts per address

Times are seconds since the epoch (float64, UTC). JSON is stored as text, because it must be read back unchanged
(PostgreSQL's jsonb reorders keys and rejects NaN). Keys and versions are compared byte by byte on both databases
(collation "C").
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

HEAD = "0001"
"""The newest migration; a test compares it with the files in `migrations/versions`. Versions sort as text."""

VERSION_TABLE = "hitl_schema"
"""Table in which the database records its migration."""

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TEXT, INTEGER, FLAG, BYTES = sa.Text(), sa.BigInteger(), sa.Boolean(), sa.LargeBinary()
NUMBER: sa.Double[float] = sa.Double()

DELETED = "deleted_at IS NOT NULL"
"""Condition of an index of rows marked as deleted, which are few."""

NO_ANSWER = "kind <> 'answer'"
"""Condition of an index of skips and ground truth, which are few. A query must repeat it, or the index is not used."""

NOTED = "note IS NOT NULL"
"""Condition of an index of annotations that cannot be read or were repaired, which are few."""

SERVED = "labels_wanted > 0"
"""Condition of an index of items for which the platform reports labels wanted. A query must repeat it word for word."""

metadata = sa.MetaData()


def table(name: str, *columns: sa.schema.SchemaItem, with_rowid: bool = True) -> sa.Table:
    """Declare a table. On SQLite, `with_rowid` False stores rows in the primary key's tree, which suits small rows."""
    return sa.Table(f"hitl_{name}", metadata, *columns, sqlite_with_rowid=with_rowid)


def key(name: str, kind: Any = KEY) -> sa.Column[Any]:
    """Return a primary key column."""
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def columns(kind: Any, *names: str, null: bool = False) -> list[sa.Column[Any]]:
    """Return columns of one type outside the primary key."""
    return [sa.Column(name, kind, nullable=null) for name in names]


def index(name: str, *names: str, where: str | None = None) -> sa.Index:
    """Return an index; `where`: only of rows that meet this condition."""
    condition = None if where is None else sa.text(where)
    return sa.Index(f"hitl_{name}", *names, sqlite_where=condition, postgresql_where=condition)


project = table(
    "project",
    key("project"),
    *columns(INTEGER, "epoch"),
    *columns(TEXT, "owner"),
    *columns(NUMBER, "lease_until"),
    *columns(TEXT, "problems"),
    *columns(INTEGER, "problems_epoch"),
    *columns(TEXT, "cursor", "failure", "source", "workplaces", "mark", "features", "learned", "pushing", null=True),
    *columns(INTEGER, "revision", null=True),
    *columns(NUMBER, "looked_at", null=True),
    *columns(TEXT, "told", "questions", null=True),
    with_rowid=False,
)

item = table(
    "item",
    key("project"),
    key("item"),
    *columns(INTEGER, "position"),
    *columns(TEXT, "data"),
    *columns(KEY, "version"),
    *columns(sa.Integer(), "labels_wanted"),
    *columns(FLAG, "closed", "deleted"),
    *columns(TEXT, "ref", null=True),
    *columns(NUMBER, "deleted_at", null=True),
    *columns(INTEGER, "revision"),
    index("item_position", "project", "position"),
    index("item_revision", "project", "revision"),
    index("item_deleted", "project", "deleted_at", where=DELETED),
    index("item_served", "project", where=SERVED),
)

annotator = table("annotator", key("project"), key("annotator"), *columns(TEXT, "name"), with_rowid=False)

annotation = table(
    "annotation",
    key("project"),
    key("question"),
    key("annotation"),
    *columns(KEY, "item"),
    *columns(KEY, "annotator", null=True),
    *columns(TEXT, "label", null=True),
    *columns(TEXT, "kind"),
    *columns(KEY, "version"),
    *columns(NUMBER, "time", null=True),
    *columns(TEXT, "created"),
    *columns(NUMBER, "duration", null=True),
    *columns(FLAG, "suggested", null=True),
    *columns(TEXT, "note", null=True),
    *columns(FLAG, "deleted"),
    *columns(NUMBER, "deleted_at", null=True),
    index("annotation_item", "project", "item"),
    index("annotation_deleted", "project", "deleted_at", where=DELETED),
    index("annotation_kind", "project", "kind", where=NO_ANSWER),
    index("annotation_note", "project", where=NOTED),
    with_rowid=False,
)

prediction = table(
    "prediction",
    key("project"),
    key("item"),
    key("question"),
    key("model"),
    *columns(TEXT, "probabilities"),
    with_rowid=False,
)

snapshot = table("snapshot", key("project"), key("name"), *columns(INTEGER, "revision"), *columns(BYTES, "content"))

vector = table("vector", key("project"), key("space"), key("item"), *columns(KEY, "digest"), *columns(BYTES, "numbers"))

model_prediction = table(
    "model_prediction", key("project"), key("question"), key("run"), key("fold"), *columns(BYTES, "predicted")
)

cycle = table(
    "cycle",
    key("project"),
    key("number", INTEGER),
    *columns(NUMBER, "recorded_at"),
    *columns(TEXT, "metrics"),
    *columns(TEXT, "plan", null=True),
    *columns(BYTES, "done", null=True),
)

consensus = table(
    "consensus",
    key("project"),
    key("number", INTEGER),
    key("position", sa.Integer()),
    *columns(TEXT, "question"),
    *columns(BYTES, "packed"),
    sa.ForeignKeyConstraint(["project", "number"], ["hitl_cycle.project", "hitl_cycle.number"]),
)

question_log = table(
    "question_log",
    key("project"),
    key("item"),
    key("annotator"),
    key("since", NUMBER),
    *columns(INTEGER, "number"),
    *columns(sa.Integer(), "position"),
    *columns(NUMBER, "probability", null=True),
    *columns(FLAG, "check", "audit", "done"),
    *columns(TEXT, "labels"),
    index("question_log_number", "project", "number", "position"),
)

rework = table(
    "rework",
    key("project"),
    key("item"),
    key("annotator"),
    *columns(NUMBER, "since", "after"),
    *columns(TEXT, "note", "by"),
    with_rowid=False,
)

view = table(
    "view", key("project"), key("name"), *columns(TEXT, "query", "by"), *columns(NUMBER, "since"), with_rowid=False
)

operation = table(
    "operation",
    key("project"),
    key("kind"),
    key("key"),
    *columns(INTEGER, "number"),
    *columns(sa.Integer(), "position"),
    *columns(TEXT, "digest"),
    *columns(BYTES, "payload"),
    *columns(TEXT, "state"),
    *columns(sa.Integer(), "changed", null=True),
    *columns(TEXT, "detail", null=True),
    index("operation_state", "project", "state", "number"),
)

user = table("user", key("name"), *columns(TEXT, "password", null=True), *columns(NUMBER, "created"), with_rowid=False)

grant = table("grant", key("name"), key("project"), *columns(TEXT, "role"), with_rowid=False)

session = table(
    "session",
    key("digest"),
    *columns(KEY, "name"),
    *columns(TEXT, "csrf"),
    *columns(NUMBER, "created", "seen"),
    index("session_name", "name"),
    with_rowid=False,
)

token = table(
    "token",
    key("token"),
    *columns(KEY, "digest"),
    *columns(TEXT, "name", "role"),
    *columns(KEY, "project"),
    *columns(NUMBER, "created"),
    *columns(NUMBER, "used", null=True),
    sa.Index("hitl_token_digest", "digest", unique=True),
    with_rowid=False,
)

event = table(
    "event",
    key("project"),
    key("address"),
    key("event"),
    *columns(TEXT, "kind"),
    *columns(NUMBER, "at"),
    *columns(TEXT, "body"),
    *columns(KEY, "state"),
    *columns(sa.Integer(), "attempts"),
    *columns(NUMBER, "due", "held"),
    *columns(NUMBER, "tried", null=True),
    *columns(TEXT, "said"),
    index("event_state", "project", "state", "address", "at"),
    index("event_at", "project", "at"),
)

address = table(
    "address",
    key("project"),
    key("address"),
    *columns(TEXT, "digest"),
    *columns(NUMBER, "gone", null=True),
    *columns(INTEGER, "delivered", "failed"),
    with_rowid=False,
)
