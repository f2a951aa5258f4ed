"""Where each annotator answers, as the last cycle saw it, and the mark of this store on what it orders.

`hitl status` shows the pages without asking the platform; by the mark, two stores that plan one project notice.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hitl_project", sa.Column("workplaces", sa.Text(), nullable=True))
    op.add_column("hitl_project", sa.Column("mark", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("hitl_project", "mark")
    op.drop_column("hitl_project", "workplaces")
