"""What models predict that learn from the labels while they come, fold by fold."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column, key

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hitl_project", sa.Column("learned", sa.Text(), nullable=True))
    op.create_table(
        "hitl_fold",
        key("project"),
        key("question"),
        key("run"),
        key("fold"),
        column("predicted", sa.LargeBinary()),
    )


def downgrade() -> None:
    op.drop_table("hitl_fold")
    op.drop_column("hitl_project", "learned")
