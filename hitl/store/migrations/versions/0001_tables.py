"""Create all tables.

Until the first release this is the only migration and follows `schema`. The release writes the tables out here; each
later change of `schema` then brings a migration of its own.
"""

from __future__ import annotations

from alembic import op

from hitl.store.schema import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
