"""Users, their roles, their sessions, and API tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import KEY, column, key

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hitl_user",
        key("name"),
        column("password", sa.Text(), null=True),
        column("created", sa.Double()),
        sqlite_with_rowid=False,
    )
    op.create_table("hitl_grant", key("name"), key("project"), column("role", sa.Text()), sqlite_with_rowid=False)
    op.create_table(
        "hitl_session",
        key("digest"),
        column("name", KEY),
        column("csrf", sa.Text()),
        column("created", sa.Double()),
        column("seen", sa.Double()),
        sqlite_with_rowid=False,
    )
    op.create_index("hitl_session_name", "hitl_session", ["name"])
    op.create_table(
        "hitl_token",
        key("token"),
        column("digest", KEY),
        column("name", sa.Text()),
        column("role", sa.Text()),
        column("project", KEY),
        column("created", sa.Double()),
        column("used", sa.Double(), null=True),
        sqlite_with_rowid=False,
    )
    op.create_index("hitl_token_digest", "hitl_token", ["digest"], unique=True)


def downgrade() -> None:
    for name in ("hitl_token", "hitl_session", "hitl_grant", "hitl_user"):
        op.drop_table(name)
