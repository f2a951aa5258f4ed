"""Item searches saved by name, for everyone who can see the project. Written without a lease."""

from __future__ import annotations

import time
from dataclasses import dataclass

import sqlalchemy as sa

from hitl.store.lease import Leased
from hitl.store.schema import view


@dataclass(frozen=True, slots=True)
class SavedView:
    """A saved search: its name, the URL query, who saved it and when (seconds since the epoch)."""

    name: str
    query: str
    by: str
    since: float


class Viewed(Leased):
    """Saved searches."""

    def save_view(self, project: str, name: str, query: str, by: str) -> SavedView:
        """Save a search under this name, replacing any other of that name."""
        made = SavedView(name, query, by, time.time())
        values = {"name": name, "query": query, "by": by, "since": made.since}
        with self.database.write() as connection:
            self.database.upsert(connection, view, [{"project": project, **values}])
        return made

    def forget_view(self, project: str, name: str) -> bool:
        """Delete a search. Return True if it existed."""
        with self.database.write() as connection:
            this = sa.delete(view).where(view.c.project == project, view.c.name == name)
            return connection.execute(this).rowcount > 0

    def views(self, project: str) -> tuple[SavedView, ...]:
        """Return all searches of a project, by name."""
        columns = (view.c[name] for name in ("name", "query", "by", "since"))
        query = sa.select(*columns).where(view.c.project == project).order_by(view.c.name)
        return tuple(SavedView(*row) for row in self.database.rows(query))
