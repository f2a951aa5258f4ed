"""Whether an annotation began as a suggestion. Of annotations that were pulled before: not known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hitl_annotation", column("suggested", sa.Boolean(), null=True))


def downgrade() -> None:
    op.drop_column("hitl_annotation", "suggested")
