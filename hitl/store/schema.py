"""The tables. All names start with `hitl_`, so that the store can share a database with other programs.

    project      one row a project: its lease (epoch, owner, until), the cursor, the problems of the latest pull, and
                 why the last cycle failed
    item, annotator, annotation, prediction     what was pulled, keyed by the platform's own keys
    cycle, consensus                            what was concluded
    operation                                   the outbox: what must still be, or was, pushed

Times are seconds since the epoch (float64, UTC). JSON is text: it must come back as it went in (PostgreSQL's jsonb
reorders keys and refuses NaN). Keys and versions are compared byte by byte on both databases (collation "C").
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

HEAD = "0002"
"""The newest migration; a test compares it with the files in `migrations/versions`."""

VERSION_TABLE = "hitl_schema"
"""Where the database says which migration it has."""

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

metadata = sa.MetaData()


def _table(name: str, *columns: sa.schema.SchemaItem, with_rowid: bool = False) -> sa.Table:
    """On SQLite rows live in the primary key's own tree (no rowid), except where they are large."""
    return sa.Table(name, metadata, *columns, sqlite_with_rowid=with_rowid)


def _key(name: str) -> sa.Column[Any]:
    return sa.Column(name, KEY, primary_key=True)


def _column(name: str, kind: sa.types.TypeEngine[Any], *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=null)


project = _table(
    "hitl_project",
    _key("project"),
    _column("epoch", sa.BigInteger()),
    _column("owner", sa.Text()),
    _column("lease_until", sa.Double()),
    _column("cursor", sa.Text(), null=True),
    _column("problems", sa.Text()),
    _column("problems_epoch", sa.BigInteger()),
    _column("failure", sa.Text(), null=True),
)

item = _table(
    "hitl_item",
    _key("project"),
    _key("item"),
    _column("position", sa.BigInteger()),
    _column("data", sa.Text()),
    _column("version", KEY),
    _column("labels_wanted", sa.Integer()),
    _column("closed", sa.Boolean()),
    _column("deleted", sa.Boolean()),
    sa.Index("hitl_item_position", "project", "position"),
    with_rowid=True,
)

annotator = _table(
    "hitl_annotator",
    _key("project"),
    _key("annotator"),
    _column("name", sa.Text()),
)

annotation = _table(
    "hitl_annotation",
    _key("project"),
    _key("question"),
    _key("annotation"),
    _column("item", KEY),
    _column("annotator", KEY, null=True),
    _column("label", sa.Text(), null=True),
    _column("kind", sa.Text()),
    _column("version", KEY),
    _column("time", sa.Double(), null=True),
    _column("created", sa.Text()),
    _column("duration", sa.Double(), null=True),
    _column("deleted", sa.Boolean()),
    sa.Index("hitl_annotation_item", "project", "item"),
)

prediction = _table(
    "hitl_prediction",
    _key("project"),
    _key("item"),
    _key("question"),
    _key("model"),
    _column("probabilities", sa.Text()),
)

cycle = _table(
    "hitl_cycle",
    _key("project"),
    sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
    _column("recorded_at", sa.Double()),
    _column("metrics", sa.Text()),
    _column("plan", sa.Text(), null=True),
    _column("due", KEY, null=True),
    sa.Index("hitl_cycle_due", "project", "due"),
    with_rowid=True,
)

consensus = _table(
    "hitl_consensus",
    _key("project"),
    sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer(), primary_key=True, autoincrement=False),
    _column("question", sa.Text()),
    _column("packed", sa.LargeBinary()),
    sa.ForeignKeyConstraint(["project", "number"], ["hitl_cycle.project", "hitl_cycle.number"]),
    with_rowid=True,
)

operation = _table(
    "hitl_operation",
    _key("project"),
    _key("kind"),
    _key("key"),
    _column("number", sa.BigInteger()),
    _column("position", sa.Integer()),
    _column("digest", sa.Text()),
    _column("payload", sa.Text()),
    _column("state", sa.Text()),
    _column("changed", sa.Integer(), null=True),
    _column("detail", sa.Text(), null=True),
    with_rowid=True,
)
