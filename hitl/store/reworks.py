"""Items that somebody has sent back: which, to whom, by whom, and why.

They are written without a lease, because whoever holds one may take long: the next plan has them.
"""

from __future__ import annotations

import time

import sqlalchemy as sa

from hitl.plan import Rework
from hitl.store.lease import Leased
from hitl.store.schema import rework


class SentBack(Leased):
    """What was sent back."""

    def send_back(self, project: str, item: str, annotator: str, by: str, note: str = "") -> Rework:
        """Ask the annotator (a shown name) about the item (the platform's key), again or for the first time."""
        row = Rework(item, annotator, time.time(), note, by)
        values = {"item": item, "annotator": annotator, "since": row.since, "note": note, "by": by}
        with self.database.write() as connection:
            self.database.upsert(connection, rework, [{"project": project, **values}])
        return row

    def take_back(self, project: str, item: str, annotator: str) -> bool:
        """Do not ask any longer; whether it was asked."""
        this = (rework.c.project == project, rework.c.item == item, rework.c.annotator == annotator)
        with self.database.write() as connection:
            return connection.execute(sa.delete(rework).where(*this)).rowcount > 0

    def sent_back(self, project: str) -> tuple[Rework, ...]:
        """All that was sent back, answered or not, oldest first."""
        columns = (rework.c[name] for name in ("item", "annotator", "since", "note", "by"))
        query = sa.select(*columns).where(rework.c.project == project)
        ordered = query.order_by(rework.c.since, rework.c.item, rework.c.annotator)
        return tuple(Rework(*row) for row in self.database.rows(ordered))
