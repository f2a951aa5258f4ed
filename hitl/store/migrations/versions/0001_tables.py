"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _key(name: str) -> sa.Column[Any]:
    return sa.Column(name, KEY, primary_key=True)


def _column(name: str, kind: sa.types.TypeEngine[Any], *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=null)


def upgrade() -> None:
    _create_pulled()
    _create_concluded()


def _create_pulled() -> None:
    op.create_table(
        "hitl_project",
        _key("project"),
        _column("epoch", sa.BigInteger()),
        _column("owner", sa.Text()),
        _column("lease_until", sa.Double()),
        _column("cursor", sa.Text(), null=True),
        _column("problems", sa.Text()),
        _column("problems_epoch", sa.BigInteger()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hitl_item",
        _key("project"),
        _key("item"),
        _column("position", sa.BigInteger()),
        _column("data", sa.Text()),
        _column("version", KEY),
        _column("labels_wanted", sa.Integer()),
        _column("closed", sa.Boolean()),
        _column("deleted", sa.Boolean()),
    )
    op.create_index("hitl_item_position", "hitl_item", ["project", "position"])
    op.create_table(
        "hitl_annotator",
        _key("project"),
        _key("annotator"),
        _column("name", sa.Text()),
        sqlite_with_rowid=False,
    )
    op.create_table(
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
        sqlite_with_rowid=False,
    )
    op.create_index("hitl_annotation_item", "hitl_annotation", ["project", "item"])
    op.create_table(
        "hitl_prediction",
        _key("project"),
        _key("item"),
        _key("question"),
        _key("model"),
        _column("probabilities", sa.Text()),
        sqlite_with_rowid=False,
    )


def _create_concluded() -> None:
    op.create_table(
        "hitl_cycle",
        _key("project"),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        _column("recorded_at", sa.Double()),
        _column("metrics", sa.Text()),
        _column("plan", sa.Text(), null=True),
    )
    op.create_table(
        "hitl_consensus",
        _key("project"),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer(), primary_key=True, autoincrement=False),
        _column("question", sa.Text()),
        _column("packed", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["project", "number"], ["hitl_cycle.project", "hitl_cycle.number"]),
    )
    op.create_table(
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
    )


def downgrade() -> None:
    names = ("project", "item", "annotator", "annotation", "prediction", "cycle", "consensus", "operation")
    for name in reversed(names):
        op.drop_table(f"hitl_{name}")
