"""Indexes of what is few: skips and known truth among the answers, operations that wait among those confirmed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    few = sa.text("kind <> 'answer'")
    op.create_index(
        "hitl_annotation_kind", "hitl_annotation", ["project", "kind"], sqlite_where=few, postgresql_where=few
    )
    op.create_index("hitl_operation_state", "hitl_operation", ["project", "state", "number"])


def downgrade() -> None:
    op.drop_index("hitl_operation_state", "hitl_operation")
    op.drop_index("hitl_annotation_kind", "hitl_annotation")
