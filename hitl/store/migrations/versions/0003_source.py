"""Where a project was pulled from: two hitl.toml with one name must not plan each other's tasks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hitl_project", sa.Column("source", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("hitl_project", "source")
