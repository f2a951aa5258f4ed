"""How often a pull has changed what is stored, and when a cycle last found nothing new. Of older pulls: not known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column

revision = "0012"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hitl_project", column("revision", sa.BigInteger(), null=True))
    op.add_column("hitl_project", column("looked_at", sa.Double(), null=True))


def downgrade() -> None:
    op.drop_column("hitl_project", "looked_at")
    op.drop_column("hitl_project", "revision")
