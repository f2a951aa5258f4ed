"""Every question that was planned, with its probability. What was asked before is not known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column, key

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hitl_ask",
        key("project"),
        key("item"),
        key("annotator"),
        sa.Column("since", sa.Double(), primary_key=True, autoincrement=False),
        column("number", sa.BigInteger()),
        column("position", sa.Integer()),
        column("probability", sa.Double(), null=True),
        column("check", sa.Boolean()),
        column("audit", sa.Boolean()),
        column("done", sa.Boolean()),
        column("labels", sa.Text()),
    )
    op.create_index("hitl_ask_number", "hitl_ask", ["project", "number", "position"])


def downgrade() -> None:
    op.drop_table("hitl_ask")
