"""What the store forgets: rows that were deleted long ago, figures of old cycles.

Rows that are marked as deleted keep old pages from reviving them, for which days are enough. Of a cycle the consensus
and the plan are kept until the next one, the figures longer. Where several cycles in a row came to the same figures
and are no longer recent, the first and the last of them are kept: their course is the same.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from hitl.store.database import Database
from hitl.store.schema import annotation, cycle, item, prediction, snapshot

RECENT = 20
"""How many cycles keep their figures even where they are those of the cycles around them."""

OF_ONE_RUN = ("due", "at", "seconds", "basis")
"""Figures that say when a cycle was and what it rested on, and not what it came to."""


def forget_deleted(database: Database, connection: sa.Connection, project: str, seconds: float) -> int:
    """Forget items and annotations that were marked as deleted so long ago; gives how many."""
    until = connection.execute(sa.select(database.now())).scalar_one() - seconds
    items = sa.and_(item.c.project == project, item.c.deleted_at <= until)
    gone = connection.execute(sa.select(item.c.item).where(items)).scalars().all()
    old = sa.and_(annotation.c.project == project, annotation.c.deleted_at <= until)
    forgotten = connection.execute(sa.delete(annotation).where(old)).rowcount
    if gone:
        # A snapshot of before they were deleted would keep them.
        newest = sa.select(sa.func.max(item.c.revision)).where(items).scalar_subquery()
        stale = sa.and_(snapshot.c.project == project, snapshot.c.revision < newest)
        connection.execute(sa.delete(snapshot).where(stale))
        for table in (annotation, prediction):
            mine = sa.and_(table.c.project == project, database.among(table.c.item, gone))
            forgotten += connection.execute(sa.delete(table).where(mine)).rowcount
        forgotten += connection.execute(sa.delete(item).where(items)).rowcount
    return int(forgotten)


def forget_cycles(connection: sa.Connection, project: str, number: int, kept: int) -> None:
    """Forget the figures of cycles further back than `kept`, and those between equal ones that are not recent."""
    mine = cycle.c.project == project
    connection.execute(sa.delete(cycle).where(mine, cycle.c.number <= number - kept))
    query = sa.select(cycle.c.number, cycle.c.metrics).where(mine, cycle.c.number <= number - RECENT)
    last = connection.execute(query.order_by(cycle.c.number.desc()).limit(3)).all()
    if len(last) == 3 and len({_course(row.metrics) for row in last}) == 1:
        connection.execute(sa.delete(cycle).where(mine, cycle.c.number == last[1].number))


def _course(metrics: str) -> str:
    said: dict[str, Any] = json.loads(metrics)
    return json.dumps({name: value for name, value in said.items() if name not in OF_ONE_RUN}, sort_keys=True)
