"""That the platform has told of news, kept until a pull that began later has succeeded: one row a project.

A hint is written without a lease, because whoever holds one may take long: it says nothing of the project itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from hitl.store.lease import Leased
from hitl.store.schema import hint as hints


@dataclass(frozen=True, slots=True)
class Hint:
    """The hints of a project that no pull has answered.

    Attributes:
        first_at, last_at: when the first and the last came, in seconds since the epoch.
        count: how many they are.
    """

    first_at: float
    last_at: float
    count: int


class Hinted(Leased):
    """What the platform has told of."""

    def note_hints(self, project: str, count: int = 1) -> None:
        """So many hints have come just now; durable when it returns."""
        with self.database.write() as connection:
            now = connection.execute(sa.select(self.database.now())).scalar_one()
            first = self.database.insert(hints).values(project=project, first_at=now, last_at=now, count=count)
            more = {"last_at": now, "count": hints.c.count + count}
            connection.execute(first.on_conflict_do_update(index_elements=[hints.c.project], set_=more))

    def hint(self, project: str) -> Hint | None:
        """The hints that no pull has answered; None: there are none."""
        query = sa.select(hints.c.first_at, hints.c.last_at, hints.c.count).where(hints.c.project == project)
        found = self.database.rows(query)
        return Hint(*found[0]) if found else None

    def clear_hint(self, project: str, seen: Hint) -> bool:
        """A pull that began when these had been `seen` has succeeded; whether no other has come since."""
        same = (hints.c.first_at == seen.first_at, hints.c.count == seen.count)
        with self.database.write() as connection:
            return connection.execute(sa.delete(hints).where(hints.c.project == project, *same)).rowcount == 1
