"""What is said of each item as a whole and the rows that changed since; an index of what a platform serves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column, key

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hitl_whole",
        key("project"),
        key("name"),
        key("part"),
        column("named", sa.Text()),
        column("version", sa.Text()),
        column("packed", sa.LargeBinary()),
    )
    served = sa.text("labels_wanted > 0")
    op.create_index("hitl_item_served", "hitl_item", ["project"], sqlite_where=served, postgresql_where=served)


def downgrade() -> None:
    op.drop_index("hitl_item_served", "hitl_item")
    op.execute("DELETE FROM hitl_consensus WHERE project IN (SELECT project FROM hitl_whole)")
    op.execute("DELETE FROM hitl_operation WHERE payload LIKE '{\"whole\"%'")
    op.drop_table("hitl_whole")
