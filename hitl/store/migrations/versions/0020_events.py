"""Events for others: what happened, whether each address has it, and what was told before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import KEY, column, key

revision = "0020"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hitl_event",
        key("project"),
        key("event"),
        column("kind", sa.Text()),
        column("at", sa.Double()),
        column("body", sa.Text()),
    )
    op.create_index("hitl_event_at", "hitl_event", ["project", "at"])
    op.create_table(
        "hitl_delivery",
        key("project"),
        key("address"),
        key("event"),
        column("at", sa.Double()),
        column("state", KEY),
        column("attempts", sa.Integer()),
        column("due", sa.Double()),
        column("held", sa.Double()),
        column("tried", sa.Double(), null=True),
        column("said", sa.Text()),
        sqlite_with_rowid=False,
    )
    op.create_index("hitl_delivery_state", "hitl_delivery", ["project", "state", "address", "at"])
    op.create_index("hitl_delivery_at", "hitl_delivery", ["project", "at"])
    op.create_table("hitl_told", key("project"), column("said", sa.Text()))
    op.create_table(
        "hitl_address",
        key("project"),
        key("address"),
        column("digest", sa.Text()),
        column("gone", sa.Double(), null=True),
        column("delivered", sa.BigInteger()),
        column("failed", sa.BigInteger()),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in ("hitl_address", "hitl_told", "hitl_delivery", "hitl_event"):
        op.drop_table(table)
