"""Which runs are due and which are done, durable: no run is lost and none is done twice, whenever the process dies.

    due    the newest time a run was due                 raised before the job store moves on to the next time
    done   until when a whole cycle covers what was due      raised after its push is confirmed

A project has a run to do while done < due; all that fell due meanwhile is one run, named by the newest time. A cycle
covers what was due when it began, also what the clock had not noticed yet: after a process or its database stood
still, missed times come to the ledger one after the other, while the cycle of the first is on already or done. The
name is recorded with the cycle, in its transaction (`hitl.cycle.run`, `due`): a process killed after recording and
before `done` was raised finds the cycle by it and pushes what is left, instead of recording a second one.

    killed before due is raised     the job store still says so            due again, under the same name
    before the cycle is recorded    due, not done, no cycle of that name   the cycle is run
    before its push is confirmed    due, not done, a cycle of that name    what is pending is pushed
    before done is raised           the same                               nothing is pending: done

Names are times in UTC, ISO 8601 with microseconds, whose order is that of the text. A clock that was ahead has left
names of the future, which hold back no run: the next one is named right after them, until the time has caught up.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeGuard

import sqlalchemy as sa

from hitl.store.database import Database
from hitl.store.schema import KEY

TABLES = sa.MetaData()
"""Tables of the scheduler, made beside those of the store; all they hold can be made again but what is just due."""

schedule = sa.Table(
    "hitl_schedule",
    TABLES,
    sa.Column("project", KEY, primary_key=True),
    sa.Column("due", KEY, nullable=False),
    sa.Column("done", KEY, nullable=False),
)

LAST = "9000"
"""Names end before this year, so that there is always one that follows."""

_CREATION_LOCK = 0x6869_746D
"""Advisory lock on PostgreSQL while tables are made: IF NOT EXISTS alone fails when two make them at once."""


def create(database: Database, tables: Iterable[sa.Table] = (schedule,), former: str | None = None) -> None:
    """Make the tables that are not there yet, with their indexes; drop the one that a `former` version had."""
    with database.write() as connection:
        if database.postgres:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
        for table in tables:
            table.create(connection, checkfirst=True)
        if former is not None:
            sa.Table(former, sa.MetaData()).drop(connection, checkfirst=True)


def name_of(when: datetime) -> str:
    """The name of the run that is due at this time (aware)."""
    return when.astimezone(UTC).isoformat(timespec="microseconds")


def _following(name: str) -> str:
    """The name right after this one."""
    return name_of(datetime.fromisoformat(name) + timedelta(microseconds=1))


def _is_name(text: object) -> TypeGuard[str]:
    """Whether it is one of our names; anything may have been written into the database."""
    try:
        return isinstance(text, str) and text < LAST and name_of(datetime.fromisoformat(text)) == text
    except (ValueError, OverflowError):
        return False


class Ledger:
    """The due and done times of the projects of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def mark(self, due: Iterable[tuple[str, datetime]], now: datetime) -> None:
        """These (project, time) are due, together or not at all; an older time than the stored one changes nothing.

        But for one that a clock wrote which was ahead of `now`.
        """
        with self._database.write() as connection:
            for project, when in due:
                blank = self._database.insert(schedule).values(project=project, due="", done="")
                connection.execute(blank.on_conflict_do_nothing())
                mine = schedule.c.project == project
                row = connection.execute(sa.select(schedule).where(mine).with_for_update()).one()
                was_due, done = (text if _is_name(text) else "" for text in (row.due, row.done))
                newest = max(was_due, done)
                name = _following(newest) if newest > name_of(now) else name_of(when)
                connection.execute(sa.update(schedule).where(mine).values(due=max(was_due, name), done=done))

    def pending(self, project: str) -> str | None:
        """The name of the run to do, or None."""
        query = sa.select(schedule.c.due).where(schedule.c.project == project, schedule.c.done < schedule.c.due)
        due = self._database.scalar(query)
        return due if _is_name(due) else None

    def done(self, project: str, until: str) -> None:
        """What was due until then (the name of a run, or of when one began) is done."""
        raised = sa.update(schedule).where(schedule.c.project == project, schedule.c.done < until).values(done=until)
        with self._database.write() as connection:
            connection.execute(raised)

    def last_done(self, project: str, now: datetime) -> datetime | None:
        """The newest time that is done and not of the future; None: nothing is, or a clock was ahead."""
        done = self._database.scalar(sa.select(schedule.c.done).where(schedule.c.project == project))
        return datetime.fromisoformat(done) if _is_name(done) and done <= name_of(now) else None
