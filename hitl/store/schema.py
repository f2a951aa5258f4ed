"""The tables. All names start with `hitl_`, so that the store can share a database with other programs.

    project      one row per project: its lease (epoch, owner, until), the cursor, problems of the latest pull, the
                 last failure, the page where annotators answer, this store's mark on the orders it pushes, the features
                 that are complete, the last trainings, the push in progress, the revision, and when a run last found no
                 news
    item, annotator, annotation, prediction     pulled rows, keyed by the platform's own keys
    snapshot                                    derived from rows: the answers per question, and item digests
    vector                                      features of items, keyed also by how they were computed
    model_prediction                            predictions of models trained on the labels of other items
    cycle, consensus                            results of runs
    rework                                      items sent back to annotators
    view                                        saved item searches
    question_log                                every planned question, to whom, and when first
    operation                                   the outbox: operations to push, or pushed
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
"""The newest migration; a test compares it with the files in `migrations/versions`."""

VERSION_TABLE = "hitl_schema"
"""Table in which the database records its migration."""

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

metadata = sa.MetaData()


def _table(name: str, *columns: sa.schema.SchemaItem, with_rowid: bool = False) -> sa.Table:
    """Declare a table. On SQLite rows are stored in the primary key's tree (no rowid), unless they are large."""
    return sa.Table(name, metadata, *columns, sqlite_with_rowid=with_rowid)


def key(name: str) -> sa.Column[Any]:
    """Return a primary key column."""
    return sa.Column(name, KEY, primary_key=True)


def column(name: str, kind: sa.types.TypeEngine[Any], *, null: bool = False) -> sa.Column[Any]:
    """Return a column outside the primary key."""
    return sa.Column(name, kind, nullable=null)


DELETED = "deleted_at IS NOT NULL"
"""Rows marked as deleted, which are few."""

NO_ANSWER = "kind <> 'answer'"
"""Skips and ground truth, which are few. A query must repeat the condition, or its index is not used."""


SERVED = "labels_wanted > 0"
"""Items for which the platform reports labels wanted. A query must repeat the condition word for word."""


def _where(condition: str) -> dict[str, Any]:
    """Return options that restrict an index to these rows."""
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


project = _table(
    "hitl_project",
    key("project"),
    column("epoch", sa.BigInteger()),
    column("owner", sa.Text()),
    column("lease_until", sa.Double()),
    column("cursor", sa.Text(), null=True),
    column("problems", sa.Text()),
    column("problems_epoch", sa.BigInteger()),
    column("failure", sa.Text(), null=True),
    column("source", sa.Text(), null=True),
    column("workplaces", sa.Text(), null=True),
    column("mark", sa.Text(), null=True),
    column("features", sa.Text(), null=True),
    column("learned", sa.Text(), null=True),
    column("pushing", sa.Text(), null=True),
    column("revision", sa.BigInteger(), null=True),
    column("looked_at", sa.Double(), null=True),
    column("told", sa.Text(), null=True),
)

item = _table(
    "hitl_item",
    key("project"),
    key("item"),
    column("position", sa.BigInteger()),
    column("data", sa.Text()),
    column("version", KEY),
    column("labels_wanted", sa.Integer()),
    column("closed", sa.Boolean()),
    column("deleted", sa.Boolean()),
    column("ref", sa.Text(), null=True),
    column("deleted_at", sa.Double(), null=True),
    column("revision", sa.BigInteger()),
    sa.Index("hitl_item_position", "project", "position"),
    sa.Index("hitl_item_revision", "project", "revision"),
    sa.Index("hitl_item_deleted", "project", "deleted_at", **_where(DELETED)),
    sa.Index("hitl_item_served", "project", **_where(SERVED)),
    with_rowid=True,
)

annotator = _table(
    "hitl_annotator",
    key("project"),
    key("annotator"),
    column("name", sa.Text()),
)

annotation = _table(
    "hitl_annotation",
    key("project"),
    key("question"),
    key("annotation"),
    column("item", KEY),
    column("annotator", KEY, null=True),
    column("label", sa.Text(), null=True),
    column("kind", sa.Text()),
    column("version", KEY),
    column("time", sa.Double(), null=True),
    column("created", sa.Text()),
    column("duration", sa.Double(), null=True),
    column("suggested", sa.Boolean(), null=True),
    column("deleted", sa.Boolean()),
    column("deleted_at", sa.Double(), null=True),
    sa.Index("hitl_annotation_item", "project", "item"),
    sa.Index("hitl_annotation_deleted", "project", "deleted_at", **_where(DELETED)),
    sa.Index("hitl_annotation_kind", "project", "kind", **_where(NO_ANSWER)),
)

