"""The name of the due run that a cycle was recorded for, found without reading the history; why the last one failed."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import KEY

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hitl_cycle", sa.Column("due", KEY, nullable=True))
    op.create_index("hitl_cycle_due", "hitl_cycle", ["project", "due"])
    op.add_column("hitl_project", sa.Column("failure", sa.Text(), nullable=True))
    _name_those_recorded()


def _name_those_recorded() -> None:
    """Until now the name stood among the figures alone."""
    cycle, connection = sa.table("hitl_cycle", *map(sa.column, ("project", "number", "metrics", "due"))), op.get_bind()
    rows = connection.execute(sa.select(cycle.c.project, cycle.c.number, cycle.c.metrics)).all()
    names = [
        {"of_project": project, "of_number": number, "name": name}
        for project, number, metrics in rows
        if (name := json.loads(metrics).get("due")) is not None
    ]
    if names:
        mine = (cycle.c.project == sa.bindparam("of_project")) & (cycle.c.number == sa.bindparam("of_number"))
        connection.execute(sa.update(cycle).where(mine).values(due=sa.bindparam("name")), names)


def downgrade() -> None:
    op.drop_column("hitl_project", "failure")
    op.drop_index("hitl_cycle_due", "hitl_cycle")
    op.drop_column("hitl_cycle", "due")
