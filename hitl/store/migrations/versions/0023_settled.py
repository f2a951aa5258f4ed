"""Answers as they are judged, and what has changed since."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column, key

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hitl_settled",
        key("project"),
        key("question"),
        key("part"),
        column("size", sa.BigInteger()),
        column("upto", sa.BigInteger()),
        column("terms", sa.Text(), null=True),
        *(column(name, sa.LargeBinary(), null=True) for name in ("changed", "codes", "names", "time", "duration")),
    )


def downgrade() -> None:
    op.drop_table("hitl_settled")
