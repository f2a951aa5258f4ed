"""Where a project was pulled from, and the user's own ids of items.

Two hitl.toml with one name must not plan each other's tasks, and what was added is known by the id it was added with.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hitl_project", sa.Column("source", sa.Text(), nullable=True))
    op.add_column("hitl_item", sa.Column("ref", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("hitl_item", "ref")
    op.drop_column("hitl_project", "source")
