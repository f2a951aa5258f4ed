"""Features that were made of items, and which of them are complete."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import KEY, column, key

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hitl_project", sa.Column("features", sa.Text(), nullable=True))
    op.create_table(
        "hitl_vector",
        key("project"),
        key("space"),
        key("item"),
        column("digest", KEY),
        column("numbers", sa.LargeBinary()),
    )


def downgrade() -> None:
    op.drop_table("hitl_vector")
    op.drop_column("hitl_project", "features")
