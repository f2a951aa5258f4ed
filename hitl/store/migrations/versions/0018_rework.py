"""Items that were sent back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column, key

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hitl_rework",
        key("project"),
        key("item"),
        key("annotator"),
        column("since", sa.Double()),
        column("note", sa.Text()),
        column("by", sa.Text()),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("hitl_rework")
