"""That the platform has told of news, kept until a pull that began later has succeeded: one row a project.

    note    a hint comes: `count` rises, unless no pull has taken what is there; then nothing need be written
    take    a pull begins: what was counted so far is taken; where more is sure to come one is counted `ahead`, so that
            those that come meanwhile wait for no lock
    clear   that pull has succeeded: the row goes, unless more was counted since

So a hint that was noted is there until a pull has succeeded that began after it, whichever process it is of. It is
written without a lease, because whoever holds one may take long: it says nothing of the project itself.
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
        first_at, last_at: when the first and the last that was written came, in seconds since the epoch.
        count: how many were written; taken: so many when the last pull began.
    """

    first_at: float
    last_at: float
    count: int
    taken: int = 0


class Hinted(Leased):
    """What the platform has told of."""

    def note_hint(self, project: str) -> bool:
        """A hint has come just now; durable when it returns. Whether it had to be written."""
        there = self.hint(project)
        if there is not None and there.count > there.taken:
            return False  # whoever clears it has to take it first, and pulls after that
        now = self.database.now()
        first = self.database.insert(hints).values(project=project, first_at=now, last_at=now, count=1, taken=0)
        more = {"last_at": first.excluded.last_at, "count": hints.c.count + 1}
        self.database.change(first.on_conflict_do_update(index_elements=[hints.c.project], set_=more))
        return True

    def hint(self, project: str) -> Hint | None:
        """The hints that no pull has answered; None: there are none."""
        columns = (hints.c.first_at, hints.c.last_at, hints.c.count, hints.c.taken)
        found = self.database.rows(sa.select(*columns).where(hints.c.project == project))
        return Hint(*found[0]) if found else None

    def take_hint(self, project: str, *, ahead: bool = False) -> Hint | None:
        """A pull begins now, that will answer these; None: there are none.

        `ahead` counts one more in the same transaction: hints that come before the next pull takes it need not be
        written, and that pull has to be.
        """
        if self.hint(project) is None:
            return None
        more = {"taken": hints.c.count, "count": hints.c.count + int(ahead)}
        with self.database.write() as connection:
            mine = hints.c.project == project
            connection.execute(sa.update(hints).where(mine).values(more))
            columns = (hints.c.first_at, hints.c.last_at, hints.c.count, hints.c.taken)
            found = connection.execute(sa.select(*columns).where(mine)).all()
        return Hint(*found[0]) if found else None

    def clear_hint(self, project: str, taken: Hint) -> bool:
        """The pull that took these has succeeded; whether no other has come since."""
        same = (hints.c.first_at == taken.first_at, hints.c.count == taken.count)
        return self.database.change(sa.delete(hints).where(hints.c.project == project, *same)) == 1