prediction = _table(
    "hitl_prediction",
    key("project"),
    key("item"),
    key("question"),
    key("model"),
    column("probabilities", sa.Text()),
)

snapshot = _table(
    "hitl_snapshot",
    key("project"),
    key("name"),
    column("revision", sa.BigInteger()),
    column("content", sa.LargeBinary()),
    with_rowid=True,
)

vector = _table(
    "hitl_vector",
    key("project"),
    key("space"),
    key("item"),
    column("digest", KEY),
    column("numbers", sa.LargeBinary()),
    with_rowid=True,
)

model_prediction = _table(
    "hitl_model_prediction",
    key("project"),
    key("question"),
    key("run"),
    key("fold"),
    column("predicted", sa.LargeBinary()),
    with_rowid=True,
)

cycle = _table(
    "hitl_cycle",
    key("project"),
    sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
    column("recorded_at", sa.Double()),
    column("metrics", sa.Text()),
    column("plan", sa.Text(), null=True),
    column("due", KEY, null=True),
    column("done", sa.LargeBinary(), null=True),
    sa.Index("hitl_cycle_due", "project", "due"),
    with_rowid=True,
)

consensus = _table(
    "hitl_consensus",
    key("project"),
    sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer(), primary_key=True, autoincrement=False),
    column("question", sa.Text()),
    column("packed", sa.LargeBinary()),
    sa.ForeignKeyConstraint(["project", "number"], ["hitl_cycle.project", "hitl_cycle.number"]),
    with_rowid=True,
)

question_log = _table(
    "hitl_question_log",
    key("project"),
    key("item"),
    key("annotator"),
    sa.Column("since", sa.Double(), primary_key=True, autoincrement=False),
    column("number", sa.BigInteger()),
    column("position", sa.Integer()),
    column("probability", sa.Double(), null=True),
    column("check", sa.Boolean()),
    column("audit", sa.Boolean()),
    column("done", sa.Boolean()),
    column("labels", sa.Text()),
    sa.Index("hitl_question_log_number", "project", "number", "position"),
    with_rowid=True,
)

rework = _table(
    "hitl_rework",
    key("project"),
    key("item"),
    key("annotator"),
    column("since", sa.Double()),
    column("note", sa.Text()),
    column("by", sa.Text()),
)

view = _table(
    "hitl_view",
    key("project"),
    key("name"),
    column("query", sa.Text()),
    column("by", sa.Text()),
    column("since", sa.Double()),
)

operation = _table(
    "hitl_operation",
    key("project"),
    key("kind"),
    key("key"),
    column("number", sa.BigInteger()),
    column("position", sa.Integer()),
    column("digest", sa.Text()),
    column("payload", sa.LargeBinary()),
    column("state", sa.Text()),
    column("changed", sa.Integer(), null=True),
    column("detail", sa.Text(), null=True),
    sa.Index("hitl_operation_state", "project", "state", "number"),
    with_rowid=True,
)

user = _table(
    "hitl_user",
    key("name"),
    column("password", sa.Text(), null=True),
    column("created", sa.Double()),
)

grant = _table(
    "hitl_grant",
    key("name"),
    key("project"),
    column("role", sa.Text()),
)

session = _table(
    "hitl_session",
    key("digest"),
    column("name", KEY),
    column("csrf", sa.Text()),
    column("created", sa.Double()),
    column("seen", sa.Double()),
    sa.Index("hitl_session_name", "name"),
)

token = _table(
    "hitl_token",
    key("token"),
    column("digest", KEY),
    column("name", sa.Text()),
    column("role", sa.Text()),
    column("project", KEY),
    column("created", sa.Double()),
    column("used", sa.Double(), null=True),
    sa.Index("hitl_token_digest", "digest", unique=True),
)

event = _table(
    "hitl_event",
    key("project"),
    key("address"),
    key("event"),
    column("kind", sa.Text()),
    column("at", sa.Double()),
    column("body", sa.Text()),
    column("state", KEY),
    column("attempts", sa.Integer()),
    column("due", sa.Double()),
    column("held", sa.Double()),
    column("tried", sa.Double(), null=True),
    column("said", sa.Text()),
    sa.Index("hitl_event_state", "project", "state", "address", "at"),
    sa.Index("hitl_event_at", "project", "at"),
    with_rowid=True,
)

address = _table(
    "hitl_address",
    key("project"),
    key("address"),
    column("digest", sa.Text()),
    column("gone", sa.Double(), null=True),
    column("delivered", sa.BigInteger()),
    column("failed", sa.BigInteger()),
)
