"""Whether a push is under way, so that the next holder of the lease looks at what may have been sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hitl_project", sa.Column("pushing", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("hitl_project", "pushing")
