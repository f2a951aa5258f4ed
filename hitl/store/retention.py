"""Deletion of old data: rows marked as deleted long ago, and metrics of old runs.

Rows marked as deleted keep old pages from restoring them, for which days are enough. The consensus and the plan of a
run are stored until the next run; its metrics are stored longer. If several older runs in a row have equal metrics,
only the first and the last are kept.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from hitl.store.database import Database
from hitl.store.schema import annotation, cycle, item, prediction, snapshot

RECENT = 20
"""Number of recent runs whose metrics are kept even if they equal those of their neighbors."""

OF_ONE_RUN = ("due", "at", "seconds", "basis")
"""Metrics that record when a run took place and on which inputs, not its result."""


def forget_deleted(database: Database, connection: sa.Connection, project: str, seconds: float) -> int:
    """Delete items and annotations that were marked as deleted at least `seconds` ago. Return the number of rows."""
    until = connection.execute(sa.select(database.now())).scalar_one() - seconds
    items = sa.and_(item.c.project == project, item.c.deleted_at <= until)
    gone = connection.execute(sa.select(item.c.item).where(items)).scalars().all()
    old = sa.and_(annotation.c.project == project, annotation.c.deleted_at <= until)
    forgotten = connection.execute(sa.delete(annotation).where(old)).rowcount
    if gone:
        # A snapshot from before the deletion would still contain them.
        newest = sa.select(sa.func.max(item.c.revision)).where(items).scalar_subquery()
        stale = sa.and_(snapshot.c.project == project, snapshot.c.revision < newest)
        connection.execute(sa.delete(snapshot).where(stale))
        for table in (annotation, prediction):
            mine = sa.and_(table.c.project == project, database.among(table.c.item, gone))
            forgotten += connection.execute(sa.delete(table).where(mine)).rowcount
        forgotten += connection.execute(sa.delete(item).where(items)).rowcount
    return int(forgotten)


def forget_cycles(connection: sa.Connection, project: str, number: int, kept: int) -> None:
    """Delete metrics of runs older than the last `kept`, and older ones whose neighbors are equal."""
    mine = cycle.c.project == project
    connection.execute(sa.delete(cycle).where(mine, cycle.c.number <= number - kept))
    query = sa.select(cycle.c.number, cycle.c.metrics).where(mine, cycle.c.number <= number - RECENT)
    last = connection.execute(query.order_by(cycle.c.number.desc()).limit(3)).all()
    if len(last) == 3 and len({_course(row.metrics) for row in last}) == 1:
        connection.execute(sa.delete(cycle).where(mine, cycle.c.number == last[1].number))


def _course(metrics: str) -> str:
    said: dict[str, Any] = json.loads(metrics)
    return json.dumps({name: value for name, value in said.items() if name not in OF_ONE_RUN}, sort_keys=True)
