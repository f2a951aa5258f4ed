"""Saved searches of items."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column, key

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hitl_view",
        key("project"),
        key("name"),
        column("query", sa.Text()),
        column("by", sa.Text()),
        column("since", sa.Double()),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("hitl_view")
