"""Items sent back to annotators: which item, to whom, by whom, and why.

Rows are written without a lease, because its holder may take long. The next plan includes them.
"""

from __future__ import annotations

import time

import sqlalchemy as sa

from hitl.plan import Rework
from hitl.store.lease import Leased
from hitl.store.schema import rework


class SentBack(Leased):
    """Items sent back to annotators."""

    def send_back(self, project: str, item: str, annotator: str, by: str, note: str = "") -> Rework:
        """Ask the annotator (a shown name) about the item (the platform's key), again or for the first time."""
        row = Rework(item, annotator, time.time(), note, by)
        values = {"item": item, "annotator": annotator, "since": row.since, "note": note, "by": by}
        with self.database.write() as connection:
            self.database.upsert(connection, rework, [{"project": project, **values}])
        return row

    def take_back(self, project: str, item: str, annotator: str) -> bool:
        """Cancel a request. Return True if there was one."""
        this = (rework.c.project == project, rework.c.item == item, rework.c.annotator == annotator)
        with self.database.write() as connection:
            return connection.execute(sa.delete(rework).where(*this)).rowcount > 0

    def sent_back(self, project: str) -> tuple[Rework, ...]:
        """Return all requests, answered or not, oldest first."""
        columns = (rework.c[name] for name in ("item", "annotator", "since", "note", "by"))
        query = sa.select(*columns).where(rework.c.project == project)
        ordered = query.order_by(rework.c.since, rework.c.item, rework.c.annotator)
        return tuple(Rework(*row) for row in self.database.rows(ordered))
