"""That the platform has told of news: one row a project, until a pull that began later has succeeded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column, key

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hitl_hint",
        key("project"),
        column("first_at", sa.Double()),
        column("last_at", sa.Double()),
        column("count", sa.BigInteger()),
        column("taken", sa.BigInteger()),
    )


def downgrade() -> None:
    op.drop_table("hitl_hint")
