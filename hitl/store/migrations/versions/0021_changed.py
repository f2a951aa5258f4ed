"""Blocks of answers name the items that have changed since; those of another form are made again from the rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DELETE FROM hitl_packed")
    op.add_column("hitl_packed", column("changed", sa.Text(), null=True))


def downgrade() -> None:
    op.execute("DELETE FROM hitl_packed")
    op.drop_column("hitl_packed", "changed")
