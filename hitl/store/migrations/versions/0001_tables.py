"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import KEY, column, key

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_pulled()
    _create_concluded()


def _create_pulled() -> None:
    op.create_table(
        "hitl_project",
        key("project"),
        column("epoch", sa.BigInteger()),
        column("owner", sa.Text()),
        column("lease_until", sa.Double()),
        column("cursor", sa.Text(), null=True),
        column("problems", sa.Text()),
        column("problems_epoch", sa.BigInteger()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hitl_item",
        key("project"),
        key("item"),
        column("position", sa.BigInteger()),
        column("data", sa.Text()),
        column("version", KEY),
        column("labels_wanted", sa.Integer()),
        column("closed", sa.Boolean()),
        column("deleted", sa.Boolean()),
    )
    op.create_index("hitl_item_position", "hitl_item", ["project", "position"])
    op.create_table(
        "hitl_annotator",
        key("project"),
        key("annotator"),
        column("name", sa.Text()),
        sqlite_with_rowid=False,
    )
    op.create_table(
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
        column("deleted", sa.Boolean()),
        sqlite_with_rowid=False,
    )
    op.create_index("hitl_annotation_item", "hitl_annotation", ["project", "item"])
    op.create_table(
        "hitl_prediction",
        key("project"),
        key("item"),
        key("question"),
        key("model"),
        column("probabilities", sa.Text()),
        sqlite_with_rowid=False,
    )


def _create_concluded() -> None:
    op.create_table(
        "hitl_cycle",
        key("project"),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        column("recorded_at", sa.Double()),
        column("metrics", sa.Text()),
        column("plan", sa.Text(), null=True),
    )
    op.create_table(
        "hitl_consensus",
        key("project"),
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer(), primary_key=True, autoincrement=False),
        column("question", sa.Text()),
        column("packed", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["project", "number"], ["hitl_cycle.project", "hitl_cycle.number"]),
    )
    op.create_table(
        "hitl_operation",
        key("project"),
        key("kind"),
        key("key"),
        column("number", sa.BigInteger()),
        column("position", sa.Integer()),
        column("digest", sa.Text()),
        column("payload", sa.Text()),
        column("state", sa.Text()),
        column("changed", sa.Integer(), null=True),
        column("detail", sa.Text(), null=True),
    )


def downgrade() -> None:
    names = ("project", "item", "annotator", "annotation", "prediction", "cycle", "consensus", "operation")
    for name in reversed(names):
        op.drop_table(f"hitl_{name}")
