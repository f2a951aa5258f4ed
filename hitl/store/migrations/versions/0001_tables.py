"""Create all tables.

Until the first release this is the only migration and follows `schema`. The release lists the tables here explicitly;
from then on each change of `schema` adds its own migration.
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
