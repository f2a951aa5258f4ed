"""Answers as Arrow by blocks of items, made from the rows; what a plan says is done, beside it. Older plans stay."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column, key

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hitl_packed",
        key("project"),
        key("question"),
        sa.Column("block", sa.BigInteger(), primary_key=True, autoincrement=False),
        column("answers", sa.LargeBinary()),
    )
    op.add_column("hitl_cycle", column("done", sa.LargeBinary(), null=True))


def downgrade() -> None:
    op.drop_column("hitl_cycle", "done")
    op.drop_table("hitl_packed")
